//! Sets a mode, or creates a file, in the caller's place.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, chmodat, fchmod, open, openat2, statx,
};
use rustix::io::{Errno, Result};

use super::REFUSED;
use super::caller::{Path, ResolvedCall};

const SET_ID: u32 = 0o6000;
const SET_GROUP: u32 = 0o2000;

/// Flags that create a file. An existing one could be anything, and opening it could block.
const CREATE_FLAGS: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_PATH | libc::O_TMPFILE;

/// Other flags that affect a new file.
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
    /// The new file, to be passed to the caller, with or without close-on-exec.
    Create {
        file: OwnedFd,
        cloexec: bool,
    },
}

/// Identifies the container's own files: those on the mount of `/`.
#[derive(Debug)]
pub(super) struct OwnMount {
    root: OwnedFd,
    location: FileLocation,
    mount: u64,
    /// Whether a caller can be given a file.
    can_pass_files: bool,
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
    /// Fails if this kernel does not distinguish mounts, or cannot refuse links of `/proc`.
    pub(super) fn find(can_pass_files: bool) -> Result<Self> {
        let root = open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        resolve(root.as_fd(), c".", OFlags::PATH)?;
        let (location, _) = locate(root.as_fd())?;
        Ok(Self { root, location, mount: location.mount, can_pass_files })
    }

    /// Executes the call, without set-id bits if the file is not the container's own.
    ///
    /// # Errors
    /// Returns the kernel's errors for the caller's ids.
    pub(super) fn change(&self, call: ResolvedCall) -> Result<ChangeOutcome> {
        let (file, mode) = match call {
            ResolvedCall::Open { file, mode } => (file, mode),
            ResolvedCall::Named { path, mode } => (self.resolve(&path, OFlags::PATH)?, mode),
            ResolvedCall::Create { path, flags, mode } => return self.create_file(&path, flags, mode),
        };
        // The mode of an `O_PATH` descriptor cannot be changed, but that of its path in `/proc` can.
        let proc_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmodat(CWD, proc_path, self.allowed_mode(&file, mode)?, AtFlags::empty())?;
        Ok(ChangeOutcome::Changed)
    }

    /// Creates a file, which belongs to this call until the caller gets it.
    fn create_file(&self, path: &Path, flags: i32, mode: u32) -> Result<ChangeOutcome> {
        if !self.can_pass_files || flags & CREATE_FLAGS != libc::O_CREAT | libc::O_EXCL {
            return Err(REFUSED);
        }
        let file = self.resolve(path, OFlags::from_bits_retain((flags & PASSED_ON).cast_unsigned()))?;
        fchmod(&file, self.allowed_mode(&file, mode)?)?;
        Ok(ChangeOutcome::Create { file, cloexec: flags & libc::O_CLOEXEC != 0 })
    }

    fn allowed_mode(&self, file: &OwnedFd, mode: u32) -> Result<Mode> {
        let (location, current_mode) = locate(file.as_fd())?;
        let mode = if location.mount == self.mount { mode } else { without_set_id(mode, current_mode) };
        Ok(Mode::from_raw_mode(mode))
    }

    fn resolve(&self, Path { path, from, root }: &Path, flags: OFlags) -> Result<OwnedFd> {
        // Processes inside cannot change their root. If one did, its paths would name other files here.
        if locate(root.as_fd())?.0 != self.location {
            return Err(REFUSED);
        }
        resolve(from.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), path, flags)
    }
}

/// Refuses links of `/proc` to open files: `self` would be this process.
fn resolve(from: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    // No other user may open the new file before its mode is set.
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    openat2(from, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::NO_MAGICLINKS)
}

/// The mode for a file that is visible outside. A set-id bit of a directory grants no rights, so it does not change.
fn without_set_id(mode: u32, current_mode: u32) -> u32 {
    let retained =
        if FileType::from_raw_mode(current_mode) == FileType::Directory { current_mode & SET_GROUP } else { 0 };
    mode & (!SET_ID | retained)
}

fn locate(file: BorrowedFd<'_>) -> Result<(FileLocation, u32)> {
    let all = StatxFlags::MNT_ID | StatxFlags::INO | StatxFlags::TYPE | StatxFlags::MODE;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, all)?;
    if stat.stx_mask & all.bits() != all.bits() {
        return Err(Errno::NOSYS);
    }
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    Ok((FileLocation { mount: stat.stx_mnt_id, device, inode: stat.stx_ino }, stat.stx_mode.into()))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn set_id_bits_are_removed_outside_except_existing_ones_of_directories() {
        let (file, dir, shared) = (0o100_755, 0o040_755, 0o042_755);
        for (mode, current, expected) in [
            (0o6755, file, 0o755),
            (0o3777, file, 0o1777),
            (0o2755, 0o102_755, 0o755),
            (0o2755, dir, 0o755),
            (0o6700, shared, 0o2700),
            (0o700, shared, 0o700),
        ] {
            assert_eq!(without_set_id(mode, current), expected, "{mode:o} {current:o}");
        }
    }

    /// Executes a call on a file that counts as the container's own or not, and returns the file's mode.
    fn mode_after(is_own: bool, call: impl FnOnce(&std::path::Path) -> ResolvedCall) -> Result<u32> {
        let dir = tempfile::tempdir().unwrap();
        let mut own = OwnMount::find(true).unwrap();
        own.mount = locate(open(dir.path(), OFlags::PATH, Mode::empty())?.as_fd())?.0.mount;
        if !is_own {
            own.mount ^= 1;
        }
        own.change(call(dir.path()))?;
        Ok(std::fs::metadata(dir.path().join("f")).unwrap().permissions().mode() & 0o7777)
    }

    fn created(flags: i32) -> impl FnOnce(&std::path::Path) -> ResolvedCall {
        move |dir| {
            let path = CString::new(dir.join("f").as_os_str().as_bytes()).unwrap();
            ResolvedCall::Create {
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
    fn set_id_bits_remain_on_the_containers_own_files() {
        let new = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        assert_eq!((mode_after(true, opened), mode_after(false, opened)), (Ok(0o6755), Ok(0o755)));
        assert_eq!((mode_after(true, created(new)), mode_after(false, created(new))), (Ok(0o6755), Ok(0o755)));
    }

    #[test]
    fn only_a_file_that_does_not_exist_is_created() {
        for flags in
            [libc::O_CREAT, libc::O_CREAT | libc::O_TRUNC, libc::O_TMPFILE, libc::O_CREAT | libc::O_EXCL | libc::O_PATH]
        {
            assert_eq!(mode_after(true, created(flags | libc::O_RDWR)), Err(REFUSED), "{flags:o}");
        }
    }
}
