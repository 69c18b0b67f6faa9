//! Opens paths beneath a root directory. Links are followed, but cannot leave the root.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, Result};

/// A concurrent rename anywhere on the machine can disturb the resolution of `..`; the kernel then returns `EAGAIN`.
const ATTEMPTS: usize = 64;

/// Opens an absolute path as if `root` were `/`. Allocates nothing, so a forked child may call it.
///
/// # Errors
/// Fails if the kernel refuses the call.
pub(crate) fn open(root: BorrowedFd<'_>, path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        match openat2(root, path, flags, mode, within) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return openat(root, relative(path), flags, mode),
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

fn relative(path: &CStr) -> &CStr {
    let slashes = path.to_bytes().iter().take_while(|it| **it == b'/').count();
    let rest = CStr::from_bytes_with_nul(&path.to_bytes_with_nul()[slashes..]).expect("the end of a string");
    if rest.is_empty() { c"." } else { rest }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_cannot_leave_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/inside"), "").unwrap();
        symlink("/etc", root.path().join("absolute")).unwrap();
        symlink("../../../../../etc", root.path().join("upwards")).unwrap();
        let fd = std::fs::File::open(root.path()).unwrap();
        for (path, exists) in [
            ("/absolute/inside", true),
            ("/upwards/inside", true),
            ("/absolute/passwd", false),
            ("/../etc/passwd", false),
            ("/", true),
        ] {
            let path = CString::new(path).unwrap();
            let opened = open(fd.as_fd(), &path, OFlags::PATH, Mode::empty());
            assert_eq!(opened.is_ok(), exists, "{path:?}: {opened:?}");
        }
    }

    #[test]
    fn the_path_for_old_kernels_is_relative() {
        for (path, expected) in [(c"/", c"."), (c"//etc/x", c"etc/x"), (c"/etc", c"etc")] {
            assert_eq!(relative(path), expected);
        }
    }
}
