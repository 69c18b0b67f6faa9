//! The entries of an open directory, and going into one of them.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Result;

use crate::os::atomic::is_temporary;

pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirEntry {
    pub(crate) name: Vec<u8>,
    /// Unknown where the file system does not say.
    pub(crate) kind: FileType,
}

/// The entries of a directory that is open for looking or for reading, in no order.
pub(crate) fn entries(dir: impl AsFd) -> Result<impl Iterator<Item = Result<DirEntry>>> {
    Ok(all(dir)?.filter(|it| it.as_ref().map_or(true, |it| !is_temporary(&it.name))))
}

/// The same, with the temporary files of writers.
pub(crate) fn all(dir: impl AsFd) -> Result<Entries> {
    Dir::new(openat(dir, ".", READ, Mode::empty())?).map(Entries)
}

/// The entries of a directory but for itself and the one above.
#[derive(Debug)]
pub(crate) struct Entries(Dir);

impl Iterator for Entries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.find(|it| it.as_ref().map_or(true, |it| !matches!(it.file_name().to_bytes(), b"." | b"..")));
        entry.map(|it| it.map(|it| DirEntry { name: it.file_name().to_bytes().to_vec(), kind: it.file_type() }))
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

/// A path below a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
