//! Converts the result of `stat` to an entry of the protocol.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, Stat, fstat, readlinkat};
use rustix::io::Result;

use crate::protocol::{FileEntry, FileKind};

/// Describes an open file, link or directory that has this name.
pub(super) fn entry(name: &[u8], fd: impl AsFd) -> Result<FileEntry> {
    let stat = fstat(&fd)?;
    let link = if kind(&stat) == FileKind::Link { Some(readlinkat(&fd, "", Vec::new())?.into_bytes()) } else { None };
    Ok(file_entry(name, &stat, link.as_deref()))
}

pub(super) fn file_entry(name: &[u8], stat: &Stat, link: Option<&[u8]>) -> FileEntry {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    FileEntry {
        name: text(name),
        kind: kind(stat),
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        changed_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
        link: link.map(text),
    }
}

pub(super) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    }
}

/// Bits that a file call may set: never set-id, which would take effect on the host through a bind mount.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o777)
}
