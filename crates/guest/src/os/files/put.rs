//! Writing a file whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::fs::{fchmod, fchown, fstat, fsync, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::act;
use super::act::as_user;
use super::entry::{entry, kind, permissions};
use super::fault::Asked;
use super::leftovers::{mark_in_use, unmark};
use super::link;
use super::place::{Spot, temporary_name};
use crate::os::machine::Ids;
use crate::wire::{Entry, Fault, FaultCode, Kind};

/// A file that is being written, under another name beside its own. Without a commit it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    ids: Ids,
    asked: Asked,
    spot: Spot,
    temporary: Temporary,
    /// Bits to set before it gets its name; those that it was made with stay without.
    mode: Option<Mode>,
    /// Whose it should be: that of the file it replaces.
    owner: Option<(u32, u32)>,
    replace: bool,
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Permission bits of a new file; what the umask leaves when there are none.
    pub(crate) mode: Option<u32>,
    /// A file that is there gets them, too.
    pub(crate) exact: bool,
    /// Missing parents are made.
    pub(crate) parents: bool,
    /// A file that is there is replaced.
    pub(crate) replace: bool,
}

/// A file of a random name.
#[derive(Debug)]
struct Temporary {
    name: String,
    file: File,
}

impl Writing {
    pub(super) fn begin(ids: Ids, asked: Asked, spot: Spot, how: How) -> Result<Self, Fault> {
        let How { mode, exact, replace, .. } = how;
        let there = there(&asked, &spot, replace)?;
        let old = there.map(|it| it.st_mode);
        let mode = if exact { mode.or(old) } else { old.or(mode) }.map(permissions);
        // With a mode it has to wait for that, nobody looks in before. Without, it is born with what the umask leaves.
        let born = if mode.is_some() { Mode::RUSR | Mode::WUSR } else { permissions(0o666) };
        let temporary = Temporary::create(&spot.dir, born).map_err(|it| asked.fault(it))?;
        let owner = there.map(|it| (it.st_uid, it.st_gid));
        Ok(Self { ids, asked, spot, temporary, mode, owner, replace })
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// [`FaultCode::Io`], for instance when there is no space.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.temporary.file.write_all(bytes).map_err(|it| self.failed(&it))
    }

    /// Puts it in place. When this returns, both content and name are on the disk.
    ///
    /// # Errors
    /// As for [`Files::put`](super::Files::put): somebody may have been faster.
    pub(crate) fn commit(self) -> Result<Entry, Fault> {
        act(&self.ids, || self.finish().map_err(|it| self.asked.fault(it)))
    }

    fn finish(&self) -> rustix::io::Result<Entry> {
        let file = &self.temporary.file;
        if let Some(owner) = self.owner {
            give(file, owner)?;
        }
        if let Some(mode) = self.mode {
            fchmod(file, mode)?;
        }
        fsync(file)?;
        self.rename()?;
        unmark(file);
        sync_dir(&self.spot.dir)?;
        entry(self.asked.name().as_bytes(), file)
    }

    fn rename(&self) -> rustix::io::Result<()> {
        let (dir, from, to) = (&self.spot.dir, self.temporary.name.as_str(), self.spot.name.as_slice());
        if self.replace {
            return renameat(dir, from, dir, to);
        }
        link::rename(dir, from.as_bytes(), to)
    }

    fn failed(&self, error: &io::Error) -> Fault {
        let errno = Errno::from_io_error(error);
        errno.map_or_else(|| Fault::new(FaultCode::Io, error.to_string()), |it| self.asked.fault(it))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // After a commit there is nothing of that name. What cannot be removed has a name that tells what it is.
        let _ = as_user(&self.ids, || unlinkat(&self.spot.dir, &self.temporary.name, AtFlags::empty()));
    }
}

impl Temporary {
    fn create(dir: &OwnedFd, mode: Mode) -> rustix::io::Result<Self> {
        let name = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(dir, &name, flags, mode)?);
        mark_in_use(&file);
        Ok(Self { name, file })
    }
}

/// The file that will be replaced; nothing when there is none, or a link.
pub(super) fn there(asked: &Asked, spot: &Spot, replace: bool) -> Result<Option<Stat>, Fault> {
    let stat = match statat(&spot.dir, &spot.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat.map_err(|it| asked.fault(it))?,
    };
    match kind(&stat) {
        kind @ (Kind::Dir | Kind::Special) => asked.expect_file(kind).map(|()| None),
        _ if !replace => Err(asked.exists()),
        Kind::Link => Ok(None),
        Kind::File => Ok(Some(stat)),
    }
}

/// Gives a file away as far as the caller may.
fn give(file: &File, (uid, gid): (u32, u32)) -> rustix::io::Result<()> {
    let now = fstat(file)?;
    let (user, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    if (now.st_uid, now.st_gid) == (uid, gid) || fchown(file, user, group).is_ok() {
        return Ok(());
    }
    match fchown(file, None, group) {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// A directory as it can be synced, where the user may read it.
pub(crate) fn read_dir(dir: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Puts the names in a directory on the disk.
pub(crate) fn sync_dir(dir: &OwnedFd) -> rustix::io::Result<()> {
    match read_dir(dir).and_then(fsync) {
        // A directory that may be written but not read, and file systems that sync by themselves.
        Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        done => done,
    }
}
