//! Paths beneath the container's root: found without leaving it, and made where they are missing.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, chmodat, mkdirat, openat, openat2};
use rustix::io::{Errno, Result};

/// The longest path, with its end.
const MAX_PATH: usize = 4096;

/// What is made where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingTarget {
    Directory,
    File,
}

/// Opens a path beneath `root`; links in it lead nowhere else. Allocates nothing.
pub(super) fn open_beneath(root: impl AsFd, path: &CStr) -> Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// As [`open_beneath`], and makes what is missing: directories on the way, and the kind asked for at its end.
pub(super) fn open_or_create(root: impl AsFd, path: &CStr, kind: MissingTarget) -> Result<OwnedFd> {
    match open_beneath(&root, path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let bytes = path.to_bytes();
    let mut parent = open_beneath(&root, c".")?;
    for end in ends_of_components(bytes) {
        let prefix = Buffer::new(&bytes[..end])?;
        parent = match open_beneath(&root, prefix.as_c_str()) {
            Err(Errno::NOENT) => {
                let start = bytes[..end].iter().rposition(|it| *it == b'/').map_or(0, |it| it + 1);
                let name = Buffer::new(&bytes[start..end])?;
                let kind = if end == bytes.len() { kind } else { MissingTarget::Directory };
                create(&parent, name.as_c_str(), kind)?;
                open_beneath(&root, prefix.as_c_str())?
            }
            found => found?,
        };
    }
    Ok(parent)
}

fn create(parent: &OwnedFd, name: &CStr, kind: MissingTarget) -> Result<()> {
    match kind {
        MissingTarget::Directory => {
            mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
            chmodat(parent, name, Mode::from_raw_mode(0o755), AtFlags::empty())
        }
        MissingTarget::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    }
}

/// Where each component of a path ends.
fn ends_of_components(path: &[u8]) -> impl Iterator<Item = usize> + '_ {
    (1..=path.len()).filter(|end| path[end - 1] != b'/' && path.get(*end).is_none_or(|it| *it == b'/'))
}

/// A C string on the stack.
struct Buffer {
    bytes: [u8; MAX_PATH],
    length: usize,
}

impl Buffer {
    fn new(text: &[u8]) -> Result<Self> {
        if text.len() >= MAX_PATH || text.contains(&0) {
            return Err(Errno::NAMETOOLONG);
        }
        let mut bytes = [0; MAX_PATH];
        bytes[..text.len()].copy_from_slice(text);
        Ok(Self { bytes, length: text.len() })
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.length]).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn open_dir(path: &std::path::Path) -> OwnedFd {
        openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn missing_parts_are_made_and_links_stay_beneath_the_root() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("/real", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
        let root = open_dir(dir.path());
        open_or_create(root.as_fd(), c"/a/b/c", MissingTarget::File).unwrap();
        assert!(dir.path().join("a/b/c").is_file());
        open_or_create(root.as_fd(), c"link//deep/", MissingTarget::Directory).unwrap();
        assert!(dir.path().join("real/deep").is_dir());
        // A link whose target is missing within the root is an error, and nothing is made outside.
        assert!(open_or_create(root.as_fd(), c"out/x", MissingTarget::File).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(open_or_create(root.as_fd(), c"../../x", MissingTarget::File).is_ok());
        assert!(dir.path().join("x").is_file());
    }
}
