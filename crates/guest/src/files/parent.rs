//! Resolves a path to a descriptor, beneath the root and outside hidden directories.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, fstat, fstatfs, mkdirat, open, openat, openat2, readlinkat,
};
use rustix::io::{self, Errno};
use rustix::process::geteuid;

use super::requested_path::RequestedPath;
use crate::protocol::{FileRef, RpcError};

/// Hidden directories, by the first part of a path beneath the root.
const HIDDEN: &[&[u8]] = &[b"proc", b"sys", b".coracle"];

/// Magic number of sysfs.
const SYSFS: u64 = 0x6265_6572;

/// Links that may be followed in one path; the kernel's limit.
pub(super) const MAX_LINKS: usize = 40;

/// Retries after a concurrent rename, creation or removal.
pub(crate) const MAX_DISTURBED: usize = 1000;

/// Whether the last part of a path is followed if it is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalLink {
    /// The link itself.
    Itself,
    /// The target of the link.
    Target,
}

impl FinalLink {
    pub(super) fn from_file_ref(at: &FileRef) -> Self {
        if at.follow { Self::Target } else { Self::Itself }
    }
}

/// A name in an open directory. The entry need not exist.
#[derive(Debug)]
pub(super) struct ParentAndName {
    pub(super) dir: OwnedFd,
    pub(super) name: Vec<u8>,
}

/// The directory where all paths start, including absolute links inside.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

impl Root {
    pub(super) fn open(root: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(open(root, flags, Mode::empty())?))
    }

    /// Opens the entry at a path, without access to its content.
    pub(super) fn find(&self, requested: &RequestedPath, find: FinalLink) -> Result<OwnedFd, RpcError> {
        let flags = if find == FinalLink::Itself { OFlags::NOFOLLOW } else { OFlags::empty() };
        let found = self.resolve(requested.path().as_bytes(), flags).map_err(|it| requested.error(it))?;
        self.inside(requested, found.as_fd())?;
        Ok(found)
    }

    /// Opens an entry of a directory; links are not followed.
    pub(super) fn find_in(&self, requested: &RequestedPath, location: &ParentAndName) -> Result<OwnedFd, RpcError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&location.dir, &location.name, flags, Mode::empty()).map_err(|it| requested.error(it))?;
        self.inside(requested, found.as_fd())?;
        Ok(found)
    }

    /// Resolves a path to its directory and name.
    ///
    /// Links in the last part are followed here: the kernel would open the target without reporting its directory.
    pub(super) fn locate(
        &self,
        requested: &RequestedPath,
        find: FinalLink,
        parents: bool,
    ) -> Result<ParentAndName, RpcError> {
        let mut path = requested.path().as_bytes().to_vec();
        for step in 0..=MAX_LINKS {
            let (parent, name) = split(&path).ok_or_else(|| requested.wrong_kind("is a directory"))?;
            let dir =
                if parents && step == 0 { self.make_dirs(requested, parent)? } else { self.dir(requested, parent)? };
            let inside = self.beneath(requested, dir.as_fd(), name)?;
            match (find, read_link(dir.as_fd(), name).map_err(|it| requested.error(it))?) {
                (FinalLink::Target, Some(target)) if target.starts_with(b"/") => path = target,
                (FinalLink::Target, Some(target)) => path = join(&inside, &target),
                _ => return Ok(ParentAndName { dir, name: name.to_vec() }),
            }
        }
        Err(requested.error(Errno::LOOP))
    }

    /// Returns the last part of a path as a name in a directory, if access to it is allowed.
    pub(super) fn sibling(&self, requested: &RequestedPath, dir: BorrowedFd<'_>) -> Result<Vec<u8>, RpcError> {
        let name = requested.name().as_bytes();
        self.beneath(requested, dir, name).map(|_| name.to_vec())
    }

    fn dir(&self, requested: &RequestedPath, path: &[u8]) -> Result<OwnedFd, RpcError> {
        self.resolve(path, OFlags::DIRECTORY).map_err(|it| requested.error(it))
    }

    /// Opens a directory, and creates it and its missing parents.
    fn make_dirs(&self, requested: &RequestedPath, path: &[u8]) -> Result<OwnedFd, RpcError> {
        let (mut existing, mut missing) = (path, Vec::new());
        let mut dir = loop {
            match (self.resolve(existing, OFlags::DIRECTORY), last(existing)) {
                (Err(Errno::NOENT), Some((above, name))) => {
                    missing.push((existing, name));
                    existing = above;
                }
                (found, _) => break found.map_err(|it| requested.error(it))?,
            }
        };
        for (path, name) in missing.into_iter().rev() {
            self.beneath(requested, dir.as_fd(), name)?;
            match mkdirat(&dir, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => dir = self.dir(requested, path)?,
                Err(errno) => return Err(requested.error(errno)),
            }
        }
        Ok(dir)
    }

    /// Opens the entry at a path. Magic links are refused.
    fn resolve(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let options = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // The kernel fails on `..` if any file on the machine is renamed concurrently.
        for _ in 0..MAX_DISTURBED {
            match openat2(&self.0, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), options) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Returns the path of an open file from the root, if access to it is allowed.
    ///
    /// The kernel reports the location of the opened file, so neither links nor swapped names matter.
    pub(super) fn inside(&self, requested: &RequestedPath, fd: BorrowedFd<'_>) -> Result<Vec<u8>, RpcError> {
        let error = |it| requested.error(it);
        let (root, path) = (real(self.0.as_fd()).map_err(error)?, real(fd).map_err(error)?);
        let hidden = || requested.denied("is not accessible to file calls");
        if is_kernels_own(fd).map_err(error)? {
            return Err(hidden());
        }
        let inside = beneath(&root, &path).ok_or_else(hidden)?;
        if is_hidden(&inside) { Err(hidden()) } else { Ok(inside) }
    }

    /// Returns the path of an open directory, if access to that name in it is allowed.
    fn beneath(&self, requested: &RequestedPath, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, RpcError> {
        let inside = self.inside(requested, dir)?;
        if is_hidden(&join(&inside, name)) {
            return Err(requested.denied("is not accessible to file calls"));
        }
        Ok(inside)
    }
}

/// Reopens an open file for reading or writing.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    open(own(fd.as_fd()), flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a subdirectory of an open directory, without following links and only on the same mount.
pub(crate) fn enter(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    open_in(above, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// As [`enter`], for any kind of entry.
pub(super) fn open_in(above: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let options = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(above, name, flags, Mode::empty(), options) {
        // Old kernels do not support the call, and some seccomp filters refuse it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let opened = openat(above, name, flags, Mode::empty())?;
            if mount(above)? == mount(opened.as_fd())? { Ok(opened) } else { Err(Errno::XDEV) }
        }
        opened => opened,
    }
}

/// Identifies the mount that an open file is on.
fn mount(fd: BorrowedFd<'_>) -> io::Result<(u64, String)> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let info = info.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::IO))?;
    let id = info.lines().find(|it| it.starts_with("mnt_id:")).unwrap_or_default().to_owned();
    Ok((fstat(fd)?.st_dev, id))
}

/// Whether the file is on procfs or sysfs, independent of its path.
pub(super) fn is_kernels_own(fd: impl AsFd) -> io::Result<bool> {
    let magic = u64::try_from(fstatfs(fd)?.f_type).unwrap_or_default();
    Ok(magic == PROC_SUPER_MAGIC as u64 || magic == SYSFS)
}

fn own(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The path of an open file.
pub(crate) fn real(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    Ok(readlinkat(CWD, own(fd), Vec::new())?.into_bytes())
}

/// The target of a link; `None` for any other entry, and for a missing one.
fn read_link(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let link = match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let (stat, above) = (fstat(&link)?, fstat(dir)?);
    match readlinkat(&link, "", Vec::new()) {
        Ok(_) if !trusted(&stat, &above) => Err(Errno::ACCESS),
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None), // the kernel's error for an open file that is not a link
        Err(errno) => Err(errno),
    }
}

/// The kernel's `protected_symlinks` rule for links in `/tmp` and similar directories, which the kernel does not apply to
/// links that this code follows.
fn trusted(link: &Stat, dir: &Stat) -> bool {
    let shared = dir.st_mode & 0o1002 == 0o1002;
    !shared || link.st_uid == geteuid().as_raw() || link.st_uid == dir.st_uid
}

/// Splits a path into directory and last part; `None` if the last part is not a name, and therefore a directory.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    last(path).filter(|(_, name)| *name != b"." && *name != b"..")
}

/// Splits the last part from a path.
fn last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|it| *it != b'/')? + 1;
    let begin = path[..end].iter().rposition(|it| *it == b'/').map_or(0, |it| it + 1);
    Some((&path[..begin], &path[begin..end]))
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

/// The path relative to the root, both given as real paths.
pub(crate) fn beneath(root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let rest = path.strip_prefix(root)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| rest.to_vec())
}

pub(crate) fn is_hidden(path: &[u8]) -> bool {
    let first = path.split(|it| *it == b'/').find(|it| !it.is_empty());
    first.is_some_and(|it| HIDDEN.contains(&it))
}
