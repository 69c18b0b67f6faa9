//! Writes files to a tar.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use cap_std::fs::{Dir, MetadataExt as _, PermissionsExt as _};
use coracle_types::Ids;

use super::{Error, Limits, MAX_DEPTH, TransferReport, io_error, stays_inside};
use crate::tar::{self, EntryKind, FileTime, GrowingFile, TarEntry};

/// Writes a tar in which every entry belongs to one user.
#[derive(Debug)]
pub struct Writer {
    tar: tar::Writer<File>,
    owner: Ids,
    limits: Limits,
    moved: TransferReport,
    /// The default time, in seconds since 1970.
    now: u64,
}

/// Metadata of an entry.
#[derive(Clone, Copy, Debug)]
struct Meta {
    mode: u32,
    mtime: u64,
}

/// An entry of a directory in a tree.
#[derive(Debug)]
struct TreeEntry<'a> {
    /// The directory's path within the tree, for checking links.
    parent: &'a str,
    name: &'a str,
    /// Its own path within the tree.
    within: &'a str,
}

impl Writer {
    /// Writes to a file from its current offset.
    #[must_use]
    pub fn new(into: File, owner: Ids, limits: Limits) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { tar: tar::Writer::new(into), owner, limits, moved: TransferReport::default(), now }
    }

    /// Adds a directory. `mtime` is in seconds since 1970; the default, here and below, is the current time.
    ///
    /// # Errors
    /// [`Error`] if a limit is reached or the file cannot be written.
    pub fn dir(&mut self, path: &str, mode: u32, mtime: Option<u64>) -> Result<(), Error> {
        self.moved.dirs += 1;
        self.moved.count(&self.limits, 0)?;
        let meta = Meta { mode, mtime: mtime.unwrap_or(self.now) };
        let entry = self.entry_of(&format!("{path}/"), EntryKind::Directory, meta);
        self.tar.write_entry(&entry).map_err(io_error(path))
    }

    /// Adds a file with these bytes.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir).
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), Error> {
        let meta = Meta { mode, mtime: self.now };
        self.regular(path, meta, bytes.len() as u64, bytes)
    }

    /// Adds a file whose content arrives in pieces. It is part of the archive once it is finished.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir).
    pub fn begin(&mut self, path: &str, mode: u32, mtime: Option<u64>) -> Result<StreamedEntry<'_>, Error> {
        let meta = Meta { mode, mtime: mtime.unwrap_or(self.now) };
        let entry = self.entry_of(path, EntryKind::file(0), meta);
        let file = self.tar.begin_growing(&entry).map_err(io_error(path))?;
        Ok(StreamedEntry { writer: self, path: path.to_owned(), file, size: 0, ended: false })
    }

    /// Adds a symbolic link, if it stays inside: the first part of `path` is the tree. Returns whether it was added.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir).
    pub fn link_within(&mut self, path: &str, target: &str, mtime: Option<u64>) -> Result<bool, Error> {
        let Some((_, inner)) = path.split_once('/') else { return Ok(false) };
        let parent = inner.rsplit_once('/').map_or("", |it| it.0);
        if !stays_inside(parent, target) {
            return Ok(false);
        }
        self.link(path, target, mtime.unwrap_or(self.now)).map(|()| true)
    }

    /// Adds an open directory with everything below it, under the name `path`.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir), or if something cannot be read.
    pub fn host_dir(&mut self, path: &str, dir: &Dir) -> Result<(), Error> {
        let meta = dir.dir_metadata().map_err(io_error(path))?;
        self.dir(path, meta.permissions().mode() & 0o777, meta.mtime().try_into().ok())?;
        self.tree(dir, path, "")
    }

    /// Adds an open file, with its mode and time.
    ///
    /// # Errors
    /// Those of [`host_file`](Self::host_file).
    pub fn host_file(&mut self, path: &str, file: File) -> Result<(), Error> {
        let meta = file.metadata().map_err(io_error(path))?;
        let (size, meta) = (meta.len(), Meta { mode: meta.mode(), mtime: meta.mtime().try_into().unwrap_or(0) });
        self.regular(path, meta, size, file)
    }

    /// Ends the archive and returns the file at its start.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(self) -> Result<(File, TransferReport), Error> {
        let mut file = self.tar.finish().map_err(io_error("the archive"))?;
        file.rewind().map_err(io_error("the archive"))?;
        Ok((file, self.moved))
    }

    /// `inner` is the directory's path within the tree, for checking links.
    fn tree(&mut self, dir: &Dir, base: &str, inner: &str) -> Result<(), Error> {
        if inner.split('/').count() > MAX_DEPTH {
            self.moved.skip(inner, "nested too deep");
            return Ok(());
        }
        let mut entries: Vec<_> =
            dir.entries().map_err(io_error(base))?.collect::<Result<_, _>>().map_err(io_error(base))?;
        entries.sort_by_key(cap_std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.moved.skip(&name.to_string_lossy(), "its name is not UTF-8");
                continue;
            };
            let (path, within) = (format!("{base}/{name}"), format!("{inner}/{name}"));
            let within = within.trim_start_matches('/');
            self.entry(dir, &path, &TreeEntry { parent: inner, name, within })?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: &Dir, path: &str, entry: &TreeEntry<'_>) -> Result<(), Error> {
        let TreeEntry { parent, name, within } = *entry;
        let meta = dir.symlink_metadata(name).map_err(io_error(path))?;
        let kind = meta.file_type();
        if kind.is_dir() {
            self.dir(path, meta.permissions().mode() & 0o777, meta.mtime().try_into().ok())?;
            return self.tree(&dir.open_dir(name).map_err(io_error(path))?, path, within);
        }
        if kind.is_symlink() {
            let target = dir.read_link_contents(name).map_err(io_error(path))?;
            return match target.to_str() {
                Some(target) if stays_inside(parent, target) => {
                    self.link(path, target, meta.mtime().try_into().unwrap_or(0))
                }
                _ => {
                    self.moved.skip(within, "the link leads out of the tree");
                    Ok(())
                }
            };
        }
        if !kind.is_file() {
            self.moved.skip(within, "it is neither a file nor a directory");
            return Ok(());
        }
        let file = dir.open(name).map_err(io_error(path))?.into_std();
        let (size, mode) = (meta.len(), meta.permissions().mode());
        self.regular(path, Meta { mode, mtime: meta.mtime().try_into().unwrap_or(0) }, size, file)
    }

    /// Adds a file, which may shrink or grow while it is read; the archive contains exactly the size in its header.
    fn regular(&mut self, path: &str, meta: Meta, size: u64, content: impl io::Read) -> Result<(), Error> {
        self.moved.files += 1;
        self.moved.count(&self.limits, size)?;
        let entry = self.entry_of(path, EntryKind::file(size), meta);
        self.tar.write_file(&entry, content).map_err(io_error(path))
    }

    fn link(&mut self, path: &str, target: &str, mtime: u64) -> Result<(), Error> {
        self.moved.files += 1;
        self.moved.count(&self.limits, 0)?;
        let entry = self.entry_of(path, EntryKind::Symlink(target.into()), Meta { mode: 0o777, mtime });
        self.tar.write_entry(&entry).map_err(io_error(path))
    }

    fn entry_of(&self, path: &str, kind: EntryKind, meta: Meta) -> TarEntry {
        let mtime = FileTime::from_seconds(i64::try_from(meta.mtime).unwrap_or(i64::MAX));
        let Ids { uid, gid } = self.owner;
        TarEntry { uid, gid, mtime, ..TarEntry::new(path, kind, meta.mode & 0o777) }
    }
}

/// A file that is being added. Dropping it removes it.
#[derive(Debug)]
pub struct StreamedEntry<'a> {
    writer: &'a mut Writer,
    path: String,
    file: GrowingFile,
    /// Bytes that count towards the limit, and are subtracted if it is dropped.
    size: u64,
    ended: bool,
}

impl StreamedEntry<'_> {
    /// Adds content.
    ///
    /// # Errors
    /// [`Error`] if a limit is reached or the archive cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.size += bytes.len() as u64;
        self.writer.moved.count(&self.writer.limits, bytes.len() as u64)?;
        self.writer.tar.grow(&mut self.file, bytes).map_err(io_error(&self.path))
    }

    /// Ends the file, and returns its length.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn end(mut self) -> Result<u64, Error> {
        self.writer.moved.files += 1;
        self.writer.moved.count(&self.writer.limits, 0)?;
        self.writer.tar.end_growing(&mut self.file).map_err(io_error(&self.path))?;
        self.ended = true;
        Ok(self.size)
    }
}

impl Drop for StreamedEntry<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.writer.moved.bytes -= self.size;
            // If this fails too, the archive is unusable, and the next write reports it.
            let _ = self.writer.tar.remove_growing(&self.file);
        }
    }
}
