//! Replaces the content of a file atomically.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, Stat, Uid, fchmod, fchown, fstat, statat};
use rustix::io::Errno;

use super::act;
use super::entry::{entry, kind, permissions};
use super::parent::ParentAndName;
use super::requested_path::RequestedPath;
use crate::atomic::{AtomicFile, Durability};
use crate::os::as_user::as_user;
use crate::os::machine::Ids;
use crate::protocol::{ErrorCode, FileEntry, FileKind, RpcError};

/// A file that is being written under a temporary name. Dropping it without a commit removes it.
#[derive(Debug)]
pub(crate) struct AtomicWriter {
    ids: Ids,
    requested: RequestedPath,
    name: Vec<u8>,
    /// `None` after the commit.
    new: Option<AtomicFile<OwnedFd>>,
    /// Permission bits to set before the file gets its name; `None` leaves the initial bits.
    mode: Option<Mode>,
    /// The owner and group of the file that it replaces.
    owner: Option<(u32, u32)>,
    replace: bool,
}

/// Options of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// Permission bits of a new file; by default the umask decides.
    pub(crate) mode: Option<u32>,
    /// Whether an existing file gets these bits, too.
    pub(crate) exact: bool,
    /// Whether missing parents are created.
    pub(crate) parents: bool,
    /// Whether an existing file is replaced.
    pub(crate) replace: bool,
}

impl AtomicWriter {
    pub(super) fn begin(
        ids: Ids,
        requested: RequestedPath,
        location: ParentAndName,
        options: WriteOptions,
    ) -> Result<Self, RpcError> {
        let WriteOptions { mode, exact, replace, .. } = options;
        let replaced = replaced_file(&requested, &location, replace)?;
        let old = replaced.map(|it| it.st_mode);
        let mode = if exact { mode.or(old) } else { old.or(mode) }.map(permissions);
        // A file with a given mode is private until the mode is set. Otherwise the umask decides from the start.
        let initial_mode = if mode.is_some() { Mode::RUSR | Mode::WUSR } else { permissions(0o666) };
        let new = AtomicFile::create(location.dir, initial_mode).map_err(|it| requested.error(it))?;
        let owner = replaced.map(|it| (it.st_uid, it.st_gid));
        Ok(Self { ids, requested, name: location.name, new: Some(new), mode, owner, replace })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`ErrorCode::Io`], for instance when there is no space.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), RpcError> {
        let Some(new) = &mut self.new else { return Ok(()) };
        new.file().write_all(bytes).map_err(|it| self.failed(&it))
    }

    /// Renames the file to its path. When this returns, both content and name are on the disk.
    ///
    /// # Errors
    /// As for [`Files::put`](super::Files::put): another process may have created the file first.
    pub(crate) fn commit(mut self) -> Result<FileEntry, RpcError> {
        let new = self.new.take();
        act(&self.ids, || self.rename(new).map_err(|it| self.requested.error(it)))
    }

    fn rename(&self, new: Option<AtomicFile<OwnedFd>>) -> rustix::io::Result<FileEntry> {
        let mut new = new.ok_or(Errno::NOENT)?;
        if let Some(owner) = self.owner {
            set_owner(new.file(), owner)?;
        }
        if let Some(mode) = self.mode {
            fchmod(new.file(), mode)?;
        }
        let file = new.commit(&self.name, self.replace, Durability::All)?;
        entry(self.requested.name().as_bytes(), file)
    }

    fn failed(&self, error: &io::Error) -> RpcError {
        let errno = Errno::from_io_error(error);
        errno.map_or_else(|| RpcError::new(ErrorCode::Io, error.to_string()), |it| self.requested.error(it))
    }
}

impl Drop for AtomicWriter {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            let _ = as_user(&self.ids, || drop(new));
        }
    }
}

/// Returns the file that will be replaced; `None` for a free name or a link.
pub(super) fn replaced_file(
    requested: &RequestedPath,
    location: &ParentAndName,
    replace: bool,
) -> Result<Option<Stat>, RpcError> {
    let stat = match statat(&location.dir, &location.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat.map_err(|it| requested.error(it))?,
    };
    match kind(&stat) {
        kind @ (FileKind::Dir | FileKind::Special) => requested.expect_file(kind).map(|()| None),
        _ if !replace => Err(requested.exists()),
        FileKind::Link => Ok(None),
        FileKind::File => Ok(Some(stat)),
    }
}

/// Sets the owner as far as the caller may.
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
