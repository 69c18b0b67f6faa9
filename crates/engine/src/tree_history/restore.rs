//! Changes an upper directory to the state of a checkpoint.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use coracle_host::tree::DirHandle;
use rustix::fs::{AtFlags, Mode, Stat, linkat, mkdirat, statat, unlinkat};
use rustix::io::Errno;

use super::capture::{at_path, joined, object_name};
use super::{Index, IndexEntry, Tree, TreePath};
use crate::store::{is_dir, names, open_beneath};
use crate::tree_copy::{EntryAt, FileCopy, Fingerprint, copy_attributes};

/// What to change, and to what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoreRequest<'a> {
    pub(crate) upper: &'a Path,
    pub(crate) objects: &'a Path,
    /// Absolute paths inside, which stay as they are with everything below them.
    pub(crate) left_out: &'a [&'a str],
    pub(crate) tree: &'a Tree,
}

/// Changes the directory, as the owner of the files. What `known` has in the right version stays; the rest is removed and
/// copied. Returns the entries of the index. If it is interrupted, a repetition finishes it.
pub(crate) fn restore(request: &RestoreRequest<'_>, known: &Index) -> io::Result<Vec<IndexEntry>> {
    let mut restore = Restore::new(request, known)?;
    // Before anything is removed.
    for (path, object) in request.tree {
        restore.object(*object).map_err(|err| at_path(path, &err))?;
    }
    let mut pending = vec![TreePath::new()];
    while let Some(path) = pending.pop() {
        restore.remove_others(&path, &mut pending)?;
    }
    for (path, object) in request.tree {
        restore.create(path, *object).map_err(|err| at_path(path, &err))?;
    }
    for (path, object) in request.tree {
        restore.finish_directory(path, *object).map_err(|err| at_path(path, &err))?;
    }
    restore.index()
}

struct Restore<'a> {
    request: &'a RestoreRequest<'a>,
    known: HashMap<&'a [u8], &'a IndexEntry>,
    upper: OwnedFd,
    objects: OwnedFd,
    files: FileCopy,
    /// Entries that are right already.
    unchanged: HashSet<TreePath>,
    /// The first path of each object that is not a directory.
    placed: HashMap<u64, TreePath>,
}

impl<'a> Restore<'a> {
    fn new(request: &'a RestoreRequest<'a>, known: &'a Index) -> io::Result<Self> {
        let upper: OwnedFd = File::open(request.upper)?.into();
        Ok(Self {
            request,
            known: known.entries.iter().map(|it| (it.path.as_slice(), it)).collect(),
            files: FileCopy::new(&upper)?,
            upper,
            objects: File::open(request.objects)?.into(),
            unchanged: HashSet::new(),
            placed: HashMap::new(),
        })
    }

    /// Removes from a directory what the checkpoint does not have, or in another version.
    fn remove_others(&mut self, path: &[u8], pending: &mut Vec<TreePath>) -> io::Result<()> {
        let dir = open_beneath(self.upper.as_fd(), at(path))?;
        for name in names(&dir)? {
            let path = joined(path, name.to_bytes());
            if self.request.left_out.iter().any(|it| it.as_bytes().strip_prefix(b"/") == Some(path.as_slice())) {
                continue;
            }
            let stat = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            match self.request.tree.get(&path).copied() {
                Some(object) if is_dir(stat.st_mode) && is_dir(self.object(object)?.st_mode) => pending.push(path),
                Some(object) if !is_dir(stat.st_mode) && self.is_version(&path, object, &stat) => {
                    self.placed.entry(object).or_insert_with(|| path.clone());
                    self.unchanged.insert(path);
                }
                _ => remove(&dir, &name)?,
            }
        }
        Ok(())
    }

    /// Whether an entry is the version that an object has.
    fn is_version(&self, path: &[u8], object: u64, stat: &Stat) -> bool {
        let known = self.known.get(path);
        known.is_some_and(|it| it.object == object && it.settled && it.fingerprint == Fingerprint::new(stat))
    }

    fn object(&self, object: u64) -> io::Result<Stat> {
        Ok(statat(&self.objects, object_name(object), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn create(&mut self, path: &[u8], object: u64) -> io::Result<()> {
        if path.is_empty() || self.unchanged.contains(path) {
            return Ok(());
        }
        let (parent, name) = split(path);
        let (parent, name) = (open_beneath(self.upper.as_fd(), at(parent))?, CString::new(name)?);
        let stat = self.object(object)?;
        if is_dir(stat.st_mode) {
            return match mkdirat(&parent, &name, Mode::from_raw_mode(0o700)) {
                Err(Errno::EXIST) => Ok(()),
                made => Ok(made?),
            };
        }
        if let Some(first) = self.placed.get(&object) {
            return Ok(linkat(&self.upper, first.as_slice(), &parent, &name, AtFlags::empty())?);
        }
        let object_name = object_name(object);
        let from = EntryAt { dir: self.objects.as_fd(), name: &object_name };
        self.files.copy(from, EntryAt { dir: parent.as_fd(), name: &name }, &stat)?;
        self.placed.insert(object, path.to_vec());
        Ok(())
    }

    /// Sets the attributes of a directory, after its entries have changed its time.
    fn finish_directory(&mut self, path: &[u8], object: u64) -> io::Result<()> {
        let stat = self.object(object)?;
        if !is_dir(stat.st_mode) {
            return Ok(());
        }
        let dir = open_beneath(self.upper.as_fd(), at(path))?;
        let found = rustix::fs::fstat(&dir)?;
        if self.is_version(path, object, &found) {
            return Ok(());
        }
        let object = open_beneath(self.objects.as_fd(), object_name(object).to_bytes())?;
        copy_attributes(object.as_fd(), dir.as_fd(), &stat)
    }

    fn index(&self) -> io::Result<Vec<IndexEntry>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entries = self.request.tree.iter().map(|(path, object)| {
            let fingerprint = Fingerprint::new(&statat(&self.upper, at(path), AtFlags::SYMLINK_NOFOLLOW)?);
            let settled = fingerprint.is_settled_at(now);
            Ok(IndexEntry { path: path.clone(), object: *object, fingerprint, settled })
        });
        entries.collect()
    }
}

fn at(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// The parent and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|it| *it == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

fn remove(dir: &OwnedFd, name: &CStr) -> io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        // A tree of any depth.
        Err(Errno::ISDIR) => {
            DirHandle::from(File::from(dir.try_clone()?)).remove_all(OsStr::from_bytes(name.to_bytes()))
        }
        done => Ok(done?),
    }
}
