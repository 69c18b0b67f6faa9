//! The parent directories of entries.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use coracle_archive::tar::{EntryKind, FileTime, TarEntry};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, mkdirat, statat, unlinkat, utimensat};
use rustix::io::Errno;

use super::super::LayerRefusal;
use super::super::remove::remove_entry;
use super::super::tree::{is_dir, is_whiteout, open_beneath};
use super::path::EntryPath;
use super::{Result, Unpack};

/// Mode of a directory that an archive only implies, as in other engines.
const IMPLIED_MODE: u32 = 0o755;

impl Unpack {
    /// Opens the parent directory of an entry, and creates it if no entry has done so.
    pub(super) fn parent(&mut self, path: &EntryPath) -> Result<OwnedFd> {
        let parent = path.parent();
        if let Some((known, dir)) = &self.parent
            && known.as_slice() == parent
        {
            return Ok(dir.try_clone()?);
        }
        let dir = self.open_or_make(parent)?;
        self.parent = Some((parent.to_vec(), dir.try_clone()?));
        Ok(dir)
    }

    fn open_or_make(&mut self, path: &[u8]) -> Result<OwnedFd> {
        if path.is_empty() {
            return Ok(self.root.try_clone()?);
        }
        match open_beneath(self.root.as_fd(), path) {
            Err(err) if is_missing(&err) => {}
            done => return Ok(done?),
        }
        let within = EntryPath::parse(path, usize::MAX)?;
        let above = self.open_or_make(within.parent())?;
        let name = within.c_name();
        match statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(stat) if is_whiteout(&stat) => unlinkat(&above, &name, AtFlags::empty())?,
            Ok(_) => return Err(LayerRefusal::entry(path, "is no directory, and another entry lies in it").into()),
            Err(err) => return Err(err.into()),
        }
        self.count_entry()?;
        let dir = self.make_directory(above.as_fd(), &within)?;
        self.set_mode(dir.as_fd(), IMPLIED_MODE)?;
        self.remember_time(path, FileTime::default())?;
        if self.implied.insert(path.to_vec()) {
            self.count_path(path)?;
        }
        Ok(dir)
    }

    /// Creates a missing directory.
    fn make_directory(&mut self, above: BorrowedFd<'_>, path: &EntryPath) -> Result<OwnedFd> {
        mkdirat(above, path.c_name(), Mode::from_raw_mode(0o700))?;
        let dir = open_beneath(self.root.as_fd(), path.as_bytes())?;
        if self.hidden.contains(path.as_bytes()) {
            self.set_opaque(dir.as_fd())?;
        }
        Ok(dir)
    }

    /// Creates a directory, or sets the attributes of an existing one.
    pub(super) fn directory(&mut self, path: &EntryPath, entry: &TarEntry) -> Result<()> {
        let above = self.parent(path)?;
        let name = path.c_name();
        let there = match statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_dir(stat.st_mode) => true,
            Ok(_) => {
                unlinkat(&above, &name, AtFlags::empty())?;
                false
            }
            Err(Errno::NOENT) => false,
            Err(err) => return Err(err.into()),
        };
        let dir = if there {
            open_beneath(self.root.as_fd(), path.as_bytes())?
        } else {
            self.make_directory(above.as_fd(), path)?
        };
        self.set_attributes(dir.as_fd(), entry)?;
        self.implied.remove(path.as_bytes());
        Ok(self.remember_time(path.as_bytes(), entry.mtime)?)
    }

    /// Sets the attributes of the root.
    pub(super) fn root_entry(&mut self, entry: &TarEntry) -> Result<()> {
        if entry.kind != EntryKind::Directory {
            return Err(LayerRefusal::entry(&entry.path, "is the root, and no directory").into());
        }
        let root = self.root.try_clone()?;
        self.set_attributes(root.as_fd(), entry)?;
        self.implied.remove(&Vec::new());
        self.times.insert(Vec::new(), entry.mtime);
        Ok(())
    }

    /// Removes an earlier entry that a later one replaces.
    pub(super) fn clear(&mut self, dir: BorrowedFd<'_>, path: &EntryPath) -> Result<()> {
        let name = path.c_name();
        let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_dir(stat.st_mode) {
            unlinkat(dir, &name, AtFlags::empty())?;
            return Ok(());
        }
        remove_entry(dir, &name)?;
        for inside in inside(&self.times, path.as_bytes()) {
            self.times.remove(&inside);
            self.implied.remove(&inside);
        }
        self.parent = None;
        Ok(())
    }

    /// Sets the times of directories, after the last entry.
    pub(super) fn set_directory_times(&mut self) -> Result<()> {
        for (path, time) in &self.times {
            let at: &[u8] = if path.is_empty() { b"." } else { path };
            utimensat(&self.root, at, &timestamps(*time), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// Returns the keys at a path and below it.
fn inside(times: &BTreeMap<Vec<u8>, FileTime>, path: &[u8]) -> Vec<Vec<u8>> {
    // `0` is the character after `/`.
    let (from, to) = ([path, b"/"].concat(), [path, b"0"].concat());
    let beneath = times.range(from..to).map(|(it, _)| it.clone());
    beneath.chain([path.to_vec()]).collect()
}

/// Modification and access at the same time.
pub(super) fn timestamps(time: FileTime) -> Timestamps {
    let it = Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: it, last_modification: it }
}

/// Whether an error means that a path does not exist, or leads through something that is not a directory.
pub(super) fn is_missing(err: &std::io::Error) -> bool {
    let errno = err.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
