//! Packs and unpacks archives, within a container's root directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, utimensat};
use serde::{Deserialize, Serialize};

use crate::archive::{Device, Entry, EntryKind, FileTime, TarWriter};

/// What came of an archive that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DownloadOutcome {
    Complete,
    Missing,
    TooLarge,
}

/// Unpacks with the owners, modes and times of the archive. The directory exists.
pub(crate) fn unpack(tar: File, at: &Path) -> io::Result<()> {
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

/// Unpacks one entry with its owner, which the `tar` crate cannot do where the field is empty, and with the time of a
/// directory or a link, which that crate leaves as it is.
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
    let time = Timespec { tv_sec: i64::try_from(header.mtime()?).unwrap_or(i64::MAX), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    match header.entry_type() {
        kind if kind.is_dir() || kind.is_symlink() => Ok(utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?),
        _ => Ok(()),
    }
}

/// A blank field is root's, as for other engines.
fn owner(field: &[u8], id: io::Result<u64>) -> io::Result<u32> {
    if field.iter().all(|it| matches!(it, 0 | b' ')) {
        return Ok(0);
    }
    u32::try_from(id?).map_err(io::Error::other)
}

/// Packs a path; its last component is the name of the first entry. Sockets are left out.
pub(crate) fn pack(path: &Path, into: File, max_bytes: u64) -> io::Result<DownloadOutcome> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(DownloadOutcome::Missing);
        }
        Err(err) => return Err(err),
    };
    let name = path.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut tar = TarWriter::new(LimitedWriter { into, left: max_bytes });
    let packed = append(&mut tar, &SourceFile { path, name: &name, metadata: &metadata }).and_then(|()| tar.finish());
    match packed {
        Ok(_) => Ok(DownloadOutcome::Complete),
        Err(err) if err.kind() == io::ErrorKind::FileTooLarge => Ok(DownloadOutcome::TooLarge),
        Err(err) => Err(err),
    }
}

struct SourceFile<'a> {
    path: &'a Path,
    name: &'a Path,
    metadata: &'a Metadata,
}

fn append(tar: &mut TarWriter<LimitedWriter>, file: &SourceFile<'_>) -> io::Result<()> {
    let SourceFile { path, name, metadata } = *file;
    let Some(kind) = entry_kind(path, metadata)? else { return Ok(()) };
    let size = if let EntryKind::File { size, .. } = kind { size } else { 0 };
    tar.write_entry(&Entry {
        path: name.as_os_str().as_bytes().to_vec(),
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: FileTime { seconds: metadata.mtime(), nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) },
        xattrs: Vec::new(),
    })?;
    if metadata.is_file() {
        return append_content(tar, open_regular(path, metadata)?, size);
    }
    if !metadata.is_dir() {
        return Ok(());
    }
    let mut children: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    children.sort_by_key(fs::DirEntry::file_name);
    for child in children {
        let path = child.path();
        // A file that went meanwhile is none any more, and another file system is another thing.
        let Ok(below) = fs::symlink_metadata(&path) else { continue };
        if below.dev() == metadata.dev() || !below.is_dir() {
            append(tar, &SourceFile { path: &path, name: &name.join(child.file_name()), metadata: &below })?;
        }
    }
    Ok(())
}

/// `None` for a socket, which an archive cannot hold.
fn entry_kind(path: &Path, metadata: &Metadata) -> io::Result<Option<EntryKind>> {
    let kind = metadata.file_type();
    let device = Device { major: rustix::fs::major(metadata.rdev()), minor: rustix::fs::minor(metadata.rdev()) };
    Ok(Some(match () {
        () if kind.is_dir() => EntryKind::Directory,
        () if kind.is_file() => EntryKind::File { size: metadata.size(), extents: None },
        () if kind.is_symlink() => EntryKind::Symlink(fs::read_link(path)?.into_os_string().into_vec()),
        () if kind.is_fifo() => EntryKind::Fifo,
        () if kind.is_char_device() => EntryKind::CharDevice(device),
        () if kind.is_block_device() => EntryKind::BlockDevice(device),
        () => return Ok(None),
    }))
}

/// The file that was looked at. Another one may have its name since: a pipe would wait for a writer.
fn open_regular(path: &Path, metadata: &Metadata) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) == (metadata.dev(), metadata.ino()) && opened.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "a file was replaced while the archive was made: copy it once more"))
}

/// As many bytes as were announced, also of a file that changes meanwhile.
fn append_content(tar: &mut TarWriter<LimitedWriter>, file: File, size: u64) -> io::Result<()> {
    let mut content = file.chain(io::repeat(0)).take(size);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(()),
            count => tar.write_content(&buffer[..count])?,
        }
    }
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
    fn a_file_that_a_pipe_or_a_link_replaced_is_not_waited_for() {
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
    #[test]
    fn links_and_names_of_any_kind_are_packed() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("tree");
        let long = "long".repeat(40);
        fs::create_dir(&at).unwrap();
        fs::write(at.join(&long), "long").unwrap();
        for (name, target) in [("root", "/"), ("up", "../../.."), ("far", "/etc/passwd")] {
            std::os::unix::fs::symlink(target, at.join(name)).unwrap();
        }
        let mut into = tempfile::tempfile().unwrap();
        assert_eq!(pack(&at, into.try_clone().unwrap(), 1 << 20).unwrap(), DownloadOutcome::Complete);
        into.rewind().unwrap();
        let mut archive = tar::Archive::new(into);
        let entries = archive.entries().unwrap().map(|it| {
            let it = it.unwrap();
            let link = it.link_name().unwrap().map(|it| it.display().to_string()).unwrap_or_default();
            format!("{} {link}", it.path().unwrap().display())
        });
        let expected = ["tree ", "tree/far /etc/passwd", &format!("tree/{long} "), "tree/root /", "tree/up ../../.."]
            .map(String::from);
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        let small = pack(&at, tempfile::tempfile().unwrap(), 1000).unwrap();
        assert_eq!(small, DownloadOutcome::TooLarge);
    }
}
