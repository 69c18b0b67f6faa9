//! Copies one file with its content, owner, mode, attributes and times.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat,
    copy_file_range, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, ftruncate, futimens,
    ioctl_ficlone, mknodat, openat, readlinkat, seek, statat, symlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use crate::cancel::CancelFlag;
use crate::write_guard::WriteGuard;

/// Up to this size one read and one write are quicker than a copy by the kernel.
const SMALL: u64 = 64 * 1024;

/// Bytes of a list of attribute names, and of a value, that the kernel gives at most.
const MAX_XATTR: usize = 64 * 1024;

/// Marks an overlay, and not its files.
const OVERLAY_IDS: [&[u8]; 2] = [b"trusted.overlay.uuid", b"user.overlay.uuid"];

/// Bytes that the kernel copies at once: between two of these the disk is looked at.
const PART: u64 = 64 << 20;

/// The space that an entry is counted with, beside its content.
const ENTRY: u64 = 512;

/// Copies files one after the other.
#[derive(Debug)]
pub(crate) struct FileCopy {
    /// The file system can share content between files, as far as is known.
    reflinks: bool,
    buffer: Vec<u8>,
    guard: WriteGuard,
    copied: u64,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryAt<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
}

impl FileCopy {
    /// Into directories of the file system of `to`.
    pub(crate) fn new(to: &OwnedFd) -> io::Result<Self> {
        let guard = WriteGuard::new("the copy", to, CancelFlag::NEVER)?;
        Ok(Self { reflinks: true, buffer: Vec::new(), guard, copied: 0 })
    }

    /// The number of bytes that were copied, since files could not share them.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// Copies an entry that is not a directory. Sockets are skipped: without their process they have no use.
    pub(crate) fn copy(&mut self, from: EntryAt<'_>, to: EntryAt<'_>, stat: &Stat) -> io::Result<()> {
        // Empty files need space, too.
        self.guard.written(ENTRY)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::RegularFile => return self.regular(from, to, stat),
            FileType::Socket => return Ok(()),
            FileType::Symlink => symlinkat(readlinkat(from.dir, from.name, Vec::new())?, to.dir, to.name)?,
            _ => mknodat(to.dir, to.name, kind, Mode::from_raw_mode(stat.st_mode & 0o7777), stat.st_rdev)?,
        }
        chownat(to.dir, to.name, Some(uid(stat)), Some(gid(stat)), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != FileType::Symlink {
            rustix::fs::chmodat(to.dir, to.name, Mode::from_raw_mode(stat.st_mode & 0o7777), AtFlags::empty())?;
        }
        Ok(utimensat(to.dir, to.name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn regular(&mut self, from: EntryAt<'_>, to: EntryAt<'_>, stat: &Stat) -> io::Result<()> {
        let (file, opened) = open_file(from, stat)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Only this engine's user reaches the copy yet.
        let copy = openat(to.dir, to.name, flags, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        self.content(&file, &copy, &opened)?;
        copy_attributes(file.as_fd(), copy.as_fd(), stat)
    }

    fn content(&mut self, from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> io::Result<()> {
        let size = stat.st_size.cast_unsigned();
        if size == 0 {
            return Ok(());
        }
        if self.reflinks {
            match ioctl_ficlone(to, from) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV) => self.reflinks = false,
                // This file alone cannot: it is used for swapping, for example.
                Err(_) => {}
            }
        }
        if stat.st_blocks.cast_unsigned().saturating_mul(512) >= size {
            return self.extent(from, to, 0..size);
        }
        let mut at = 0;
        while at < size {
            let start = match seek(from, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                done => done?,
            };
            let end = seek(from, SeekFrom::Hole(start))?.min(size);
            self.extent(from, to, start..end)?;
            at = end;
        }
        Ok(ftruncate(to, size)?)
    }

    fn extent(&mut self, from: &OwnedFd, to: &OwnedFd, extent: Range<u64>) -> io::Result<()> {
        let Range { start, end } = extent;
        let (mut at, mut into) = (start, start);
        while at < end {
            let left = end - at;
            let copied = if left <= SMALL {
                self.buffer.resize(usize::try_from(SMALL).unwrap_or(0), 0);
                let part = usize::try_from(left).unwrap_or(self.buffer.len());
                let read = pread(from, &mut self.buffer[..part], at)?;
                write_all(to, &self.buffer[..read], at)?;
                (at, into) = (at + read as u64, into + read as u64);
                read
            } else {
                let part = usize::try_from(left.min(PART)).unwrap_or(usize::MAX);
                copy_file_range(from, Some(&mut at), to, Some(&mut into), part)?
            };
            if copied == 0 {
                break;
            }
            self.copied += copied as u64;
            self.guard.written(copied as u64)?;
        }
        Ok(())
    }
}

fn write_all(to: &OwnedFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = pwrite(to, bytes, at)?;
        (bytes, at) = (&bytes[written..], at + written as u64);
    }
    Ok(())
}

/// The file that was looked at. It is opened once it is known to be that one: to open a device that took its place
/// would be to use it, and a pipe would wait for a writer.
fn open_file(entry: EntryAt<'_>, stat: &Stat) -> io::Result<(OwnedFd, Stat)> {
    let found = openat(entry.dir, entry.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let at = fstat(&found)?;
    if at.st_ino != stat.st_ino || FileType::from_raw_mode(at.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN.into());
    }
    let (path, flags) = (format!("/proc/self/fd/{}", found.as_raw_fd()), OFlags::RDONLY | OFlags::CLOEXEC);
    let opened = match openat(CWD, &path, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may leave the time of access alone.
        Err(Errno::PERM) => openat(CWD, &path, flags, Mode::empty())?,
        done => done?,
    };
    let opened_stat = fstat(&opened)?;
    Ok((opened, opened_stat))
}

/// Owner, mode, extended attributes and times. A change of the owner takes set-id bits and file capabilities away, so it
/// comes first. What is right already is left: each change is one of the file system's journal.
pub(crate) fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    let made = fstat(to)?;
    let is_owned = (made.st_uid, made.st_gid) == (stat.st_uid, stat.st_gid);
    if !is_owned {
        fchown(to, Some(uid(stat)), Some(gid(stat)))?;
    }
    if !is_owned || made.st_mode != stat.st_mode {
        fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    }
    copy_xattrs(from, to)?;
    Ok(futimens(to, &times(stat))?)
}

/// Also removes those that the copy has by itself: of a directory with a default list of access, or by an earlier pass.
fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let (names, other) = (xattr_names(from)?, xattr_names(to)?);
    for name in other.split(|it| *it == 0).filter(|it| !it.is_empty() && !is_security(it)) {
        if !names.split(|it| *it == 0).any(|it| it == name) {
            fremovexattr(to, name)?;
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let mut value = vec![0; MAX_XATTR];
    for name in names.split(|it| *it == 0).filter(|it| !it.is_empty() && !OVERLAY_IDS.contains(it)) {
        let length = fgetxattr(from, name, &mut value[..])?;
        match fsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            Err(Errno::PERM | Errno::NOTSUP) if is_security(name) => {}
            set => set?,
        }
    }
    Ok(())
}

/// Whether two entries that are not directories are the same, apart from the number of their names and the time of
/// access.
pub(crate) fn has_same_content(one: EntryAt<'_>, other: EntryAt<'_>) -> io::Result<bool> {
    let (stat, other_stat) = (stat_of(one)?, stat_of(other)?);
    if !is_same_stat(&stat, &other_stat) || stat.st_size != other_stat.st_size || stat.st_rdev != other_stat.st_rdev {
        return Ok(false);
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let ((one, _), (other, _)) = (open_file(one, &stat)?, open_file(other, &other_stat)?);
            Ok(has_same_xattrs(one.as_fd(), other.as_fd())? && has_same_bytes(&one, &other)?)
        }
        FileType::Symlink => {
            let target = |it: EntryAt<'_>| readlinkat(it.dir, it.name, Vec::new());
            Ok(target(one)? == target(other)?)
        }
        _ => Ok(true),
    }
}

/// Whether two directories have the same owner, mode, extended attributes and time of change.
pub(crate) fn has_same_attributes(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(is_same_stat(&fstat(one)?, &fstat(other)?) && has_same_xattrs(one, other)?)
}

fn stat_of(entry: EntryAt<'_>) -> io::Result<Stat> {
    Ok(statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn is_same_stat(one: &Stat, other: &Stat) -> bool {
    let owner = |it: &Stat| (it.st_uid, it.st_gid, it.st_mode);
    let time = |it: &Stat| (it.st_mtime, it.st_mtime_nsec);
    owner(one) == owner(other) && time(one) == time(other)
}

fn has_same_bytes(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (mut buffer, mut other_buffer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut at = 0;
    let next_data = |file: &OwnedFd, at: u64| match seek(file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => Ok(None),
        found => found.map(Some),
    };
    loop {
        // Holes are not read: a file of a few blocks can have any length.
        at = match (next_data(one, at)?, next_data(other, at)?) {
            (None, None) => return Ok(true),
            (Some(data), None) | (None, Some(data)) => data,
            (Some(data), Some(other)) => data.min(other),
        };
        let (read, other_read) = (pread(one, &mut buffer[..], at)?, pread(other, &mut other_buffer[..], at)?);
        if buffer[..read] != other_buffer[..other_read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at += read as u64;
    }
}

fn has_same_xattrs(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(own_xattrs(one)? == own_xattrs(other)?)
}

/// Extended attributes that a copy has, too.
fn own_xattrs(file: BorrowedFd<'_>) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let names = xattr_names(file)?;
    let names = names.split(|it| *it == 0).filter(|it| !it.is_empty() && !OVERLAY_IDS.contains(it) && !is_security(it));
    let mut value = vec![0; MAX_XATTR];
    let mut found = BTreeMap::new();
    for name in names {
        let length = fgetxattr(file, name, &mut value[..])?;
        found.insert(name.to_vec(), value[..length].to_vec());
    }
    Ok(found)
}

/// Labels that a security module sets itself, beside capabilities of programs.
fn is_security(name: &[u8]) -> bool {
    name.starts_with(b"security.") && name != b"security.capability"
}

/// Each ends with a zero byte.
fn xattr_names(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut names = vec![0; 512];
    loop {
        match flistxattr(file, &mut names[..]) {
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(Errno::RANGE) if names.len() < MAX_XATTR => names.resize(MAX_XATTR, 0),
            listed => {
                names.truncate(listed?);
                return Ok(names);
            }
        }
    }
}

fn uid(stat: &Stat) -> Uid {
    Uid::from_raw(stat.st_uid)
}

fn gid(stat: &Stat) -> Gid {
    Gid::from_raw(stat.st_gid)
}

/// Times of access and of change of content.
#[expect(clippy::unnecessary_cast, reason = "of another type on other machines")]
pub(super) fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    Timestamps {
        last_access: time(stat.st_atime as i64, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
    }
}
