//! Reads the entries of an open directory, and opens subdirectories.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Result;

use crate::atomic::is_temporary;

pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirEntry {
    pub(crate) name: Vec<u8>,
    /// `Unknown` if the file system does not report it.
    pub(crate) kind: FileType,
}

/// The entries of an open directory, in no order.
pub(crate) fn entries(dir: impl AsFd) -> Result<impl Iterator<Item = Result<DirEntry>>> {
    Ok(all(dir)?.filter(|result| result.as_ref().map_or(true, |entry| !is_temporary(&entry.name))))
}

/// As [`entries`], including temporary files.
pub(crate) fn all(dir: impl AsFd) -> Result<Entries> {
    Dir::new(openat(dir, ".", READ, Mode::empty())?).map(Entries)
}

/// The entries of a directory except `.` and `..`.
#[derive(Debug)]
pub(crate) struct Entries(Dir);

impl Iterator for Entries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_self_or_parent = |entry: &rustix::fs::DirEntry| matches!(entry.file_name().to_bytes(), b"." | b"..");
        let entry = self.0.find(|result| result.as_ref().map_or(true, |entry| !is_self_or_parent(entry)))?;
        Some(entry.map(|entry| DirEntry { name: entry.file_name().to_bytes().to_vec(), kind: entry.file_type() }))
    }
}

/// The type of an entry; links are not followed.
pub(crate) fn kind(dir: impl AsFd, entry: &DirEntry) -> FileType {
    if entry.kind != FileType::Unknown {
        return entry.kind;
    }
    let stat = statat(dir, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode))
}

/// Joins a path below a directory and a name.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
