//! Unpacks the archive of a layer into a directory, in the form that the overlay mounts.
//!
//! Everything is created relative to descriptors of directories below the target, which were opened without following links.
//! So no entry leads outside, or through a link of an earlier one. If an entry is refused, the whole archive is.

mod content;
mod node;
mod parents;
mod path;
#[cfg(test)]
pub(super) mod tests;
mod whiteout;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use coracle_archive::tar::{EntryKind, FileTime, ReadError, Reader, TarEntry};
use path::EntryPath;
use serde::{Deserialize, Serialize};

use super::file_sizes::FileSizes;
use super::tree::{ContentDigests, DigestSink, OverlayForm, TreeDigests, WalkOptions, walk};
use super::{LayerRefusal, StoreError};
use crate::cancel::CancelFlag;

/// The form and limits of an unpacked archive.
#[derive(Clone, Debug)]
pub(crate) struct UnpackOptions {
    pub(crate) overlay: OverlayForm,
    /// Whether digests of contents are computed, too.
    pub(crate) hash_contents: bool,
    /// Maximum size of all files, including holes.
    pub(crate) max_bytes: u64,
    /// Maximum number of entries, including directories that the archive only implies.
    pub(crate) max_entries: u64,
    /// Maximum number of components of a path.
    pub(crate) max_depth: usize,
    /// Maximum size of the paths that stay in memory until the end: those of directories, hard links and hidden entries.
    pub(crate) max_path_bytes: u64,
    /// Cancels the operation.
    pub(crate) cancel: CancelFlag,
}

/// The result of unpacking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnpackReport {
    pub(crate) digests: TreeDigests,
    /// Number of device nodes, owners and attributes that this user cannot create, or the file system does not support.
    pub(crate) left_out: u64,
    /// Directories that the archive only implies, with `/` for its root. Their attributes are those of lower layers.
    pub(crate) implied: Vec<String>,
    /// Whether it hides all lower layers.
    pub(crate) opaque: bool,
}

/// A failure of unpacking.
#[derive(Debug)]
pub(crate) enum UnpackError {
    /// The archive is refused.
    Refused(LayerRefusal),
    /// An I/O error.
    Io(io::Error),
}

impl From<LayerRefusal> for UnpackError {
    fn from(refusal: LayerRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ReadError> for UnpackError {
    fn from(err: ReadError) -> Self {
        Self::Refused(err.into())
    }
}

impl From<io::Error> for UnpackError {
    fn from(err: io::Error) -> Self {
        Self::Io(err)
    }
}

impl From<rustix::io::Errno> for UnpackError {
    fn from(err: rustix::io::Errno) -> Self {
        Self::Io(err.into())
    }
}

impl UnpackError {
    /// Converts it to the failure of a layer.
    pub(crate) fn of_layer(self, layer: &str) -> StoreError {
        match self {
            Self::Refused(refusal) => StoreError::Refused { layer: layer.to_owned(), refusal },
            Self::Io(source) => StoreError::Io { what: "cannot unpack a layer", source },
        }
    }
}

impl From<UnpackError> for io::Error {
    fn from(err: UnpackError) -> Self {
        match err {
            UnpackError::Refused(refusal) => Self::new(io::ErrorKind::InvalidData, refusal),
            UnpackError::Io(err) => err,
        }
    }
}

type Result<T, E = UnpackError> = std::result::Result<T, E>;

/// The source of the content of files: the bytes of their extents, one after the other.
pub(crate) trait ContentSource {
    /// Reads more content of the current file; returns 0 at its end.
    fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize>;

    /// Makes an empty file share the whole content, if the file system supports that. The content is read nevertheless.
    fn reflink(&mut self, _file: BorrowedFd<'_>) -> bool {
        false
    }
}

impl<R: Read> ContentSource for Reader<R> {
    fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(Self::read_content(self, buffer)?)
    }
}

/// Unpacks an archive into an empty directory.
pub(crate) fn unpack(archive: impl Read, into: OwnedFd, options: UnpackOptions) -> Result<UnpackReport> {
    let mut it = Unpack::new(into, options);
    let mut archive = Reader::new(archive);
    while let Some(entry) = archive.next_entry()? {
        it.entry(&entry, &mut archive)?;
    }
    // Bytes after the end of the archive are part of its digest.
    io::copy(&mut archive.into_stream(), &mut io::sink())?;
    it.finish()
}

/// An archive that is being unpacked.
#[derive(Debug)]
pub(crate) struct Unpack {
    root: OwnedFd,
    options: UnpackOptions,
    /// The parent of the last entry, since archives list the entries of a directory in a row.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// Times of directories, which are set at the end, since creating entries changes them.
    times: BTreeMap<Vec<u8>, FileTime>,
    /// Parent directories that have no entry of their own.
    implied: HashSet<Vec<u8>>,
    /// Paths that become opaque if they become directories.
    hidden: HashSet<Vec<u8>>,
    contents: HashMap<u64, [u8; 32]>,
    buffer: Vec<u8>,
    entries: u64,
    sizes: FileSizes,
    /// Size of the paths in `times`, `implied` and `hidden`, and of hard links.
    path_bytes: u64,
    left_out: u64,
}

/// Bytes that are copied at once.
const BUFFER: usize = 256 * 1024;

impl Unpack {
    pub(crate) fn new(root: OwnedFd, options: UnpackOptions) -> Self {
        Self {
            root,
            sizes: FileSizes::up_to(options.max_bytes),
            options,
            parent: None,
            // So that the same archive always gives the same tree, even without an entry for its root.
            times: BTreeMap::from([(Vec::new(), FileTime::default())]),
            implied: HashSet::from([Vec::new()]),
            hidden: HashSet::new(),
            contents: HashMap::new(),
            buffer: vec![0; BUFFER],
            entries: 0,
            path_bytes: 0,
            left_out: 0,
        }
    }

    /// Creates one entry.
    pub(crate) fn entry(&mut self, entry: &TarEntry, source: &mut dyn ContentSource) -> Result<()> {
        self.count(entry)?;
        let path = EntryPath::parse(&entry.path, self.options.max_depth)?;
        if path.is_root() {
            return self.root_entry(entry);
        }
        if let Some(whiteout) = whiteout::Whiteout::from_path(&path) {
            return self.whiteout(&path, whiteout);
        }
        match &entry.kind {
            EntryKind::Directory => self.directory(&path, entry),
            EntryKind::File { size, extents } => {
                let content = content::FileContent { size: *size, extents: extents.as_deref() };
                self.file(&path, entry, content, source)
            }
            EntryKind::HardLink(target) => self.hard_link(&path, target),
            EntryKind::Unknown(_) => Err(LayerRefusal::entry(&entry.path, "is of an unknown kind").into()),
            _ => self.node(&path, entry),
        }
    }

    /// Counts an entry against the limits.
    fn count(&mut self, entry: &TarEntry) -> Result<(), LayerRefusal> {
        self.count_entry()?;
        self.sizes.add(entry)
    }

    /// Counts an entry, explicit or implied, since both need an inode.
    fn count_entry(&mut self) -> Result<(), LayerRefusal> {
        self.entries += 1;
        check_limit(self.entries, self.options.max_entries, "entries")
    }

    /// Counts a path that stays in memory until the end. A small archive can contain many long ones.
    fn count_path(&mut self, path: &[u8]) -> Result<(), LayerRefusal> {
        self.path_bytes += path.len() as u64;
        check_limit(self.path_bytes, self.options.max_path_bytes, "bytes of paths")
    }

    /// Records the time of a directory.
    fn remember_time(&mut self, path: &[u8], time: FileTime) -> Result<(), LayerRefusal> {
        if self.times.insert(path.to_vec(), time).is_none() {
            self.count_path(path)?;
        }
        Ok(())
    }

    /// Records that the entry at a path in lower layers is hidden.
    fn remember_hidden(&mut self, path: &[u8]) -> Result<(), LayerRefusal> {
        if self.hidden.insert(path.to_vec()) {
            self.count_path(path)?;
        }
        Ok(())
    }

    /// Sets the times of directories, and computes the result.
    pub(crate) fn finish(mut self) -> Result<UnpackReport> {
        self.set_directory_times()?;
        let contents = std::mem::take(&mut self.contents);
        let known = if self.options.hash_contents { ContentDigests::Known(contents) } else { ContentDigests::None };
        let mut sink = DigestSink::new(known);
        walk(self.root.as_fd(), &WalkOptions::all(self.options.overlay), &mut sink)?;
        let mut implied: Vec<_> = self.implied.iter().map(|it| path::text(it)).collect();
        implied.sort();
        Ok(UnpackReport {
            digests: sink.finish(),
            left_out: self.left_out,
            implied,
            opaque: self.hidden.contains(&Vec::new()),
        })
    }
}

fn check_limit(count: u64, limit: u64, what: &str) -> Result<(), LayerRefusal> {
    if count > limit { Err(LayerRefusal::TooLarge { what: what.into(), limit }) } else { Ok(()) }
}
