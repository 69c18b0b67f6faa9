//! Reads one entry from the file system.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use coracle_archive::tar::{Device, EntryKind, FileTime, TarEntry, Xattr};
use rustix::fs::{AtFlags, FileType, Stat, lgetxattr, llistxattr, major, minor, readlinkat, statat};
use rustix::io::Errno;

use super::{OverlayForm, is_portable};

/// Maximum size of a list of attribute names, and of a value, in the kernel.
const MAX_XATTR: usize = 64 * 1024;

/// An entry as it is on the disk.
#[derive(Debug)]
pub(super) struct DiskEntry {
    pub(super) entry: TarEntry,
    pub(super) stat: Stat,
    /// Whether it hides the content of that directory in lower layers.
    pub(super) opaque: bool,
}

/// Reads attributes and, reusing its buffers, lists of them.
#[derive(Debug)]
pub(super) struct DiskReader {
    overlay: OverlayForm,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl DiskReader {
    pub(super) fn new(overlay: OverlayForm) -> Self {
        Self { overlay, names: Vec::with_capacity(MAX_XATTR), value: Vec::with_capacity(MAX_XATTR) }
    }

    /// Reads `name` in `dir`; `.` is the directory itself. A whiteout is returned as a device. `None` for a socket, which is
    /// not part of an image.
    pub(super) fn read(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<DiskEntry>> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let Some(kind) = kind(dir, name, &stat)? else { return Ok(None) };
        let (xattrs, opaque) = self.xattrs(dir, name)?;
        let entry = TarEntry {
            path: Vec::new(),
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: mtime(&stat),
            xattrs,
        };
        Ok(Some(DiskEntry { entry, stat, opaque }))
    }

    /// The attributes that belong to an image, sorted, and whether the entry is opaque.
    fn xattrs(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<(Vec<Xattr>, bool)> {
        // Before Linux 6.13, no system call reads attributes relative to a directory.
        let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        self.names.clear();
        match llistxattr(&*path, rustix::buffer::spare_capacity(&mut self.names)) {
            Err(Errno::NOTSUP) => return Ok((Vec::new(), false)),
            done => done?,
        };
        let (mut found, mut opaque) = (Vec::new(), false);
        for attribute in self.names.split(|it| *it == 0) {
            if let Some(own) = attribute.strip_prefix(self.overlay.prefix().as_bytes()) {
                let value = value(&mut self.value, &path, attribute)?;
                opaque |= is_opaque(own, value)?;
            } else if is_portable(attribute) {
                let value = value(&mut self.value, &path, attribute)?.to_vec();
                found.push(Xattr { name: attribute.to_vec(), value });
            }
        }
        found.sort();
        Ok((found, opaque))
    }
}

fn value<'a>(buffer: &'a mut Vec<u8>, path: &[u8], attribute: &[u8]) -> io::Result<&'a [u8]> {
    buffer.clear();
    lgetxattr(path, attribute, rustix::buffer::spare_capacity(buffer))?;
    Ok(buffer)
}

/// Whether an attribute of the overlay says that its directory is opaque.
fn is_opaque(attribute: &[u8], value: &[u8]) -> io::Result<bool> {
    match attribute {
        b"opaque" if value == b"y" => Ok(true),
        // The content is elsewhere, or the form is one of nested overlays only.
        b"opaque" | b"redirect" | b"metacopy" | b"whiteout" | b"overlay.opaque" | b"overlay.whiteout" => {
            let name = String::from_utf8_lossy(attribute);
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the overlay's attribute `{name}` is not supported"),
            ))
        }
        _ => Ok(false),
    }
}

fn kind(dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<Option<EntryKind>> {
    let device = Device { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
    Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File { size: stat.st_size.cast_unsigned(), extents: None },
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink(readlinkat(dir, name, Vec::new())?.into_bytes()),
        FileType::CharacterDevice => EntryKind::CharDevice(device),
        FileType::BlockDevice => EntryKind::BlockDevice(device),
        FileType::Fifo => EntryKind::Fifo,
        _ => return Ok(None),
    }))
}

fn mtime(stat: &Stat) -> FileTime {
    FileTime { seconds: stat.st_mtime, nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
}
