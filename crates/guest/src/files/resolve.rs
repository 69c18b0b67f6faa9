//! Resolves a path to a descriptor, beneath the workspace.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, open, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::error::{FsError, OperationResult};
use super::parent::{FinalLink, MAX_DISTURBED, MAX_LINKS, beneath, is_hidden, is_kernels_own, real, reopen};
use crate::atomic::is_temporary;
use crate::protocol::workspace::WorkspaceErrorCode;
use crate::protocol::{ErrorCode, RpcError};

/// Directories that one path may pass through, including its links. Each is open until the path is resolved.
const MAX_DEPTH: usize = 256;

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The workspace directory, where all paths start.
#[derive(Debug)]
pub(crate) struct Root {
    dir: Arc<OwnedFd>,
    /// The parts of its own path: an absolute link that starts with them points inside.
    parts: Vec<Vec<u8>>,
}

/// An entry, opened without read or write access.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
}

/// A name in an open directory. The entry need not exist.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    pub(crate) dir: Arc<OwnedFd>,
    /// `.` for the workspace itself.
    pub(crate) name: Vec<u8>,
    pub(crate) entry: Option<OpenEntry>,
    /// Path from the workspace, without links.
    pub(crate) path: Vec<u8>,
    /// Whether the requested path ends in a link.
    pub(crate) linked: bool,
}

impl Root {
    /// `machine` is the directory beneath which absolute paths are resolved.
    ///
    /// # Errors
    /// [`RpcError`] for an invalid path; [`FsError`](super::error::FsError) if the directory does not exist.
    pub(crate) fn open(machine: &Path, root: &str) -> Result<OperationResult<Self>, RpcError> {
        if !root.starts_with('/') || root.len() >= 4096 || root.contains('\0') {
            return Err(RpcError::new(ErrorCode::Invalid, "the workspace must be an absolute path"));
        }
        let root_parts: Vec<_> = parts(root.as_bytes()).map(<[u8]>::to_vec).collect();
        if is_hidden(root.as_bytes()) || root_parts.iter().any(|part| part == b"." || part == b"..") {
            return Err(RpcError::new(ErrorCode::Denied, format!("`{root}` is not accessible to file calls")));
        }
        Ok(open_root(machine, root).map(|dir| Self { dir: Arc::new(dir), parts: root_parts }))
    }

    pub(crate) fn dir(&self) -> &Arc<OwnedFd> {
        &self.dir
    }

    /// Opens a path, and returns its location without links.
    pub(crate) fn open_path(&self, path: &str) -> OperationResult<(OpenEntry, Vec<u8>)> {
        check(path)?;
        if path.split('/').any(|it| is_temporary(it.as_bytes())) {
            return Err(WorkspaceErrorCode::NotFound.into());
        }
        // Most paths contain no link, so one system call resolves them.
        let options = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let lookup = if path.is_empty() { "." } else { path };
        if let Ok(fd) = openat2(&self.dir, lookup, PATH_FLAGS, Mode::empty(), options) {
            let found = OpenEntry::new(fd)?;
            if !found.is(FileType::Symlink) {
                self.allow(found.fd.as_fd(), path.as_bytes())?;
                return Ok((found, path.as_bytes().to_vec()));
            }
        }
        let resolved = self.resolve(path, FinalLink::Target, false)?;
        resolved.entry.map(|found| (found, resolved.path)).ok_or_else(|| WorkspaceErrorCode::NotFound.into())
    }

    /// Resolves a path to its directory and name.
    pub(crate) fn resolve(&self, path: &str, end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        check(path)?;
        self.resolve_listed(path.as_bytes(), end, parents)
    }

    /// As [`resolve`](Self::resolve), for a path from a listing, without the checks of input.
    pub(crate) fn resolve_listed(&self, path: &[u8], end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        let resolved = PathResolver::new(self, path).run(end, parents)?;
        self.allow(resolved.dir.as_fd(), &resolved.path)?;
        if let Some(found) = &resolved.entry {
            self.allow(found.fd.as_fd(), &resolved.path)?;
        }
        Ok(resolved)
    }

    /// Refuses files of procfs, sysfs and the guest, also beneath a root that contains them.
    fn allow(&self, fd: impl AsFd, path: &[u8]) -> OperationResult<()> {
        if self.parts.is_empty() && is_hidden(path) || is_kernels_own(fd)? {
            return Err(WorkspaceErrorCode::Escape.into());
        }
        Ok(())
    }
}

impl OpenEntry {
    fn new(fd: OwnedFd) -> OperationResult<Self> {
        Ok(Self { stat: fstat(&fd)?, fd })
    }

    pub(crate) fn is(&self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == kind
    }

    pub(crate) fn expect_file(&self) -> OperationResult<()> {
        match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::RegularFile => Ok(()),
            FileType::Directory => Err(WorkspaceErrorCode::IsDirectory.into()),
            _ => Err(WorkspaceErrorCode::NotRegular.into()),
        }
    }

    pub(crate) fn expect_dir(&self) -> OperationResult<()> {
        if self.is(FileType::Directory) { Ok(()) } else { Err(WorkspaceErrorCode::NotDirectory.into()) }
    }

    /// Opens a regular file for reading.
    pub(crate) fn read(&self) -> OperationResult<File> {
        self.expect_file()?;
        // A lease held by a process inside must not block the guest: hence `NONBLOCK`, which regular files otherwise
        // ignore.
        Ok(File::from(reopen(&self.fd, OFlags::RDONLY | OFlags::NONBLOCK)?))
    }

    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or_default()
    }
}

impl ResolvedPath {
    /// Opens the entry again, and returns whether it is not a link now.
    pub(crate) fn refresh(&mut self) -> OperationResult<bool> {
        self.entry = open_entry(&self.dir, &self.name)?;
        Ok(!self.entry.as_ref().is_some_and(|it| it.is(FileType::Symlink)))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.name == b"."
    }
}

/// A path that is being resolved.
struct PathResolver<'a> {
    root: &'a Root,
    /// Directories below the root that were entered, with their names.
    above: Vec<(Arc<OwnedFd>, Vec<u8>)>,
    /// Remaining path components, in reverse.
    rest: Vec<Vec<u8>>,
    links: usize,
    linked: bool,
}

impl<'a> PathResolver<'a> {
    fn new(root: &'a Root, path: &[u8]) -> Self {
        let rest = parts(path).map(<[u8]>::to_vec).rev().collect();
        Self { root, above: Vec::new(), rest, links: 0, linked: false }
    }

    fn run(mut self, end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        let mut created = 0;
        while let Some(name) = self.rest.pop() {
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    self.above.pop().ok_or(WorkspaceErrorCode::Escape)?;
                    continue;
                }
                name if is_temporary(name) => return Err(WorkspaceErrorCode::NotFound.into()),
                _ => {}
            }
            let last = self.rest.is_empty();
            match open_entry(self.current_dir(), &name)? {
                Some(link) if link.is(FileType::Symlink) && (!last || end == FinalLink::Target) => {
                    self.linked |= last;
                    self.follow(&link)?;
                }
                found if last => return Ok(self.finish(name, found)),
                Some(dir) if dir.is(FileType::Directory) => self.enter(dir, name)?,
                Some(_) => return Err(WorkspaceErrorCode::NotDirectory.into()),
                // Directories are created for the caller's path, not for the target of a link.
                None if parents && !self.linked && created < MAX_DISTURBED => {
                    created += 1;
                    match mkdirat(self.current_dir(), name.as_slice(), Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                        Ok(()) | Err(Errno::EXIST) => self.rest.push(name),
                        Err(errno) => return Err(errno.into()),
                    }
                }
                None => return Err(WorkspaceErrorCode::NotFound.into()),
            }
        }
        // The path ended in `.` or `..` of a link, or is empty.
        let name = self.above.pop().map_or_else(|| b".".to_vec(), |it| it.1);
        let found = open_entry(self.current_dir(), &name)?;
        Ok(self.finish(name, found))
    }

    fn current_dir(&self) -> &Arc<OwnedFd> {
        self.above.last().map_or(&self.root.dir, |it| &it.0)
    }

    fn enter(&mut self, dir: OpenEntry, name: Vec<u8>) -> OperationResult<()> {
        if self.above.len() >= MAX_DEPTH {
            return Err(FsError::with_detail(WorkspaceErrorCode::Io, "the path is too deep"));
        }
        self.above.push((Arc::new(dir.fd), name));
        Ok(())
    }

    fn follow(&mut self, link: &OpenEntry) -> OperationResult<()> {
        self.links += 1;
        // Magic links of the kernel do not refer to their text.
        if self.links > MAX_LINKS || is_kernels_own(&link.fd)? {
            return Err(WorkspaceErrorCode::Escape.into());
        }
        let target = readlinkat(&link.fd, "", Vec::new())?.into_bytes();
        let mut to: Vec<&[u8]> = parts(&target).collect();
        if target.starts_with(b"/") {
            to.retain(|it| *it != b".");
            let root_parts = &self.root.parts;
            let inside = to.len() >= root_parts.len() && root_parts.iter().zip(&to).all(|(part, to)| part == to);
            if !inside {
                return Err(WorkspaceErrorCode::Escape.into());
            }
            to.drain(..self.root.parts.len());
            self.above.clear();
        }
        if target.ends_with(b"/") {
            to.push(b".");
        }
        self.rest.extend(to.into_iter().rev().map(<[u8]>::to_vec));
        Ok(())
    }

    fn finish(self, name: Vec<u8>, found: Option<OpenEntry>) -> ResolvedPath {
        let names = self.above.iter().map(|it| it.1.as_slice());
        let own = (name != b".").then_some(name.as_slice());
        let path = names.chain(own).collect::<Vec<_>>().join(&b'/');
        let dir = self.current_dir().clone();
        ResolvedPath { dir, name, entry: found, path, linked: self.linked }
    }
}

/// Opens an entry of a directory; links are not followed.
pub(crate) fn open_entry(dir: impl AsFd, name: &[u8]) -> OperationResult<Option<OpenEntry>> {
    match openat(dir, name, PATH_FLAGS, Mode::empty()) {
        Ok(fd) => OpenEntry::new(fd).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a regular file of a walk for reading. Returns `None` if another kind of file replaced it; that is neither
/// followed nor waited for.
pub(crate) fn open_found(dir: impl AsFd, name: &[u8]) -> OperationResult<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
    Ok(is_file.then(|| File::from(file)))
}

/// Reads a whole file; `None` if it is longer than `most` bytes.
pub(crate) fn content(file: &File, most: u64) -> OperationResult<Option<Vec<u8>>> {
    let size = usize::try_from(file.metadata()?.len().min(most)).unwrap_or_default();
    let mut content = Vec::with_capacity(size + 1);
    file.take(most + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= most).then_some(content))
}

/// The target of a link, unresolved.
pub(crate) fn target(found: &OpenEntry) -> Option<String> {
    let target = readlinkat(&found.fd, "", Vec::new()).ok()?;
    Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
}

fn open_root(machine: &Path, root: &str) -> OperationResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = open(machine, flags, Mode::empty())?;
    let options = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let dir = match openat2(&above, root, flags, Mode::empty(), options) {
        // Without that system call the root is opened by its path: the session cannot change the directories above it.
        Err(Errno::NOSYS | Errno::PERM) => open(machine.join(&root[1..]), flags | OFlags::NOFOLLOW, Mode::empty())?,
        opened => opened?,
    };
    let real = beneath(&real(above.as_fd())?, &real(dir.as_fd())?);
    if real.is_none_or(|it| is_hidden(&it)) || is_kernels_own(&dir)? {
        return Err(WorkspaceErrorCode::Escape.into());
    }
    Ok(dir)
}

/// Checks the parts of a caller's path.
fn check(path: &str) -> OperationResult<()> {
    let is_invalid = |it: &str| it.is_empty() || it == "." || it == ".." || it.contains('\0');
    if path.is_empty() || (path.len() < 4096 && !path.split('/').any(is_invalid)) {
        return Ok(());
    }
    Err(FsError::with_detail(
        WorkspaceErrorCode::Escape,
        "a path consists of parts joined by `/`, and none may be `.` or `..`",
    ))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|it| *it == b'/').filter(|it| !it.is_empty())
}
