//! Writes files to a tar.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use cap_std::fs::{Dir, MetadataExt as _, PermissionsExt as _};
use coracle_types::Ids;

use super::{Error, Limits, MAX_DEPTH, TransferReport, io_error, stays_inside};
use crate::fs::HostPath;

/// Writes a tar whose every entry belongs to one user.
#[derive(Debug)]
pub struct Writer {
    tar: Tar,
    owner: Ids,
    limits: Limits,
    moved: TransferReport,
    /// The time of what has none of its own, in seconds since 1970.
    now: u64,
}

struct Tar(tar::Builder<File>);

impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tar")
    }
}

/// Metadata of an entry.
#[derive(Debug)]
struct Meta {
    kind: tar::EntryType,
    mode: u32,
    size: u64,
    mtime: u64,
}

/// An entry of a directory in a tree.
#[derive(Debug)]
struct TreeEntry<'a> {
    /// The directory's path within the tree, for judging links.
    parent: &'a str,
    name: &'a str,
    /// Its own path within the tree.
    within: &'a str,
}

impl Writer {
    /// Writes into a file from its present offset.
    #[must_use]
    pub fn new(into: File, owner: Ids, limits: Limits) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { tar: Tar(tar::Builder::new(into)), owner, limits, moved: TransferReport::default(), now }
    }

    /// A directory. `mtime` is in seconds since 1970; without it, here and below, the time is that of the writer.
    ///
    /// # Errors
    /// [`Error`] when a bound is reached or the file cannot be written.
    pub fn dir(&mut self, path: &str, mode: u32, mtime: Option<u64>) -> Result<(), Error> {
        self.moved.dirs += 1;
        let mtime = mtime.unwrap_or(self.now);
        let meta = Meta { kind: tar::EntryType::Directory, mode, size: 0, mtime };
        self.append(&format!("{path}/"), &meta, io::empty())
    }

    /// A file with these bytes.
    ///
    /// # Errors
    /// As [`dir`](Self::dir).
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), Error> {
        self.moved.files += 1;
        let meta = Meta { kind: tar::EntryType::Regular, mode, size: bytes.len() as u64, mtime: self.now };
        self.append(path, &meta, bytes)
    }

    /// A file whose content arrives in pieces. It is part of the archive once it is finished.
    ///
    /// # Errors
    /// As [`dir`](Self::dir).
    pub fn begin(&mut self, path: &str, mode: u32, mtime: Option<u64>) -> Result<StreamedEntry<'_>, Error> {
        let mtime = mtime.unwrap_or(self.now);
        let meta = Meta { kind: tar::EntryType::Regular, mode, size: 0, mtime };
        let start = self.tar.0.get_mut().stream_position().map_err(io_error(path))?;
        let growing = StreamedEntry { writer: self, path: path.to_owned(), meta, start, ended: false };
        // The length is written over this one, which is as long, when it is known.
        growing.writer.head(path, &growing.meta)?;
        Ok(growing)
    }

    /// A symbolic link, if it stays inside: the first part of `path` names the tree. Whether it did.
    ///
    /// # Errors
    /// As [`dir`](Self::dir).
    pub fn link_within(&mut self, path: &str, target: &str, mtime: Option<u64>) -> Result<bool, Error> {
        let Some((_, inner)) = path.split_once('/') else { return Ok(false) };
        let parent = inner.rsplit_once('/').map_or("", |it| it.0);
        if !stays_inside(parent, target) {
            return Ok(false);
        }
        self.link(path, target, mtime.unwrap_or(self.now)).map(|()| true)
    }

    /// A file of the host, or a directory with all that lies below it, under the name `path`.
    ///
    /// # Errors
    /// As [`dir`](Self::dir), or when something cannot be read.
    pub fn host(&mut self, from: &HostPath, path: &str) -> Result<(), Error> {
        if from.is_dir() {
            let dir = from.dir().map_err(io_error(path))?;
            let meta = dir.dir_metadata().map_err(io_error(path))?;
            self.dir(path, meta.permissions().mode() & 0o777, meta.mtime().try_into().ok())?;
            return self.tree(&dir, path, "");
        }
        let file = from.file().map_err(io_error(path))?;
        let meta = file.metadata().map_err(io_error(path))?;
        let mtime = meta.mtime().try_into().unwrap_or(0);
        self.regular(path, &Meta { kind: tar::EntryType::Regular, mode: meta.mode(), size: meta.len(), mtime }, file)
    }

    /// Ends the archive and gives the file back at its begin.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self) -> Result<(File, TransferReport), Error> {
        let mut file = self.tar.0.into_inner().map_err(io_error("the archive"))?;
        file.rewind().map_err(io_error("the archive"))?;
        Ok((file, self.moved))
    }

    /// `inner` is the directory's path within the tree, for judging links.
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
        let (mode, mtime) = (meta.permissions().mode(), meta.mtime().try_into().unwrap_or(0));
        self.regular(path, &Meta { kind: tar::EntryType::Regular, mode, size: meta.len(), mtime }, file)
    }

    /// A file may shrink or grow while it is read; the archive holds exactly the size in its header.
    fn regular(&mut self, path: &str, meta: &Meta, file: File) -> Result<(), Error> {
        self.moved.files += 1;
        self.append(path, meta, file.take(meta.size).chain(io::repeat(0)).take(meta.size))
    }

    fn link(&mut self, path: &str, target: &str, mtime: u64) -> Result<(), Error> {
        self.moved.files += 1;
        self.moved.count(&self.limits, 0)?;
        let mut header = self.header(&Meta { kind: tar::EntryType::Symlink, mode: 0o777, size: 0, mtime });
        self.tar.0.append_link(&mut header, path, target).map_err(io_error(path))
    }

    fn append(&mut self, path: &str, meta: &Meta, data: impl Read) -> Result<(), Error> {
        self.moved.count(&self.limits, meta.size)?;
        let mut header = self.header(meta);
        self.tar.0.append_data(&mut header, path, data).map_err(io_error(path))
    }

    /// Name and numbers of an entry, without its content.
    fn head(&mut self, path: &str, meta: &Meta) -> Result<(), Error> {
        let mut header = self.header(meta);
        self.tar.0.append_data(&mut header, path, io::empty()).map_err(io_error(path))
    }

    fn header(&self, meta: &Meta) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(meta.kind);
        header.set_mode(meta.mode & 0o777);
        header.set_size(meta.size);
        header.set_mtime(meta.mtime);
        header.set_uid(self.owner.uid.into());
        header.set_gid(self.owner.gid.into());
        header
    }
}

/// A file on its way into an archive. One that is dropped has never been in it.
#[derive(Debug)]
pub struct StreamedEntry<'a> {
    writer: &'a mut Writer,
    path: String,
    meta: Meta,
    /// Offset of its header.
    start: u64,
    ended: bool,
}

impl StreamedEntry<'_> {
    /// More of its content.
    ///
    /// # Errors
    /// [`Error`] when a bound is reached or the archive cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.meta.size += bytes.len() as u64;
        self.writer.moved.count(&self.writer.limits, bytes.len() as u64)?;
        self.writer.tar.0.get_mut().write_all(bytes).map_err(io_error(&self.path))
    }

    /// Ends the file, and gives its length.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end(mut self) -> Result<u64, Error> {
        self.writer.moved.files += 1;
        self.writer.moved.count(&self.writer.limits, 0)?;
        let size = self.meta.size;
        let padding = vec![0; usize::try_from(size.next_multiple_of(512) - size).unwrap_or(0)];
        self.seal(&padding).map_err(io_error(&self.path))?;
        self.ended = true;
        Ok(size)
    }

    fn seal(&mut self, padding: &[u8]) -> io::Result<()> {
        let file = self.writer.tar.0.get_mut();
        file.write_all(padding)?;
        let end = file.stream_position()?;
        file.seek(SeekFrom::Start(self.start))?;
        self.writer.head(&self.path, &self.meta).map_err(io::Error::other)?;
        self.writer.tar.0.get_mut().seek(SeekFrom::Start(end)).map(drop)
    }
}

impl Drop for StreamedEntry<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.writer.moved.bytes -= self.meta.size;
        let file = self.writer.tar.0.get_mut();
        // If this fails, too, the archive is lost, and the next write reports it.
        let _ = file.set_len(self.start).and_then(|()| file.seek(SeekFrom::Start(self.start)));
    }
}
