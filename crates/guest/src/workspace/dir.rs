//! The entries of an open directory, and going into one of them.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Result;

use crate::os::atomic::is_temporary;

pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    /// Unknown where the file system does not say.
    pub(super) kind: FileType,
}

/// The entries of a directory that is open for looking or for reading, in no order.
pub(super) fn entries(dir: impl AsFd) -> Result<impl Iterator<Item = Result<Entry>>> {
    Ok(all(dir)?.filter(|it| it.as_ref().map_or(true, |it| !is_temporary(&it.name))))
}

/// The same with those that nobody is to see.
pub(super) fn all(dir: impl AsFd) -> Result<impl Iterator<Item = Result<Entry>>> {
    let all = Dir::new(openat(dir, ".", READ, Mode::empty())?)?;
    Ok(all.filter_map(|it| match it {
        Ok(it) if matches!(it.file_name().to_bytes(), b"." | b"..") => None,
        it => Some(it.map(|it| Entry { name: it.file_name().to_bytes().to_vec(), kind: it.file_type() })),
    }))
}

/// What an entry is, itself.
pub(super) fn kind(dir: impl AsFd, entry: &Entry) -> FileType {
    if entry.kind != FileType::Unknown {
        return entry.kind;
    }
    let stat = statat(dir, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode))
}
