//! Visits a directory in canonical order.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use coracle_archive::tar::{EntryKind, FileTime, TarEntry};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, fstat, openat, openat2};

use super::super::LayerRefusal;
use super::disk::{DiskEntry, DiskReader};
use super::{OPAQUE, OverlayForm, WHITEOUT};

/// Receives the entries of a directory.
pub(crate) trait TreeSink {
    /// Receives an entry. A file's content can be opened by its position.
    fn take_entry(&mut self, entry: &TarEntry, at: EntryPosition<'_>) -> io::Result<()>;
}

/// The position of an entry on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPosition<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    pub(crate) inode: u64,
}

impl EntryPosition<'_> {
    /// Opens the content of a file. Does not block, even if a named pipe has replaced it meanwhile.
    pub(crate) fn open(self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(self.dir, self.name, flags | OFlags::NOATIME, Mode::empty()) {
            // Only the owner may use `O_NOATIME`.
            Err(rustix::io::Errno::PERM) => openat(self.dir, self.name, flags, Mode::empty())?,
            done => done?,
        };
        if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        Ok(opened.into())
    }
}

/// A decision about an entry.
pub(crate) type Select<'a> = dyn Fn(&[u8], EntryPosition<'_>) -> io::Result<Selection> + 'a;

/// Options for visiting a directory.
pub(crate) struct WalkOptions<'a> {
    pub(crate) overlay: OverlayForm,
    /// Decides about each entry by its relative path.
    pub(crate) select: &'a Select<'a>,
}

/// Whether an entry is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Take,
    Leave,
}

impl WalkOptions<'_> {
    /// Options to visit everything.
    pub(crate) fn all(overlay: OverlayForm) -> Self {
        Self { overlay, select: &|_, _| Ok(Selection::Take) }
    }
}

/// Visits `root` as `./`, and then everything below it.
pub(crate) fn walk(root: BorrowedFd<'_>, options: &WalkOptions<'_>, sink: &mut dyn TreeSink) -> io::Result<()> {
    let mut it = TreeWalker { root, options, sink, reader: DiskReader::new(options.overlay), links: HashMap::new() };
    let mut pending = vec![it.root()?];
    while let Some(dir) = pending.pop() {
        let inner = it.directory(&dir).map_err(|err| at_path(&dir, err))?;
        pending.extend(inner.into_iter().rev());
    }
    Ok(())
}

struct TreeWalker<'a> {
    root: BorrowedFd<'a>,
    options: &'a WalkOptions<'a>,
    sink: &'a mut dyn TreeSink,
    reader: DiskReader,
    /// The first path of each file with several names.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl TreeWalker<'_> {
    fn root(&mut self) -> io::Result<Vec<u8>> {
        let found = self.reader.read(self.root, c".")?;
        let DiskEntry { mut entry, opaque, stat } = found.ok_or(io::ErrorKind::NotADirectory)?;
        entry.path = b"./".to_vec();
        let at = EntryPosition { dir: self.root, name: c".", inode: stat.st_ino };
        self.sink.take_entry(&entry, at)?;
        if opaque {
            self.sink.take_entry(&marker(OPAQUE.to_vec()), at)?;
        }
        Ok(Vec::new())
    }

    /// Visits the entries of a directory. Returns the paths of directories to visit.
    fn directory(&mut self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        // Opened again, since a duplicate of the root's descriptor would share its read position.
        let dir = open_beneath(self.root, if path.is_empty() { b"." } else { path })?;
        let mut inner = Vec::new();
        for name in names(&dir)? {
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            if self.visit(&path, dir.as_fd(), &name).map_err(|err| at_path(&path, err))? {
                inner.push(path);
            }
        }
        Ok(inner)
    }

    /// Visits an entry. Returns whether it is a directory to visit.
    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
        let Some(DiskEntry { mut entry, stat, opaque }) = self.reader.read(dir, name)? else { return Ok(false) };
        let at = EntryPosition { dir, name, inode: stat.st_ino };
        if (self.options.select)(path, at)? == Selection::Leave {
            return Ok(false);
        }
        if is_whiteout(&stat) {
            self.sink.take_entry(&marker(with_prefix(path)), at)?;
            return Ok(false);
        }
        let is_dir = entry.kind == EntryKind::Directory;
        entry.path = path.to_vec();
        if is_dir {
            entry.path.push(b'/');
        } else if stat.st_nlink > 1 {
            #[expect(clippy::unnecessary_cast, reason = "of another type on other machines")]
            let first = self.links.entry((stat.st_dev as u64, stat.st_ino)).or_insert_with(|| path.to_vec());
            if first.as_slice() != path {
                entry.kind = EntryKind::HardLink(first.clone());
            }
        }
        self.sink.take_entry(&entry, at)?;
        if opaque {
            self.sink.take_entry(&marker([path, OPAQUE].join(&b'/')), at)?;
        }
        Ok(is_dir)
    }
}

/// Whether an entry is an overlay's whiteout: it hides a name of lower layers.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Creates an empty file entry, the form of whiteouts in archives.
fn marker(path: Vec<u8>) -> TarEntry {
    let kind = EntryKind::File { size: 0, extents: None };
    TarEntry { path, kind, mode: 0, uid: 0, gid: 0, mtime: FileTime::default(), xattrs: Vec::new() }
}

fn with_prefix(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|it| *it == b'/').map_or(0, |it| it + 1);
    [&path[..at], WHITEOUT, &path[at..]].concat()
}

/// Opens a directory below another one, without following links.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // The kernel asks to retry if a concurrent rename makes the result unsafe.
            Err(rustix::io::Errno::AGAIN) => {}
            done => return Ok(done?),
        }
    }
}

/// Lists the names in a directory, sorted.
pub(crate) fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Adds the path to an error. A refusal is not changed: it has the path, and callers find it by its type.
fn at_path(path: &[u8], err: io::Error) -> io::Error {
    let refusal = err.get_ref().and_then(|it| it.downcast_ref::<LayerRefusal>());
    if refusal.is_some() {
        return err;
    }
    io::Error::new(err.kind(), format!("`{}`: {err}", path.escape_ascii()))
}

/// Whether a mode is that of a directory.
pub(crate) fn is_dir(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}
