//! Stops large writes before they fill the disk, which would harm everything else on it, and when their caller cancels them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fstatvfs;

use crate::cancel::CancelFlag;

/// Bytes that are written between two checks.
const STEP: u64 = 16 << 20;

/// Bytes that stay free, or this part of the file system if that is less.
const FLOOR: u64 = 1 << 30;
const FLOOR_PERCENT: u64 = 2;

/// The disk has no space for what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no space left for {what}: {} MiB free, and {} MiB have to stay free; remove images that are not needed",
    free >> 20, floor >> 20
)]
pub(crate) struct NoSpace {
    pub(crate) what: &'static str,
    pub(crate) free: u64,
    pub(crate) floor: u64,
}

impl NoSpace {
    /// Checks the free space of a file system.
    fn check(what: &'static str, total: u64, free: u64) -> Result<(), Self> {
        let floor = FLOOR.min(total / 100 * FLOOR_PERCENT);
        if free < floor { Err(Self { what, free, floor }) } else { Ok(()) }
    }
}

/// The disk has no room for the number of files that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no inodes left for {what}: {free} free, and {floor} have to stay free; remove images that are not needed")]
struct NoInodes {
    what: &'static str,
    free: u64,
    floor: u64,
}

impl NoInodes {
    /// Checks the free inodes of a file system. If it reports a total of 0, it has no limit.
    fn check(what: &'static str, total: u64, free: u64) -> Result<(), Self> {
        let floor = total / 100 * FLOOR_PERCENT;
        if free < floor { Err(Self { what, free, floor }) } else { Ok(()) }
    }
}

/// Counts what is written to a file system.
#[derive(Debug)]
pub(crate) struct WriteGuard {
    /// What is written, for errors: such as `the image`.
    what: &'static str,
    within: OwnedFd,
    cancel: CancelFlag,
    /// Bytes since the last check.
    written: u64,
}

impl WriteGuard {
    /// Creates a guard for writes to the file system of an open file or directory, and checks it.
    ///
    /// # Errors
    /// As [`written`](Self::written).
    pub(crate) fn begin(what: &'static str, within: impl AsFd, cancel: CancelFlag) -> io::Result<Self> {
        let it = Self::new(what, within, cancel)?;
        it.check()?;
        Ok(it)
    }

    /// The same without the first check, for writes that may be small: a nearly full disk may still hold those.
    pub(crate) fn new(what: &'static str, within: impl AsFd, cancel: CancelFlag) -> io::Result<Self> {
        Ok(Self { what, within: within.as_fd().try_clone_to_owned()?, cancel, written: 0 })
    }

    /// Counts bytes that were written.
    ///
    /// # Errors
    /// [`NoSpace`] within an error of kind [`StorageFull`](io::ErrorKind::StorageFull), and those of
    /// [`CancelFlag::check`].
    pub(crate) fn written(&mut self, bytes: u64) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes);
        if self.written < STEP {
            return Ok(());
        }
        self.written = 0;
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        self.cancel.check()?;
        let stat = fstatvfs(&self.within)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        NoSpace::check(self.what, bytes(stat.f_blocks), bytes(stat.f_bavail)).map_err(full)?;
        NoInodes::check(self.what, stat.f_files, stat.f_favail).map_err(full)
    }
}

fn full(err: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, err)
}

/// Creates a file system in memory of 16 MiB, nearly full. `None` if this user may not create one.
#[cfg(test)]
pub(crate) fn full_file_system() -> Option<OwnedFd> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    };
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(context.as_fd(), "size", "16m").unwrap();
    fsconfig_create(context.as_fd()).unwrap();
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&root, "rest", flags, rustix::fs::Mode::RWXU).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (16 << 20) - (128 << 10)).unwrap();
    Some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_small_disks_and_a_fixed_size_of_large_ones_stay_free() {
        let gib = |count: u64| count << 30;
        assert_eq!(NoSpace::check("the image", gib(1000), gib(1)), Ok(()));
        let full = NoSpace::check("the image", gib(1000), gib(1) - 1).unwrap_err();
        assert_eq!(
            full.to_string(),
            "no space left for the image: 1023 MiB free, and 1024 MiB have to stay free; remove images that are not needed"
        );
        assert_eq!(NoSpace::check("the image", gib(10), gib(10) / 50), Ok(()));
        assert!(NoSpace::check("the image", gib(10), gib(10) / 60).is_err());
        // Some file systems report no blocks at all.
        assert_eq!(NoSpace::check("the image", 0, 0), Ok(()));
    }

    #[test]
    fn a_part_of_the_inodes_stays_free() {
        assert_eq!(NoInodes::check("the image", 1000, 20), Ok(()));
        let err = NoInodes::check("the image", 1000, 19).unwrap_err();
        assert!(
            err.to_string().starts_with("no inodes left for the image: 19 free, and 20 have to stay free"),
            "{err}"
        );
        // Btrfs and others create inodes as needed, and report none.
        assert_eq!(NoInodes::check("the image", 0, 0), Ok(()));
    }

    #[test]
    fn writing_ends_before_the_disk_is_full_or_when_it_is_given_up() {
        if let Some(full) = full_file_system() {
            let err = WriteGuard::begin("the image", &full, CancelFlag::NEVER).unwrap_err();
            assert!(err.kind() == io::ErrorKind::StorageFull && err.to_string().contains("no space left"), "{err}");
            let mut small = WriteGuard::new("the copy", &full, CancelFlag::NEVER).unwrap();
            small.written(STEP - 1).unwrap();
            let err = small.written(1).unwrap_err();
            assert!(err.to_string().starts_with("no space left for the copy"), "{err}");
        }
        let dir = tempfile::tempfile().unwrap();
        let cancel = CancelFlag::new().unwrap();
        let mut guard = WriteGuard::begin("the image", &dir, cancel.clone()).unwrap();
        cancel.cancel();
        guard.written(STEP - 1).unwrap();
        assert!(guard.written(1).is_err());
    }
}
