//! Unpacks symbolic links, devices and pipes, and sets the attributes of all entries.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use coracle_archive::tar::{Device, EntryKind, TarEntry, Xattr};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, lsetxattr, makedev,
    mknodat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::super::LayerRefusal;
use super::super::tree::is_portable;
use super::parents::timestamps;
use super::path::EntryPath;
use super::{Result, Unpack};

/// Maximum length of the target of a symbolic link.
const MAX_TARGET: usize = 4095;

impl Unpack {
    /// Creates an entry without content.
    pub(super) fn node(&mut self, path: &EntryPath, entry: &TarEntry) -> Result<()> {
        let dir = self.parent(path)?;
        let made = match make_node(dir.as_fd(), path, entry)? {
            Err(Errno::EXIST) => {
                self.clear(dir.as_fd(), path)?;
                make_node(dir.as_fd(), path, entry)?
            }
            made => made,
        };
        match made {
            Ok(()) => self.set_node_attributes(dir.as_fd(), path, entry),
            // Device nodes need root.
            Err(Errno::PERM) => {
                self.left_out += 1;
                Ok(())
            }
            Err(err) => Err(err.into()),
        }
    }

    fn set_node_attributes(&mut self, dir: BorrowedFd<'_>, path: &EntryPath, entry: &TarEntry) -> Result<()> {
        let name = path.c_name();
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        self.leave_out_if_foreign(chownat(dir, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))?;
        if !matches!(entry.kind, EntryKind::Symlink(_)) {
            // Nothing else changes the directory, so the name still leads to the node.
            chmodat(dir, &name, Mode::from_raw_mode(entry.mode), AtFlags::empty())?;
        }
        let at = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
        let at = [&at, name.to_bytes()].concat();
        self.set_xattrs(entry, |it| lsetxattr(&*at, &*it.name, &it.value, XattrFlags::empty()))?;
        Ok(utimensat(dir, &name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the owner, mode and attributes of an open file or directory, in an order in which none undoes another.
    pub(super) fn set_attributes(&mut self, file: BorrowedFd<'_>, entry: &TarEntry) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        self.leave_out_if_foreign(fchown(file, Some(uid), Some(gid)))?;
        self.set_mode(file, entry.mode)?;
        self.set_xattrs(entry, |it| fsetxattr(file, &*it.name, &it.value, XattrFlags::empty()))
    }

    pub(super) fn set_mode(&self, file: BorrowedFd<'_>, mode: u32) -> Result<()> {
        Ok(fchmod(file, Mode::from_raw_mode(mode))?)
    }

    /// Sets the attributes that belong to an image. The overlay's own attributes are refused. Others are skipped, since they
    /// concern the host that created the archive.
    fn set_xattrs(&mut self, entry: &TarEntry, set: impl Fn(&Xattr) -> rustix::io::Result<()>) -> Result<()> {
        for it in &entry.xattrs {
            if it.name.starts_with(b"trusted.") || it.name.starts_with(b"user.overlay.") {
                return Err(LayerRefusal::entry(&entry.path, "has an attribute that only the engine may set").into());
            }
            if !is_portable(&it.name) {
                self.left_out += 1;
                continue;
            }
            match set(it) {
                // The file system or the kind of file does not support it, or this user may not set it.
                Err(Errno::NOTSUP | Errno::PERM) => self.left_out += 1,
                Err(Errno::INVAL | Errno::RANGE | Errno::TOOBIG) => {
                    return Err(
                        LayerRefusal::entry(&entry.path, "has an attribute that the kernel does not accept").into()
                    );
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Counts an owner that does not exist in the user namespace. The file then belongs to root.
    fn leave_out_if_foreign(&mut self, done: rustix::io::Result<()>) -> Result<()> {
        match done {
            Err(Errno::INVAL | Errno::PERM) => {
                self.left_out += 1;
                Ok(())
            }
            done => Ok(done?),
        }
    }
}

/// Creates a node, without attributes. The outer result refuses the entry, the inner one is that of the system call.
fn make_node(dir: BorrowedFd<'_>, path: &EntryPath, entry: &TarEntry) -> Result<rustix::io::Result<()>> {
    let name = path.c_name();
    let mode = Mode::from_raw_mode(0o600);
    let device = |kind: FileType, it: &Device| mknodat(dir, &name, kind, mode, makedev(it.major, it.minor));
    Ok(match &entry.kind {
        EntryKind::Symlink(target) if target.is_empty() || target.len() > MAX_TARGET => {
            return Err(
                LayerRefusal::entry(&entry.path, "is a symbolic link without a target, or with one too long").into()
            );
        }
        EntryKind::Symlink(target) => symlinkat(&**target, dir, &name),
        EntryKind::CharDevice(it) => device(FileType::CharacterDevice, it),
        EntryKind::BlockDevice(it) => device(FileType::BlockDevice, it),
        EntryKind::Fifo => mknodat(dir, &name, FileType::Fifo, mode, 0),
        EntryKind::File { .. } | EntryKind::Directory | EntryKind::HardLink(_) | EntryKind::Unknown(_) => {
            Err(Errno::INVAL)
        }
    })
}
