//! Unpacks a tar beneath a directory and nowhere else.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use cap_std::fs::{Dir, File};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use tar::{Archive, Entry, EntryType, Header};

/// Directories, files and links, with their modes and times, and their owners when we are root. Devices are left out: an unpacked
/// image is looked at, not booted. Every path is opened beneath `root`, so a name or a link that leads out is an error.
pub(super) fn unpack<R: Read>(root: &Dir, mut archive: Archive<R>) -> io::Result<()> {
    let mut dirs = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = normalize(&entry.path()?);
        if entry.header().entry_type() == EntryType::Directory {
            root.create_dir_all(&path)?;
            dirs.push((path, entry.header().clone()));
        } else {
            unpack_one(root, &path, &mut entry)?;
        }
    }
    // Last, and the innermost first: a directory that may not be written has got its files by now.
    dirs.into_iter().rev().try_for_each(|(path, header)| apply_metadata(&open_dir(root, &path)?, &header))
}

fn unpack_one<R: Read>(root: &Dir, path: &Path, entry: &mut Entry<'_, R>) -> io::Result<()> {
    let kind = entry.header().entry_type();
    let file = matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse);
    if !file && !matches!(kind, EntryType::Symlink | EntryType::Link) {
        return Ok(());
    }
    root.create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    clear(root, path)?;
    let target = entry.link_name()?.map(PathBuf::from);
    match (kind, target) {
        (EntryType::Symlink, Some(target)) => root.symlink_contents(target, path),
        (EntryType::Link, Some(target)) => root.hard_link(normalize(&target), root, path),
        _ => {
            let mut made: File = root.create(path)?;
            io::copy(entry, &mut made)?;
            apply_metadata(&made.into_std(), entry.header())
        }
    }
}

/// Makes way for an entry: what stands there and is no directory goes.
pub(super) fn clear(root: &Dir, path: &Path) -> io::Result<()> {
    match root.symlink_metadata(path) {
        Ok(it) if it.is_dir() => root.remove_dir(path),
        Ok(_) => root.remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Opened so that it can be changed: what `Dir` holds can only be looked through.
fn open_dir(root: &Dir, path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(root.open_dir(path)?, ".", flags, Mode::empty())?.into())
}

fn apply_metadata(made: &std::fs::File, header: &Header) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        // An empty field is 0 for the engines.
        let number = |it: io::Result<u64>| u32::try_from(it.unwrap_or(0)).map_err(io::Error::other);
        let (uid, gid) = (header.uid(), header.gid());
        rustix::fs::fchown(made, Some(Uid::from_raw(number(uid)?)), Some(Gid::from_raw(number(gid)?)))?;
    }
    made.set_permissions(PermissionsExt::from_mode(header.mode()? & 0o7777))?;
    made.set_modified(UNIX_EPOCH + Duration::from_secs(header.mtime()?))
}

/// Without `.` and a leading slash; `.` for the root itself.
fn normalize(path: &Path) -> PathBuf {
    use std::path::Component::{CurDir, RootDir};
    let kept: PathBuf = path.components().filter(|it| !matches!(it, CurDir | RootDir)).collect();
    if kept.as_os_str().is_empty() { ".".into() } else { kept }
}
