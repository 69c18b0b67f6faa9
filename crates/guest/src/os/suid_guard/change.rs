//! Sets a mode, or makes a file, in a caller's place.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::fs::{chmodat, fchmod, open, openat2, statx};
use rustix::io::{Errno, Result};

use super::REFUSED;
use super::caller::{Path, ResolvedCall};

const SET_ID: u32 = 0o6000;
const SET_GROUP: u32 = 0o2000;

/// Flags that create a file. An existing one could be anything, and opening it could block.
const CREATE_FLAGS: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_PATH | libc::O_TMPFILE;

/// Other flags with a meaning for a new file.
const PASSED_ON: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME;

/// The result of a change.
#[derive(Debug)]
pub(super) enum ChangeOutcome {
    Changed,
    /// The file belongs to the caller, with close-on-exec or without.
    Made {
        file: OwnedFd,
        closes: bool,
    },
}

/// The container's own files: what is on the mount of `/`.
#[derive(Debug)]
pub(super) struct OwnMount {
    root: OwnedFd,
    place: FileLocation,
    mount: u64,
    /// A caller can be given a file.
    gives: bool,
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLocation {
    mount: u64,
    device: (u32, u32),
    inode: u64,
}

impl OwnMount {
    /// # Errors
    /// This kernel does not distinguish mounts, or cannot keep a path from leading through another process.
    pub(super) fn find(gives: bool) -> Result<Self> {
        let root = open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        resolve(root.as_fd(), c".", OFlags::PATH)?;
        let (place, _) = seen(root.as_fd())?;
        Ok(Self { root, place, mount: place.mount, gives })
    }

    /// Does what is wanted, without the bits where the file is not the container's own.
    ///
    /// # Errors
    /// The kernel's, for the caller's ids.
    pub(super) fn change(&self, wanted: ResolvedCall) -> Result<ChangeOutcome> {
        let (file, mode) = match wanted {
            ResolvedCall::Open { file, mode } => (file, mode),
            ResolvedCall::Named { path, mode } => (self.resolve(&path, OFlags::PATH)?, mode),
            ResolvedCall::Made { path, flags, mode } => return self.create_file(&path, flags, mode),
        };
        // A descriptor without a file to it takes no mode, but its path does, which is this process's own.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmodat(CWD, own, self.fitting(&file, mode)?, AtFlags::empty())?;
        Ok(ChangeOutcome::Changed)
    }

    /// A newly created file belongs to this call until the caller gets it.
    fn create_file(&self, path: &Path, flags: i32, mode: u32) -> Result<ChangeOutcome> {
        if !self.gives || flags & CREATE_FLAGS != libc::O_CREAT | libc::O_EXCL {
            return Err(REFUSED);
        }
        let file = self.resolve(path, OFlags::from_bits_retain((flags & PASSED_ON).cast_unsigned()))?;
        fchmod(&file, self.fitting(&file, mode)?)?;
        Ok(ChangeOutcome::Made { file, closes: flags & libc::O_CLOEXEC != 0 })
    }

    fn fitting(&self, file: &OwnedFd, mode: u32) -> Result<Mode> {
        let (place, now) = seen(file.as_fd())?;
        let fits = if place.mount == self.mount { mode } else { harmless(mode, now) };
        Ok(Mode::from_raw_mode(fits))
    }

    fn resolve(&self, Path { path, from, root }: &Path, flags: OFlags) -> Result<OwnedFd> {
        // Processes inside cannot change their root. After such a change, paths would name other files here.
        if seen(root.as_fd())?.0 != self.place {
            return Err(REFUSED);
        }
        resolve(from.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), path, flags)
    }
}

/// A link of `/proc` that leads to what a process has open leads nowhere: `self` would be this one.
fn resolve(from: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    // No other user may open the new file before it has its mode.
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    openat2(from, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::NO_MAGICLINKS)
}

/// The mode for a file that is visible outside. A set-id bit of a directory grants no rights, and stays as it is.
fn harmless(mode: u32, now: u32) -> u32 {
    let kept = if FileType::from_raw_mode(now) == FileType::Directory { now & SET_GROUP } else { 0 };
    mode & (!SET_ID | kept)
}

fn seen(file: BorrowedFd<'_>) -> Result<(FileLocation, u32)> {
    let all = StatxFlags::MNT_ID | StatxFlags::INO | StatxFlags::TYPE | StatxFlags::MODE;
    let it = statx(file, c"", AtFlags::EMPTY_PATH, all)?;
    if it.stx_mask & all.bits() != all.bits() {
        return Err(Errno::NOSYS);
    }
    let device = (it.stx_dev_major, it.stx_dev_minor);
    Ok((FileLocation { mount: it.stx_mnt_id, device, inode: it.stx_ino }, it.stx_mode.into()))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_outside_has_no_set_id_bit_and_a_directory_no_new_one() {
        let (file, dir, shared) = (0o100_755, 0o040_755, 0o042_755);
        for (mode, now, expected) in [
            (0o6755, file, 0o755),
            (0o3777, file, 0o1777),
            (0o2755, 0o102_755, 0o755),
            (0o2755, dir, 0o755),
            (0o6700, shared, 0o2700),
            (0o700, shared, 0o700),
        ] {
            assert_eq!(harmless(mode, now), expected, "{mode:o} {now:o}");
        }
    }

    /// Applies the mode by path, for a file that is known to be the container's own or not.
    fn mode_after(is_own: bool, wanted: impl FnOnce(&std::path::Path) -> ResolvedCall) -> Result<u32> {
        let dir = tempfile::tempdir().unwrap();
        let mut own = OwnMount::find(true).unwrap();
        own.mount = seen(open(dir.path(), OFlags::PATH, Mode::empty())?.as_fd())?.0.mount;
        if !is_own {
            own.mount ^= 1;
        }
        own.change(wanted(dir.path()))?;
        Ok(std::fs::metadata(dir.path().join("f")).unwrap().permissions().mode() & 0o7777)
    }

    fn made(flags: i32) -> impl FnOnce(&std::path::Path) -> ResolvedCall {
        move |dir| {
            let path = CString::new(dir.join("f").as_os_str().as_bytes()).unwrap();
            ResolvedCall::Made {
                path: Path { path, from: None, root: open("/", OFlags::PATH, Mode::empty()).unwrap() },
                flags,
                mode: 0o6755,
            }
        }
    }

    fn opened(dir: &std::path::Path) -> ResolvedCall {
        let file = std::fs::File::create(dir.join("f")).unwrap();
        ResolvedCall::Open { file: file.into(), mode: 0o6755 }
    }

    #[test]
    fn bits_stay_on_files_of_the_containers_own() {
        let new = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        assert_eq!((mode_after(true, opened), mode_after(false, opened)), (Ok(0o6755), Ok(0o755)));
        assert_eq!((mode_after(true, made(new)), mode_after(false, made(new))), (Ok(0o6755), Ok(0o755)));
    }

    #[test]
    fn only_what_is_not_there_is_made() {
        for flags in
            [libc::O_CREAT, libc::O_CREAT | libc::O_TRUNC, libc::O_TMPFILE, libc::O_CREAT | libc::O_EXCL | libc::O_PATH]
        {
            assert_eq!(mode_after(true, made(flags | libc::O_RDWR)), Err(REFUSED), "{flags:o}");
        }
    }
}
