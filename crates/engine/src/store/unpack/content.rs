//! Unpacks regular files and hard links.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use coracle_archive::tar::{Extent, TarEntry};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, futimens, linkat, openat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::super::LayerRefusal;
use super::super::tree::{is_dir, is_whiteout, open_beneath};
use super::parents::{is_missing, timestamps};
use super::path::EntryPath;
use super::{ContentSource, Result, Unpack};
use crate::cancel::CancelFlag;

/// Bytes of holes that are hashed between two checks for cancellation.
const LOOK: usize = 16 << 20;

/// The content of a file that follows in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileContent<'a> {
    pub(super) size: u64,
    pub(super) extents: Option<&'a [Extent]>,
}

impl Unpack {
    pub(super) fn file(
        &mut self,
        path: &EntryPath,
        entry: &TarEntry,
        content: FileContent<'_>,
        source: &mut dyn ContentSource,
    ) -> Result<()> {
        let dir = self.parent(path)?;
        let file = File::from(self.create_file(dir.as_fd(), path)?);
        if content.size > 0 {
            let is_shared = source.reflink(file.as_fd());
            let hash = self.options.hash_contents.then(Sha256::new);
            let mut writer = FileWriter { file: &file, source, is_shared, hash, cancel: &self.options.cancel };
            writer.write(content, &mut self.buffer)?;
            if let Some(hash) = writer.hash {
                self.contents.insert(fstat(&file)?.st_ino, hash.finalize().into());
            }
        }
        self.set_attributes(file.as_fd(), entry)?;
        Ok(futimens(&file, &timestamps(entry.mtime))?)
    }

    fn create_file(&mut self, dir: BorrowedFd<'_>, path: &EntryPath) -> Result<OwnedFd> {
        let name = path.c_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir, &name, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::EXIST) => self.clear(dir, path)?,
            done => return Ok(done?),
        }
        Ok(openat(dir, &name, flags, Mode::from_raw_mode(0o600))?)
    }

    /// Creates a hard link to a file of this layer.
    pub(super) fn hard_link(&mut self, path: &EntryPath, target: &[u8]) -> Result<()> {
        let refused = |why: &str| LayerRefusal::entry(path.as_bytes(), why);
        // Some programs write absolute targets, which are relative to the layer's root.
        let relative = target.iter().position(|it| *it != b'/').map_or(target, |at| &target[at..]);
        let target = EntryPath::parse(relative, self.options.max_depth)?;
        if target == *path || target.is_root() {
            return Err(refused("is a hard link to itself or to the root").into());
        }
        // Counted, since the walk of the finished tree keeps one path for each such file in memory.
        self.count_path(path.as_bytes())?;
        self.count_path(target.as_bytes())?;
        // Comes first, since creating the parent may replace a whiteout that the target names.
        let dir = self.parent(path)?;
        let above = if target.parent().is_empty() { b"." } else { target.parent() };
        let from = match open_beneath(self.root.as_fd(), above) {
            Err(err) if is_missing(&err) => return Err(refused("is a hard link to nothing").into()),
            done => done?,
        };
        let is_linkable = match statat(&from, target.c_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => !is_dir(stat.st_mode) && !is_whiteout(&stat),
            Err(Errno::NOENT) => false,
            Err(err) => return Err(err.into()),
        };
        if !is_linkable {
            return Err(refused("is a hard link to what is no file of this layer").into());
        }
        let link = || linkat(&from, target.c_name(), &dir, path.c_name(), AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {}
            done => return Ok(done?),
        }
        // Replacing a directory that contains the target would remove the target.
        if target.as_bytes().starts_with(&[path.as_bytes(), b"/"].concat()) {
            return Err(refused("is a hard link to what lies in it").into());
        }
        self.clear(dir.as_fd(), path)?;
        Ok(link()?)
    }
}

/// A file that is being written.
struct FileWriter<'a> {
    file: &'a File,
    source: &'a mut dyn ContentSource,
    /// Whether the content is shared already, and is only read.
    is_shared: bool,
    /// The digest of the content, including the zeros of holes.
    hash: Option<Sha256>,
    cancel: &'a CancelFlag,
}

impl FileWriter<'_> {
    fn write(&mut self, content: FileContent<'_>, buffer: &mut [u8]) -> Result<()> {
        let whole = [Extent { offset: 0, length: content.size }];
        let mut at = 0;
        for extent in content.extents.unwrap_or(&whole) {
            self.hash_zeros(extent.offset - at)?;
            if extent.offset > at {
                (&*self.file).seek(SeekFrom::Start(extent.offset))?;
            }
            self.write_extent(extent.length, buffer)?;
            at = extent.offset + extent.length;
        }
        self.hash_zeros(content.size - at)?;
        // The last extent may be empty or missing.
        if content.extents.is_some() && !self.is_shared {
            self.file.set_len(content.size)?;
        }
        Ok(())
    }

    fn write_extent(&mut self, mut length: u64, buffer: &mut [u8]) -> Result<()> {
        while length > 0 {
            let wanted = usize::try_from(length).map_or(buffer.len(), |it| it.min(buffer.len()));
            let count = self.source.read_content(&mut buffer[..wanted])?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            if let Some(hash) = &mut self.hash {
                hash.update(&buffer[..count]);
            }
            if !self.is_shared {
                (&*self.file).write_all(&buffer[..count])?;
            }
            length -= count as u64;
        }
        Ok(())
    }

    /// Hashes zeros for a hole. Checks for cancellation itself, since it reads nothing that could end.
    fn hash_zeros(&mut self, mut count: u64) -> Result<()> {
        const ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        let mut part_of_look = 0;
        while let Some(hash) = self.hash.as_mut().filter(|_| count > 0) {
            let part = usize::try_from(count).map_or(ZEROS.len(), |it| it.min(ZEROS.len()));
            hash.update(&ZEROS[..part]);
            count -= part as u64;
            part_of_look += part;
            if part_of_look >= LOOK {
                part_of_look = 0;
                self.cancel.check()?;
            }
        }
        Ok(())
    }
}
