//! Opens paths below the container's root without leaving it, and creates missing ones.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, chmodat, mkdirat, openat, openat2, readlinkat_raw};
use rustix::io::{Errno, Result};

/// Maximum length of a path, with its terminator.
const MAX_PATH: usize = 4096;

/// Maximum number of links to follow in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// What to create if a path is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingTarget {
    Directory,
    File,
}

/// Opens a path below `root`, out of which no link leads. Allocates nothing.
pub(super) fn open_beneath(root: impl AsFd, path: &CStr) -> Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// The same, but creates what is missing: parent directories, and the requested kind. If a link's target is missing, as that
/// of `/etc/resolv.conf` in many images, creates the target.
pub(super) fn open_or_create(root: impl AsFd, path: &CStr, kind: MissingTarget) -> Result<OwnedFd> {
    let mut path = Buffer::new(path.to_bytes())?;
    for _ in 0..MAX_LINKS {
        match open_or_create_once(&root, &path, kind)? {
            Target::Open(opened) => return Ok(opened),
            Target::Elsewhere(other) => path = other,
        }
    }
    Err(Errno::LOOP)
}

/// What a path leads to.
#[expect(clippy::large_enum_variant, reason = "nothing allocates here, so there is no box")]
enum Target {
    Open(OwnedFd),
    /// A link in it has no target; this is the path with the link replaced by its target.
    Elsewhere(Buffer),
}

fn open_or_create_once(root: impl AsFd, path: &Buffer, kind: MissingTarget) -> Result<Target> {
    match open_beneath(&root, path.as_c_str()) {
        Err(Errno::NOENT) => {}
        found => return found.map(Target::Open),
    }
    let bytes = path.as_bytes();
    let mut parent = open_beneath(&root, c".")?;
    for end in ends_of_components(bytes) {
        let prefix = Buffer::new(&bytes[..end])?;
        parent = match open_beneath(&root, prefix.as_c_str()) {
            Err(Errno::NOENT) => {
                let start = bytes[..end].iter().rposition(|it| *it == b'/').map_or(0, |it| it + 1);
                let name = Buffer::new(&bytes[start..end])?;
                let kind = if end == bytes.len() { kind } else { MissingTarget::Directory };
                match create(&parent, name.as_c_str(), kind) {
                    Err(Errno::EXIST) => return path.with_link(&parent, start..end).map(Target::Elsewhere),
                    done => done?,
                }
                open_beneath(&root, prefix.as_c_str())?
            }
            found => found?,
        };
    }
    Ok(Target::Open(parent))
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

/// Returns the end of each component of a path.
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

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns this path with the link at one of its components replaced by its target.
    fn with_link(&self, parent: &OwnedFd, component: Range<usize>) -> Result<Self> {
        let path = self.as_bytes();
        let name = Self::new(&path[component.clone()])?;
        let mut link = [0; MAX_PATH];
        let length = readlinkat_raw(parent, name.as_c_str(), &mut link)?;
        let link = &link[..length];
        let before = if link.starts_with(b"/") { &[][..] } else { &path[..component.start] };
        let mut joined = Self { bytes: [0; MAX_PATH], length: 0 };
        for part in [before, link, &path[component.end..]] {
            let end = joined.length + part.len();
            if end >= MAX_PATH {
                return Err(Errno::NAMETOOLONG);
            }
            joined.bytes[joined.length..end].copy_from_slice(part);
            joined.length = end;
        }
        Ok(joined)
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
        // A link's missing target is created within the root, and nothing outside.
        open_or_create(root.as_fd(), c"out/x", MissingTarget::File).unwrap();
        let inside = dir.path().join(outside.path().strip_prefix("/").unwrap());
        assert!(inside.join("x").is_file());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(open_or_create(root.as_fd(), c"../../x", MissingTarget::File).is_ok());
        assert!(dir.path().join("x").is_file());
    }

    /// Creates a file at a path that begins with a link, and checks where it is created.
    fn check_link(link: &str, leads_to: &str, path: &CStr, made: &str) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        std::os::unix::fs::symlink(leads_to, dir.path().join(link)).unwrap();
        let opened = open_or_create(open_dir(dir.path()).as_fd(), path, MissingTarget::File).unwrap();
        let (opened, at) = (rustix::fs::fstat(opened).unwrap(), rustix::fs::stat(dir.path().join(made)).unwrap());
        assert_eq!((opened.st_dev, opened.st_ino), (at.st_dev, at.st_ino), "{link} -> {leads_to}");
        assert!(dir.path().join(made).is_file());
    }

    #[test]
    fn what_a_dangling_link_leads_to_is_made() {
        check_link("etc/resolv.conf", "../run/systemd/stub.conf", c"/etc/resolv.conf", "run/systemd/stub.conf");
        check_link("etc/resolv.conf", "/run/none", c"etc/resolv.conf", "run/none");
        check_link("etc/resolv.conf", "none", c"/etc/resolv.conf", "etc/none");
        check_link("etc/resolv.conf", "../../../../run/none", c"/etc/resolv.conf", "run/none");
        check_link("srv", "data/files/", c"/srv/a/b", "data/files/a/b");
    }

    #[test]
    fn links_that_lead_to_each_other_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
        let made = open_or_create(open_dir(dir.path()).as_fd(), c"/a", MissingTarget::File);
        assert_eq!(made.unwrap_err(), Errno::LOOP);
    }
}
