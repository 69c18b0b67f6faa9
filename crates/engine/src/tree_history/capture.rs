//! Copies the entries that have changed since the index was written.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, Stat, fstat, mkdirat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Index, IndexEntry, TreePath};
use crate::store::{is_dir, names, open_beneath};
use crate::tree_copy::{
    CopyPass, EntryAt, FileCopy, Fingerprint, copy_attributes, has_same_attributes, has_same_content,
};

/// How often an entry is looked at again that a program replaces meanwhile.
const REPLACED_RETRIES: usize = 10;

/// Maximum length of a path: the kernel takes no longer one.
const MAX_PATH: usize = 4095;

/// How long a write may take whose file is copied while it goes on.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// Limits of a tree, which is in memory as a whole.
const MAX_ENTRIES: usize = 1_000_000;
const MAX_PATH_BYTES: usize = 256 << 20;

/// What to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureRequest<'a> {
    pub(crate) upper: &'a Path,
    pub(crate) objects: &'a Path,
    /// Absolute paths inside, which are omitted with everything below them.
    pub(crate) left_out: &'a [&'a str],
    /// Paths whose content may have changed without another change time.
    pub(crate) mapped: &'a BTreeSet<TreePath>,
    /// Maximum number of bytes to copy where files cannot share content.
    pub(crate) max_copied: Option<u64>,
}

/// The result of a pass.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Captured {
    /// The new index. It has the current checkpoint of the old one.
    Index(Index),
    TooLarge,
}

/// Copies what `known` does not have. `Index::next_object` of the result is greater than that of all objects.
pub(crate) fn capture(request: &CaptureRequest<'_>, pass: CopyPass, known: &Index) -> io::Result<Captured> {
    let mut capture = Capture::new(request, pass, known)?;
    while let Some(path) = capture.pending.pop() {
        let done = capture.directory(&path);
        capture.forgive(done)?;
        if capture.is_too_large() {
            return Ok(Captured::TooLarge);
        }
        if capture.entries.len() > MAX_ENTRIES || capture.path_bytes > MAX_PATH_BYTES {
            let why = format!("more than {MAX_ENTRIES} files, or paths of more than {} MiB", MAX_PATH_BYTES >> 20);
            return Err(io::Error::other(why));
        }
    }
    let Capture { mut entries, next_object, .. } = capture;
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let (current, last, past_bytes) = (known.current, known.last, known.past_bytes);
    Ok(Captured::Index(Index { current, last, next_object, past_bytes, entries }))
}

struct Capture<'a> {
    request: &'a CaptureRequest<'a>,
    pass: CopyPass,
    known: HashMap<&'a [u8], &'a IndexEntry>,
    /// A renamed entry has the inode and, in a renamed directory, also the change time that it had.
    known_inodes: HashMap<Fingerprint, &'a IndexEntry>,
    upper: OwnedFd,
    objects: OwnedFd,
    files: FileCopy,
    began: Duration,
    next_object: u64,
    /// The objects of files with several names.
    linked: HashMap<u64, u64>,
    /// The file that has each object: two files are never one object, which a restore would make one file.
    inodes: HashMap<u64, u64>,
    entries: Vec<IndexEntry>,
    path_bytes: usize,
    pending: Vec<TreePath>,
}

impl<'a> Capture<'a> {
    fn new(request: &'a CaptureRequest<'a>, pass: CopyPass, known: &'a Index) -> io::Result<Self> {
        let objects: OwnedFd = File::open(request.objects)?.into();
        let settled = known.entries.iter().filter(|it| it.settled);
        Ok(Self {
            request,
            pass,
            known: known.entries.iter().map(|it| (it.path.as_slice(), it)).collect(),
            known_inodes: settled.map(|it| (it.fingerprint, it)).collect(),
            upper: File::open(request.upper)?.into(),
            files: FileCopy::new(&objects)?,
            objects,
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            next_object: known.next_object,
            linked: HashMap::new(),
            inodes: HashMap::new(),
            entries: Vec::new(),
            path_bytes: 0,
            pending: vec![Vec::new()],
        })
    }

    fn is_too_large(&self) -> bool {
        self.request.max_copied.is_some_and(|max| self.files.copied() > max)
    }

    /// Ignores errors that are due to entries that were removed or replaced during the pass.
    fn forgive(&self, done: io::Result<()>) -> io::Result<()> {
        match (self.pass, done) {
            (CopyPass::Running, Err(err)) if err.kind() == io::ErrorKind::StorageFull => Err(err),
            (CopyPass::Running, _) => Ok(()),
            // It was removed, or something else has its name now.
            (CopyPass::Unfrozen, Err(err)) if is_replaced(&err) => Ok(()),
            (_, done) => done,
        }
    }

    fn directory(&mut self, path: &[u8]) -> io::Result<()> {
        let opened = open_beneath(self.upper.as_fd(), if path.is_empty() { b"." } else { path });
        let dir = match opened {
            // As it is, so that `forgive` knows it.
            Err(err) if self.pass != CopyPass::Still && is_replaced(&err) => return Err(err),
            opened => opened.map_err(|err| at_path(path, &err))?,
        };
        self.directory_itself(&dir, path)?;
        for name in names(&dir)? {
            let path = joined(path, name.to_bytes());
            if self.request.left_out.iter().any(|it| it.as_bytes().strip_prefix(b"/") == Some(path.as_slice())) {
                continue;
            }
            let mut done = self.entry(&dir, &name, path.clone());
            // Programs often write a new file and rename it.
            for _ in 0..REPLACED_RETRIES {
                if self.pass == CopyPass::Still || !done.as_ref().is_err_and(is_replaced) {
                    break;
                }
                done = self.entry(&dir, &name, path.clone());
            }
            self.forgive(done).map_err(|err| at_path(&path, &err))?;
            if self.is_too_large() {
                break;
            }
        }
        Ok(())
    }

    fn directory_itself(&mut self, dir: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let stat = fstat(dir)?;
        let known = self.known.get(path).copied();
        let object = match known {
            Some(known) if is_current(known, &stat) => known.object,
            Some(known) if self.is_same_directory(dir, known.object)? => known.object,
            _ => {
                let (object, name) = self.new_object();
                mkdirat(&self.objects, &name, Mode::from_raw_mode(0o700))?;
                let copy = open_beneath(self.objects.as_fd(), name.to_bytes())?;
                copy_attributes(dir.as_fd(), copy.as_fd(), &stat)?;
                object
            }
        };
        self.add(path.to_vec(), object, &stat);
        Ok(())
    }

    fn is_same_directory(&self, dir: &OwnedFd, object: u64) -> io::Result<bool> {
        let stat = statat(&self.objects, object_name(object), AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_dir(stat.st_mode) {
            return Ok(false);
        }
        let object = open_beneath(self.objects.as_fd(), object_name(object).to_bytes())?;
        has_same_attributes(dir.as_fd(), object.as_fd())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CStr, path: TreePath) -> io::Result<()> {
        if path.len() >= MAX_PATH {
            // The way back would need it in one piece.
            return Err(Errno::NAMETOOLONG.into());
        }
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.pending.push(path);
                return Ok(());
            }
            FileType::Socket => return Ok(()),
            _ => {}
        }
        // All whiteouts of a mount are one file.
        let is_linked = stat.st_nlink > 1 && !is_whiteout(&stat);
        let linked = self.linked.get(&stat.st_ino).copied().filter(|_| is_linked);
        let object = match linked {
            Some(object) => object,
            None => match self.unchanged(dir, name, &path, &stat)? {
                Some(object) if self.inodes.get(&object).is_none_or(|it| *it == stat.st_ino) => object,
                _ => {
                    let (object, copy) = self.new_object();
                    let to = EntryAt { dir: self.objects.as_fd(), name: &copy };
                    self.files.copy(EntryAt { dir: dir.as_fd(), name }, to, &stat)?;
                    object
                }
            },
        };
        self.inodes.insert(object, stat.st_ino);
        if is_linked {
            self.linked.insert(stat.st_ino, object);
        }
        self.add(path, object, &stat);
        Ok(())
    }

    /// The object of an entry that has not changed.
    fn unchanged(&self, dir: &OwnedFd, name: &CStr, path: &[u8], stat: &Stat) -> io::Result<Option<u64>> {
        let fingerprint = Fingerprint::new(stat);
        let is_whiteout = is_whiteout(stat);
        let known = self.known.get(path).copied().filter(|it| it.fingerprint == fingerprint || is_whiteout);
        let is_mapped = self.may_be_mapped(path, stat) || is_whiteout;
        let known = known.or_else(|| self.known_inodes.get(&fingerprint).copied());
        match known.or_else(|| self.known.get(path).copied()) {
            Some(known) if known.settled && known.fingerprint == fingerprint && !is_mapped => Ok(Some(known.object)),
            // Another file with the same content, too: the files of a copy of this container, for example.
            Some(known) => {
                let object_name = object_name(known.object);
                let object = EntryAt { dir: self.objects.as_fd(), name: &object_name };
                let is_same = has_same_content(EntryAt { dir: dir.as_fd(), name }, object)?;
                Ok(is_same.then_some(known.object))
            }
            None => Ok(None),
        }
    }

    /// Whether a program may write to a file without another change time. Of several names, any may be the mapped one.
    fn may_be_mapped(&self, path: &[u8], stat: &Stat) -> bool {
        let mapped = self.request.mapped;
        let is_linked = stat.st_nlink > 1 && !is_dir(stat.st_mode);
        mapped.contains(path) || (is_linked && !mapped.is_empty())
    }

    fn add(&mut self, path: TreePath, object: u64, stat: &Stat) {
        let fingerprint = Fingerprint::new(stat);
        // A write that goes on has changed the time at its start.
        let at = if self.pass == CopyPass::Still { self.began } else { self.began.saturating_sub(LONGEST_WRITE) };
        let settled = fingerprint.is_settled_at(at) && !self.may_be_mapped(&path, stat);
        self.path_bytes += path.len();
        self.entries.push(IndexEntry { path, object, fingerprint, settled });
    }

    fn new_object(&mut self) -> (u64, CString) {
        let object = self.next_object;
        self.next_object += 1;
        (object, object_name(object))
    }
}

/// Whether an entry was removed, or replaced by one of another kind, while it was copied.
fn is_replaced(err: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::WouldBlock, io::ErrorKind::NotADirectory];
    kinds.contains(&err.kind()) || err.raw_os_error() == Some(libc::ELOOP)
}

/// Whether it is the overlay's mark of a file of the image that was removed.
fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

pub(super) fn at_path(path: &[u8], err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("`{}`: {err}", path.escape_ascii()))
}

/// Whether an entry is as the index has it, and any change would have shown.
fn is_current(known: &IndexEntry, stat: &Stat) -> bool {
    known.settled && known.fingerprint == Fingerprint::new(stat)
}

pub(super) fn object_name(object: u64) -> CString {
    CString::new(object.to_string()).unwrap_or_default()
}

pub(super) fn joined(dir: &[u8], name: &[u8]) -> TreePath {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
