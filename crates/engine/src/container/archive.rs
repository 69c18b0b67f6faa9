//! Packs and unpacks archives, within a container's root directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Component, Path, PathBuf};

use super::files::DownloadOutcome;

/// Unpacks with the owners, modes and times of the archive. The directory exists.
pub(super) fn unpack(tar: File, at: &Path) -> io::Result<()> {
    if !fs::metadata(at)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let at = at.canonicalize()?;
    let mut archive = tar::Archive::new(tar);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    // Directories come last, the deepest first: their modes could keep out what lies in them.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.header().entry_type().is_dir() {
            directories.push(entry);
        } else {
            unpack_entry(entry, &at)?;
        }
    }
    directories.sort_by(|a, b| b.path_bytes().cmp(&a.path_bytes()));
    directories.into_iter().try_for_each(|it| unpack_entry(it, &at))
}

/// Unpacks one entry with its owner, which the `tar` crate cannot do where the field is empty.
fn unpack_entry<R: Read>(mut entry: tar::Entry<'_, R>, at: &Path) -> io::Result<()> {
    let path = entry.path()?.into_owned();
    // The `tar` crate passes over these.
    if path.components().any(|it| it == Component::ParentDir) || !entry.unpack_in(at)? {
        return Ok(());
    }
    let name: PathBuf = path.components().filter(|it| matches!(it, Component::Normal(_))).collect();
    let header = entry.header();
    // A hard link has the owner of its file.
    if name.as_os_str().is_empty() || header.entry_type().is_hard_link() {
        return Ok(());
    }
    let path = at.join(name);
    let old = header.as_old();
    lchown(&path, Some(owner(&old.uid, header.uid())?), Some(owner(&old.gid, header.gid())?))?;
    // A change of the owner takes set-id bits away.
    let mode = header.mode().unwrap_or_default() & 0o7777;
    if mode & 0o6000 != 0 && !header.entry_type().is_symlink() {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A blank field is root's, as for other engines.
fn owner(field: &[u8], id: io::Result<u64>) -> io::Result<u32> {
    if field.iter().all(|it| matches!(it, 0 | b' ')) {
        return Ok(0);
    }
    u32::try_from(id?).map_err(io::Error::other)
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

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use coracle_skips::{NEEDS_ROOT, skip};

    use super::*;

    #[test]
    fn an_entry_without_an_owner_is_roots_and_keeps_its_set_id_bits() {
        if !rustix::process::getuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        let mut tar = tar::Builder::new(tempfile::tempfile().unwrap());
        for (name, kind, uid) in [
            ("dir/", tar::EntryType::Directory, Some(7)),
            ("dir/blank", tar::EntryType::Regular, None),
            ("dir/owned", tar::EntryType::Regular, Some(7)),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o6750);
            header.set_size(0);
            if let Some(uid) = uid {
                header.set_uid(uid);
                header.set_gid(uid);
            }
            tar.append_data(&mut header, name, &[][..]).unwrap();
        }
        let mut file = tar.into_inner().unwrap();
        file.rewind().unwrap();
        let at = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(at.path(), Some(9), Some(9)).unwrap();
        unpack(file, at.path()).unwrap();
        for (name, owner) in [("dir", 7), ("dir/blank", 0), ("dir/owned", 7)] {
            let it = fs::metadata(at.path().join(name)).unwrap();
            assert_eq!((it.uid(), it.gid(), it.mode() & 0o7777), (owner, owner, 0o6750), "{name}");
        }
    }
}
