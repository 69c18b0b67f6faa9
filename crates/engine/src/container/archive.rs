//! Packs and unpacks archives, within a container's root directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::files::DownloadOutcome;

/// Unpacks with the owners, modes and times of the archive. The directory exists.
pub(super) fn unpack(tar: File, at: &Path) -> io::Result<()> {
    if !fs::metadata(at)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut archive = tar::Archive::new(tar);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    archive.unpack(at)
}

/// Packs a path; its last component is the name of the first entry. Sockets are left out.
pub(super) fn pack(path: &Path, into: File, max_bytes: u64) -> io::Result<DownloadOutcome> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(DownloadOutcome::Missing);
        }
        Err(err) => return Err(err),
    };
    let name = path.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut builder = tar::Builder::new(LimitedWriter { into, left: max_bytes });
    builder.follow_symlinks(false);
    let packed =
        append(&mut builder, &SourceFile { path, name: &name, metadata: &metadata }).and_then(|()| builder.finish());
    match packed {
        Ok(()) => Ok(DownloadOutcome::Complete),
        Err(err) if err.kind() == io::ErrorKind::FileTooLarge => Ok(DownloadOutcome::TooLarge),
        Err(err) => Err(err),
    }
}

struct SourceFile<'a> {
    path: &'a Path,
    name: &'a Path,
    metadata: &'a Metadata,
}

fn append(builder: &mut tar::Builder<LimitedWriter>, entry: &SourceFile<'_>) -> io::Result<()> {
    let SourceFile { path, name, metadata } = *entry;
    if metadata.file_type().is_socket() {
        return Ok(());
    }
    if !metadata.is_dir() {
        return builder.append_path_with_name(path, name);
    }
    builder.append_dir(name, path)?;
    let mut children: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    children.sort_by_key(fs::DirEntry::file_name);
    for child in children {
        let path = child.path();
        // A file that went meanwhile is none any more, and another file system is another thing.
        let Ok(below) = fs::symlink_metadata(&path) else { continue };
        if below.dev() == metadata.dev() || !below.is_dir() {
            append(builder, &SourceFile { path: &path, name: &name.join(child.file_name()), metadata: &below })?;
        }
    }
    Ok(())
}

/// Fails once more bytes than allowed were written.
struct LimitedWriter {
    into: File,
    left: u64,
}

impl Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        self.left = self.left.checked_sub(length).ok_or(io::ErrorKind::FileTooLarge)?;
        self.into.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}
