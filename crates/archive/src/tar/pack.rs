//! Packs files from disk.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::{Device, EntryKind, FileTime, TarEntry, Writer};

/// Packs a path with everything below it on the same file system, under the name `name`: with owners, modes and times,
/// and without sockets.
///
/// # Errors
/// If something cannot be read or the archive cannot be written.
pub fn pack_tree<W: Write>(tar: &mut Writer<W>, path: &Path, name: &Path) -> io::Result<()> {
    append(tar, &SourceFile { path, name, metadata: &fs::symlink_metadata(path)? })
}

struct SourceFile<'a> {
    path: &'a Path,
    name: &'a Path,
    metadata: &'a Metadata,
}

fn append<W: Write>(tar: &mut Writer<W>, file: &SourceFile<'_>) -> io::Result<()> {
    let SourceFile { path, name, metadata } = *file;
    let Some(kind) = entry_kind(path, metadata)? else { return Ok(()) };
    let entry = TarEntry {
        path: name.as_os_str().as_bytes().to_vec(),
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: FileTime { seconds: metadata.mtime(), nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) },
        xattrs: Vec::new(),
    };
    if metadata.is_file() {
        return tar.write_file(&entry, open_regular(path, metadata)?);
    }
    tar.write_entry(&entry)?;
    if !metadata.is_dir() {
        return Ok(());
    }
    let mut children: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    children.sort_by_key(fs::DirEntry::file_name);
    for child in children {
        let path = child.path();
        // A file that disappeared is skipped, and so is another file system.
        let Ok(below) = fs::symlink_metadata(&path) else { continue };
        if below.dev() == metadata.dev() || !below.is_dir() {
            append(tar, &SourceFile { path: &path, name: &name.join(child.file_name()), metadata: &below })?;
        }
    }
    Ok(())
}

/// `None` for a socket, which an archive cannot contain.
fn entry_kind(path: &Path, metadata: &Metadata) -> io::Result<Option<EntryKind>> {
    let kind = metadata.file_type();
    let device = Device { major: rustix::fs::major(metadata.rdev()), minor: rustix::fs::minor(metadata.rdev()) };
    Ok(Some(match () {
        () if kind.is_dir() => EntryKind::Directory,
        () if kind.is_file() => EntryKind::file(metadata.size()),
        () if kind.is_symlink() => EntryKind::Symlink(fs::read_link(path)?.into_os_string().into_vec()),
        () if kind.is_fifo() => EntryKind::Fifo,
        () if kind.is_char_device() => EntryKind::CharDevice(device),
        () if kind.is_block_device() => EntryKind::BlockDevice(device),
        () => return Ok(None),
    }))
}

/// Opens the file that was inspected. It may have been replaced by a pipe, which must not block.
fn open_regular(path: &Path, metadata: &Metadata) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) == (metadata.dev(), metadata.ino()) && opened.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "a file was replaced while the archive was made: copy it once more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_by_a_pipe_or_a_link_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "content").unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(open_regular(&path, &metadata).is_ok());
        fs::rename(&path, dir.path().join("other")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(open_regular(&path, &metadata).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(open_regular(&path, &metadata).is_err());
    }
}
