//! Resolves a path to a descriptor, beneath the workspace.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, mkdirat, open, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::error::{FsError, OperationResult};
use super::parent::{FinalLink, MAX_DISTURBED, MAX_LINKS, beneath, is_hidden, is_kernels_own, real, reopen};
use crate::os::atomic::is_temporary;
use crate::protocol::workspace::WorkspaceErrorCode;
use crate::protocol::{ErrorCode, RpcError};

/// Directories that a path may lead through, links with it. Each is open for that time.
const MAX_DEPTH: usize = 256;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that all paths begin at.
#[derive(Debug)]
pub(crate) struct Root {
    dir: Arc<OwnedFd>,
    /// Its own path, part by part: what an absolute link begins with that leads inside.
    said: Vec<Vec<u8>>,
}

/// An entry, opened without read or write access.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
}

/// A name in an open directory. There need be nothing.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    pub(crate) dir: Arc<OwnedFd>,
    /// `.` for the workspace itself.
    pub(crate) name: Vec<u8>,
    pub(crate) there: Option<OpenEntry>,
    /// Path from the workspace, without links.
    pub(crate) path: Vec<u8>,
    /// The path that was asked for ends in a link.
    pub(crate) linked: bool,
}

impl Root {
    /// `machine` is the directory that absolute paths are beneath.
    ///
    /// # Errors
    /// [`RpcError`] for what can be no workspace; [`FsError`](super::error::FsError) when it is not there.
    pub(crate) fn open(machine: &Path, root: &str) -> Result<OperationResult<Self>, RpcError> {
        if !root.starts_with('/') || root.len() >= 4096 || root.contains('\0') {
            return Err(RpcError::new(ErrorCode::Invalid, "a workspace is an absolute path"));
        }
        let said: Vec<_> = parts(root.as_bytes()).map(<[u8]>::to_vec).collect();
        if is_hidden(root.as_bytes()) || said.iter().any(|it| it == b"." || it == b"..") {
            return Err(RpcError::new(ErrorCode::Denied, format!("`{root}` is out of reach of file calls")));
        }
        Ok(open_root(machine, root).map(|dir| Self { dir: Arc::new(dir), said }))
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
        // Nearly no path has a link in it, and then the kernel finds it at once.
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let said = if path.is_empty() { "." } else { path };
        if let Ok(fd) = openat2(&self.dir, said, LOOK, Mode::empty(), how) {
            let there = OpenEntry::new(fd)?;
            if !there.is(FileType::Symlink) {
                self.allow(there.fd.as_fd(), path.as_bytes())?;
                return Ok((there, path.as_bytes().to_vec()));
            }
        }
        let place = self.place(path, FinalLink::Target, false)?;
        place.there.map(|there| (there, place.path)).ok_or_else(|| WorkspaceErrorCode::NotFound.into())
    }

    /// The directory and the name that a path leads to.
    pub(crate) fn place(&self, path: &str, end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        check(path)?;
        self.place_of(path.as_bytes(), end, parents)
    }

    /// The same for a path from a directory listing, without the checks of input.
    pub(crate) fn place_of(&self, path: &[u8], end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        let place = Steps::new(self, path).go(end, parents)?;
        self.allow(place.dir.as_fd(), &place.path)?;
        if let Some(there) = &place.there {
            self.allow(there.fd.as_fd(), &place.path)?;
        }
        Ok(place)
    }

    /// Refuses the kernel's own files and the guest's, also beneath a root that contains them.
    fn allow(&self, fd: impl AsFd, path: &[u8]) -> OperationResult<()> {
        if self.said.is_empty() && is_hidden(path) || is_kernels_own(fd)? {
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

    /// A regular file, opened for reading.
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
    /// Looks once more what has that name; whether it is no link by now.
    pub(crate) fn look_again(&mut self) -> OperationResult<bool> {
        self.there = look_at(&self.dir, &self.name)?;
        Ok(!self.there.as_ref().is_some_and(|it| it.is(FileType::Symlink)))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.name == b"."
    }
}

/// A path on its way.
struct Steps<'a> {
    root: &'a Root,
    /// Directories below the root that were entered, by name.
    above: Vec<(Arc<OwnedFd>, Vec<u8>)>,
    /// Remaining path components, in reverse.
    rest: Vec<Vec<u8>>,
    links: usize,
    linked: bool,
}

impl<'a> Steps<'a> {
    fn new(root: &'a Root, path: &[u8]) -> Self {
        let rest = parts(path).map(<[u8]>::to_vec).rev().collect();
        Self { root, above: Vec::new(), rest, links: 0, linked: false }
    }

    fn go(mut self, end: FinalLink, parents: bool) -> OperationResult<ResolvedPath> {
        let mut made = 0;
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
            match look_at(self.here(), &name)? {
                Some(link) if link.is(FileType::Symlink) && (!last || end == FinalLink::Target) => {
                    self.linked |= last;
                    self.follow(&link)?;
                }
                there if last => return Ok(self.ends(name, there)),
                Some(dir) if dir.is(FileType::Directory) => self.enter(dir, name)?,
                Some(_) => return Err(WorkspaceErrorCode::NotDirectory.into()),
                // Directories are created for the caller's path, not for the target of a link.
                None if parents && !self.linked && made < MAX_DISTURBED => {
                    made += 1;
                    match mkdirat(self.here(), name.as_slice(), Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                        Ok(()) | Err(Errno::EXIST) => self.rest.push(name),
                        Err(errno) => return Err(errno.into()),
                    }
                }
                None => return Err(WorkspaceErrorCode::NotFound.into()),
            }
        }
        // The path ended in `.` or `..` of a link, or is empty.
        let name = self.above.pop().map_or_else(|| b".".to_vec(), |it| it.1);
        let there = look_at(self.here(), &name)?;
        Ok(self.ends(name, there))
    }

    fn here(&self) -> &Arc<OwnedFd> {
        self.above.last().map_or(&self.root.dir, |it| &it.0)
    }

    fn enter(&mut self, dir: OpenEntry, name: Vec<u8>) -> OperationResult<()> {
        if self.above.len() >= MAX_DEPTH {
            return Err(FsError::saying(WorkspaceErrorCode::Io, "the path is too deep"));
        }
        self.above.push((Arc::new(dir.fd), name));
        Ok(())
    }

    fn follow(&mut self, link: &OpenEntry) -> OperationResult<()> {
        self.links += 1;
        // Magic links of the kernel lead elsewhere than their text.
        if self.links > MAX_LINKS || is_kernels_own(&link.fd)? {
            return Err(WorkspaceErrorCode::Escape.into());
        }
        let target = readlinkat(&link.fd, "", Vec::new())?.into_bytes();
        let mut to: Vec<&[u8]> = parts(&target).collect();
        if target.starts_with(b"/") {
            to.retain(|it| *it != b".");
            let inside =
                to.len() >= self.root.said.len() && self.root.said.iter().zip(&to).all(|(said, to)| said == to);
            if !inside {
                return Err(WorkspaceErrorCode::Escape.into());
            }
            to.drain(..self.root.said.len());
            self.above.clear();
        }
        if target.ends_with(b"/") {
            to.push(b".");
        }
        self.rest.extend(to.into_iter().rev().map(<[u8]>::to_vec));
        Ok(())
    }

    fn ends(self, name: Vec<u8>, there: Option<OpenEntry>) -> ResolvedPath {
        let names = self.above.iter().map(|it| it.1.as_slice());
        let own = (name != b".").then_some(name.as_slice());
        let path = names.chain(own).collect::<Vec<_>>().join(&b'/');
        let dir = self.here().clone();
        ResolvedPath { dir, name, there, path, linked: self.linked }
    }
}

/// Opens that entry; links are not followed.
pub(crate) fn look_at(dir: impl AsFd, name: &[u8]) -> OperationResult<Option<OpenEntry>> {
    match openat(dir, name, LOOK, Mode::empty()) {
        Ok(fd) => OpenEntry::new(fd).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// A regular file of a walk, opened for reading. `None` if it was replaced: its replacement is neither followed nor
/// waited for.
pub(crate) fn open_found(dir: impl AsFd, name: &[u8]) -> OperationResult<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
    Ok(is_file.then(|| File::from(file)))
}

/// Reads all of a file, unless it has more than that.
pub(crate) fn content(file: &File, most: u64) -> OperationResult<Option<Vec<u8>>> {
    let size = usize::try_from(file.metadata()?.len().min(most)).unwrap_or_default();
    let mut content = Vec::with_capacity(size + 1);
    file.take(most + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= most).then_some(content))
}

/// The target of a link, as it is written.
pub(crate) fn target(there: &OpenEntry) -> Option<String> {
    let target = readlinkat(&there.fd, "", Vec::new()).ok()?;
    Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
}

fn open_root(machine: &Path, root: &str) -> OperationResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = open(machine, flags, Mode::empty())?;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let dir = match openat2(&above, root, flags, Mode::empty(), how) {
        // Where that system call is not available, the root is opened by its path: directories above it are not the
        // session's to change.
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
    let odd = |it: &str| it.is_empty() || it == "." || it == ".." || it.contains('\0');
    if path.is_empty() || (path.len() < 4096 && !path.split('/').any(odd)) {
        return Ok(());
    }
    Err(FsError::saying(WorkspaceErrorCode::Escape, "a path is parts joined by `/`, none of them `.` or `..`"))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|it| *it == b'/').filter(|it| !it.is_empty())
}
