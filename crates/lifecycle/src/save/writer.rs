//! Writes a save: its parts, then its manifest.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use coracle_archive::transfer::{self, Limits, Writer};
use coracle_host::fs::{ContentDigest, digest, sync_entry};
use coracle_types::Ids;
use jiff::Timestamp;
use tempfile::TempDir;

use super::error::{SaveError, SaveError::Disk};
use super::manifest::{PartKind, SaveManifest, SavedItem, SavedPart};
use super::saves::{MANIFEST, Save, SaveDestination, clear, time_name};
use crate::store::{own_directory, write_whole};

/// Files in one archive.
const MAX_ENTRIES: u64 = 200_000;

/// Times that are tried for the name of a staged save.
const MAX_TRIES: u32 = 1000;

/// The names of staging directories begin so. The owner of their directory removes abandoned ones.
pub const STAGING_PREFIX: &str = "save-";

/// A save that is not finished: it has no manifest yet.
#[derive(Debug)]
pub struct SaveWriter {
    above: PathBuf,
    /// Where the parts are.
    dir: PathBuf,
    staging: Option<TempDir>,
    manifest: SaveManifest,
    /// The owner of files in archives.
    owner: Ids,
    /// Bytes that still fit.
    left: u64,
    next: u32,
}

impl SaveWriter {
    /// Writes where the save will be. The caller holds the container's lock: without it, the next cleanup removes what
    /// has no manifest. No directory is created before there is something to save.
    pub(super) fn in_place(destination: SaveDestination, max_bytes: u64) -> Self {
        let SaveDestination { dir: above, manifest } = destination;
        let (dir, owner) = (above.join(time_name(manifest.at)), manifest.exec_user.unwrap_or(Ids::ROOT));
        Self { above, dir, staging: None, manifest, owner, left: max_bytes, next: 0 }
    }

    /// Writes into a temporary directory below `temp`, and moves it when it is finished: for a caller without the
    /// container's lock.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn staged(destination: SaveDestination, temp: &Path, max_bytes: u64) -> io::Result<Self> {
        let staging = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(temp)?;
        let writer = Self::in_place(destination, max_bytes);
        Ok(Self { dir: staging.path().to_owned(), staging: Some(staging), ..writer })
    }

    /// Bytes that still fit.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Where a part of this name is written, for a caller that writes it itself and then [seals](Self::seal) it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn file(&self, name: &str) -> Result<File, SaveError> {
        self.make_dir().map_err(Disk)?;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(self.path(name)).map_err(Disk)
    }

    fn make_dir(&self) -> io::Result<()> {
        if self.dir.is_dir() {
            return Ok(());
        }
        own_directory(&self.above).map_err(io::Error::other)?;
        DirBuilder::new().mode(0o700).create(&self.dir)
    }

    fn part_name(&self, what: PartKind) -> String {
        format!("{}.{}", self.next, what.ending())
    }

    /// A new part of an item, to be written and then [kept](Self::keep).
    pub(super) fn part(&mut self, what: PartKind) -> Result<PartWriter, SaveError> {
        let name = self.part_name(what);
        Ok(PartWriter { file: self.file(&name)?, name, what, bytes: 0, left: self.left })
    }

    /// A new archive of an item, to be filled and then [kept](Self::keep_archive).
    pub(super) fn archive(&mut self) -> Result<ArchiveWriter, SaveError> {
        self.archive_named(self.part_name(PartKind::Archive), self.owner)
    }

    /// As a file of this name, with files of this owner.
    ///
    /// # Errors
    /// [`SaveError::Disk`].
    pub fn archive_named(&self, name: String, owner: Ids) -> Result<ArchiveWriter, SaveError> {
        let limits = Limits { max_bytes: self.left, max_entries: MAX_ENTRIES };
        Ok(ArchiveWriter { tar: Writer::new(self.file(&name)?, owner, limits), name })
    }

    /// Adds a complete part to its item.
    pub(super) fn keep(&mut self, item: &mut SavedItem, part: PartWriter) -> Result<(), SaveError> {
        self.seal(item, part.name, part.what)
    }

    /// Adds a complete archive to its item. An empty one is removed.
    ///
    /// # Errors
    /// [`SaveError`] when it cannot be written.
    pub fn keep_archive(&mut self, item: &mut SavedItem, archive: ArchiveWriter) -> Result<(), SaveError> {
        let (_, moved) = archive.tar.finish()?;
        if moved.files + moved.dirs == 0 {
            return std::fs::remove_file(self.path(&archive.name)).map_err(Disk);
        }
        item.files += moved.files;
        self.seal(item, archive.name, PartKind::Archive)
    }

    /// Adds a file of the save's directory to an item, with its digest, once it is on the disk.
    ///
    /// # Errors
    /// [`SaveError::Disk`].
    pub fn seal(&mut self, item: &mut SavedItem, file: String, what: PartKind) -> Result<(), SaveError> {
        let sealed = File::open(self.path(&file)).and_then(|it| it.sync_all().and_then(|()| digest(&it)));
        let ContentDigest { bytes, sha256 } = sealed.map_err(Disk)?;
        self.left = self.left.saturating_sub(bytes);
        item.bytes += bytes;
        item.parts.push(SavedPart { file, what, bytes, sha256 });
        Ok(())
    }

    /// Removes a part that is not needed.
    pub(super) fn drop_part(&self, part: &PartWriter) -> Result<(), SaveError> {
        std::fs::remove_file(self.path(&part.name)).map_err(Disk)
    }

    /// Adds an item whose parts are complete. One without parts is not added, unless it lists omissions.
    pub fn add(&mut self, item: SavedItem) {
        self.next += 1;
        if !item.parts.is_empty() || item.left_out.count + item.deleted.count > 0 {
            self.manifest.items.push(item);
        }
    }

    /// Writes the manifest, unless the save is empty. The save is on the disk when this returns, so that what it was made
    /// of may be removed.
    ///
    /// # Errors
    /// [`SaveError::Disk`]: nothing is left of the save.
    pub fn finish(mut self) -> Result<Option<Save>, SaveError> {
        if self.manifest.items.is_empty() {
            return Ok(None);
        }
        let location = match self.staging.take() {
            Some(staging) => self.place(&staging),
            None => self.make_dir().and_then(|()| self.write_manifest()).map(|()| self.dir.clone()),
        };
        let location = location.and_then(|dir| sync_name(&dir).inspect_err(|_| clear(&dir)).map(|()| dir));
        let location = location.inspect_err(|_| clear(&self.dir)).map_err(Disk)?;
        Ok(Save::new(location, self.manifest))
    }

    fn write_manifest(&self) -> io::Result<()> {
        write_whole(&self.path(MANIFEST), &self.manifest.to_bytes()).map_err(io::Error::other)
    }

    /// Moves the staged directory to the name of its time, or of a later millisecond if that is taken.
    fn place(&mut self, staging: &TempDir) -> io::Result<PathBuf> {
        own_directory(&self.above).map_err(io::Error::other)?;
        self.manifest.at = Timestamp::now();
        for _ in 0..MAX_TRIES {
            self.write_manifest()?;
            let dir = self.above.join(time_name(self.manifest.at));
            match std::fs::rename(staging.path(), &dir) {
                Err(err) if matches!(err.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                    self.manifest.at += jiff::SignedDuration::from_millis(1);
                }
                renamed => return renamed.map(|()| dir),
            }
        }
        Err(io::Error::other("there are too many"))
    }

    /// Removes what was written.
    pub(super) fn give_up(self) {
        clear(&self.dir);
    }
}

/// Directories above a save that may be new: that of its container, that of all saves, and the state directory.
const ABOVE_A_SAVE: usize = 3;

/// Writes the name of a save to the disk. Its directory was synced with its manifest.
fn sync_name(dir: &Path) -> io::Result<()> {
    dir.ancestors().take(ABOVE_A_SAVE).try_for_each(sync_entry)
}

impl SavedItem {
    /// Adds a link to the item's archive, unless it leads out of the tree.
    pub(super) fn add_link(
        &mut self,
        tar: &mut Writer,
        path: &str,
        target: &str,
        mtime: Option<u64>,
    ) -> Result<(), SaveError> {
        if !tar.link_within(&format!("{}/{path}", self.top()), target, mtime)? {
            self.left_out.add(path, format!("it is a link out of the tree, to `{}`", target.escape_debug()));
        }
        Ok(())
    }
}

/// An archive that is being written.
#[derive(Debug)]
pub struct ArchiveWriter {
    name: String,
    /// Its content.
    pub tar: Writer,
}

/// A part that is being written.
#[derive(Debug)]
pub(super) struct PartWriter {
    file: File,
    name: String,
    what: PartKind,
    bytes: u64,
    left: u64,
}

impl PartWriter {
    pub(super) fn at_most(self, bytes: u64) -> Self {
        Self { left: self.left.min(bytes), ..self }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.left {
            return Err(SaveError::TooLarge);
        }
        io::Write::write_all(&mut self.file, bytes).map_err(Disk)
    }

    /// Whether it begins as such a part does. Git inside may print anything; the work is saved in another way then.
    pub(super) fn looks_right(&self) -> bool {
        let begins: &[&[u8]] = match self.what {
            PartKind::Bundle => &[b"# v2 git bundle\n", b"# v3 git bundle\n"],
            PartKind::Staged => &[b"diff --git "],
            PartKind::Archive => &[b""],
        };
        let mut start = [0; 16];
        let read = self.file.read_at(&mut start, 0).unwrap_or(0);
        begins.iter().any(|it| start[..read].starts_with(it))
    }
}

impl From<transfer::Error> for SaveError {
    fn from(err: transfer::Error) -> Self {
        match err {
            transfer::Error::TooMany(_) | transfer::Error::TooLarge(_) => Self::TooLarge,
            transfer::Error::Io { source, .. } => Disk(source),
        }
    }
}
