//! Writing a file whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, Stat, Uid};
use rustix::fs::{fchmod, fchown, fstat, statat};
use rustix::io::Errno;

use super::act;
use super::entry::{entry, kind, permissions};
use super::parent::ParentAndName;
use super::requested_path::RequestedPath;
use crate::os::as_user::as_user;
use crate::os::atomic::{AtomicFile, Durability};
use crate::os::machine::Ids;
use crate::protocol::{ErrorCode, FileEntry, FileKind, RpcError};

/// A file that is being written, under another name beside its own. Without a commit it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct AtomicWriter {
    ids: Ids,
    asked: RequestedPath,
    name: Vec<u8>,
    /// Nothing when it is committed.
    new: Option<AtomicFile<OwnedFd>>,
    /// Bits to set before it gets its name; those that it was made with stay without.
    mode: Option<Mode>,
    /// The owner: that of the file it replaces.
    owner: Option<(u32, u32)>,
    replace: bool,
}

/// Options of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// Permission bits of a new file; by default the umask decides.
    pub(crate) mode: Option<u32>,
    /// A file that is there gets them, too.
    pub(crate) exact: bool,
    /// Missing parents are made.
    pub(crate) parents: bool,
    /// A file that is there is replaced.
    pub(crate) replace: bool,
}

impl AtomicWriter {
    pub(super) fn begin(
        ids: Ids,
        asked: RequestedPath,
        spot: ParentAndName,
        how: WriteOptions,
    ) -> Result<Self, RpcError> {
        let WriteOptions { mode, exact, replace, .. } = how;
        let there = there(&asked, &spot, replace)?;
        let old = there.map(|it| it.st_mode);
        let mode = if exact { mode.or(old) } else { old.or(mode) }.map(permissions);
        // A file with a given mode stays private until it has that mode. Otherwise the umask decides from the start.
        let born = if mode.is_some() { Mode::RUSR | Mode::WUSR } else { permissions(0o666) };
        let new = AtomicFile::create(spot.dir, born).map_err(|it| asked.fault(it))?;
        let owner = there.map(|it| (it.st_uid, it.st_gid));
        Ok(Self { ids, asked, name: spot.name, new: Some(new), mode, owner, replace })
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// [`ErrorCode::Io`], for instance when there is no space.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), RpcError> {
        let Some(new) = &mut self.new else { return Ok(()) };
        new.file().write_all(bytes).map_err(|it| self.failed(&it))
    }

    /// Puts it in place. When this returns, both content and name are on the disk.
    ///
    /// # Errors
    /// As for [`Files::put`](super::Files::put): another process may have created the file first.
    pub(crate) fn commit(mut self) -> Result<FileEntry, RpcError> {
        let new = self.new.take();
        act(&self.ids, || self.place(new).map_err(|it| self.asked.fault(it)))
    }

    fn place(&self, new: Option<AtomicFile<OwnedFd>>) -> rustix::io::Result<FileEntry> {
        let mut new = new.ok_or(Errno::NOENT)?;
        if let Some(owner) = self.owner {
            set_owner(new.file(), owner)?;
        }
        if let Some(mode) = self.mode {
            fchmod(new.file(), mode)?;
        }
        let file = new.commit(&self.name, self.replace, Durability::All)?;
        entry(self.asked.name().as_bytes(), file)
    }

    fn failed(&self, error: &io::Error) -> RpcError {
        let errno = Errno::from_io_error(error);
        errno.map_or_else(|| RpcError::new(ErrorCode::Io, error.to_string()), |it| self.asked.fault(it))
    }
}

impl Drop for AtomicWriter {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            let _ = as_user(&self.ids, || drop(new));
        }
    }
}

/// The file to be replaced; `None` for a free name or a link.
pub(super) fn there(asked: &RequestedPath, spot: &ParentAndName, replace: bool) -> Result<Option<Stat>, RpcError> {
    let stat = match statat(&spot.dir, &spot.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat.map_err(|it| asked.fault(it))?,
    };
    match kind(&stat) {
        kind @ (FileKind::Dir | FileKind::Special) => asked.expect_file(kind).map(|()| None),
        _ if !replace => Err(asked.exists()),
        FileKind::Link => Ok(None),
        FileKind::File => Ok(Some(stat)),
    }
}

/// Gives a file away as far as the caller may.
fn set_owner(file: &File, (uid, gid): (u32, u32)) -> rustix::io::Result<()> {
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
