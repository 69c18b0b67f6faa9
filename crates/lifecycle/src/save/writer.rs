//! Where saves lie: `saved/<name>/<time>/` of the state directory, each made in one go and then only read.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use coracle_runtime::ContainerName;
use coracle_runtime::archive::{Limits, Writer};
use coracle_runtime::{Ids, archive};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::error::{SaveError, SaveError::Disk};
use super::manifest::{PartKind, SaveManifest, SavedItem, SavedPart};
use crate::record::Record;
use crate::store::{key_of, own_directory, read_own, write_whole};
use crate::{Result, Store, StoreError};

const MANIFEST: &str = "manifest.json";

/// Files in one archive.
const MAX_ENTRIES: u64 = 200_000;

/// A save on its way. One that is dropped unfinished has no manifest, and goes with the next look.
#[derive(Debug)]
pub(super) struct SaveWriter {
    above: PathBuf,
    dir: PathBuf,
    manifest: SaveManifest,
    /// Whose the files are.
    owner: Ids,
    /// Bytes that still fit.
    left: u64,
    next: u32,
}

impl SaveWriter {
    /// Nothing is made before there is something to save.
    pub(super) fn new(store: &Store, record: &Record, max_bytes: u64, pruned: &[&str]) -> Self {
        let at = Timestamp::now();
        let above = store.saved_dir().join(key_of(&record.name));
        let dir = above.join(word(at));
        let owner = record.exec_user.unwrap_or(Ids::ROOT);
        Self { above, dir, manifest: SaveManifest::new(record, at, pruned), owner, left: max_bytes, next: 0 }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes that still fit.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn file(&mut self, name: &str) -> Result<File, SaveError> {
        self.make_dir().map_err(Disk)?;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(self.dir.join(name)).map_err(Disk)
    }

    fn make_dir(&self) -> io::Result<()> {
        if self.dir.is_dir() {
            return Ok(());
        }
        own_directory(&self.above).map_err(io::Error::other)?;
        DirBuilder::new().mode(0o700).create(&self.dir)
    }

    /// A new part of an item, to be written by hand and then [`kept`](Self::keep).
    pub(super) fn part(&mut self, what: PartKind) -> Result<PartWriter, SaveError> {
        let name = format!("{}.{}", self.next, what.ending());
        Ok(PartWriter { file: self.file(&name)?, name, what, bytes: 0, left: self.left })
    }

    /// A part that is an archive.
    pub(super) fn archive(&mut self) -> Result<(String, Writer), SaveError> {
        let name = format!("{}.{}", self.next, PartKind::Archive.ending());
        let limits = Limits { max_bytes: self.left, max_entries: MAX_ENTRIES };
        Ok((name.clone(), Writer::new(self.file(&name)?, self.owner, limits)))
    }

    /// A part is whole, and counts.
    pub(super) fn keep(&mut self, item: &mut SavedItem, draft: PartWriter) -> Result<(), SaveError> {
        self.sealed(item, (draft.name, draft.what), draft.file)
    }

    /// An archive is whole, and counts. One with nothing in it is not kept.
    pub(super) fn keep_archive(&mut self, item: &mut SavedItem, name: String, writer: Writer) -> Result<(), SaveError> {
        let (file, moved) = writer.finish()?;
        if moved.files + moved.dirs == 0 {
            return std::fs::remove_file(self.dir.join(name)).map_err(Disk);
        }
        item.files += moved.files;
        self.sealed(item, (name, PartKind::Archive), file)
    }

    fn sealed(
        &mut self,
        item: &mut SavedItem,
        (name, what): (String, PartKind),
        mut file: File,
    ) -> Result<(), SaveError> {
        use std::io::Seek;
        file.sync_all().map_err(Disk)?;
        file.rewind().map_err(Disk)?;
        let (bytes, sha256) = sum(file).map_err(Disk)?;
        self.left = self.left.saturating_sub(bytes);
        item.bytes += bytes;
        item.parts.push(SavedPart { file: name, what, bytes, sha256 });
        Ok(())
    }

    /// A part is not wanted after all.
    pub(super) fn drop_part(&self, draft: PartWriter) -> Result<(), SaveError> {
        drop(draft.file);
        std::fs::remove_file(self.dir.join(draft.name)).map_err(Disk)
    }

    /// The parts of an item are whole. One without parts has nothing to say, unless it says what was left out.
    pub(super) fn add(&mut self, item: SavedItem) {
        self.next += 1;
        if !item.parts.is_empty() || item.left_out.count + item.deleted.count > 0 {
            self.manifest.items.push(item);
        }
    }

    /// Writes the manifest, if there is something to say.
    pub(super) fn finish(self) -> Result<Option<Save>, SaveError> {
        if self.manifest.items.is_empty() {
            return Ok(None);
        }
        self.make_dir().map_err(Disk)?;
        let written = write_whole(&self.dir.join(MANIFEST), &self.manifest.to_bytes());
        written.map_err(|err| Disk(io::Error::other(err)))?;
        let (name, time) = (key_of(&self.manifest.container), word(self.manifest.at));
        Ok(Some(Save { name, time, location: self.dir, manifest: self.manifest }))
    }

    /// Takes away what was written so far.
    pub(super) fn give_up(self) {
        clear(&self.dir);
    }
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

    /// Whether it begins as such a part does. Git inside may be anything, and then the work is kept in another way.
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

impl From<archive::Error> for SaveError {
    fn from(err: archive::Error) -> Self {
        match err {
            archive::Error::TooMany(_) | archive::Error::TooLarge(_) => Self::TooLarge,
            archive::Error::Io { source, .. } => Disk(source),
        }
    }
}

fn sum(mut file: File) -> io::Result<(u64, String)> {
    let (mut digest, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hex::encode(digest.finalize()))),
            read => {
                digest.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// A time as the name of a directory: it sorts, and a shell takes it as it is.
fn word(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string()
}

/// Removes a save: plain files of ours in one directory, and no more than that.
pub(super) fn clear(dir: &Path) {
    let cleared = std::fs::read_dir(dir).and_then(|entries| {
        // The manifest goes first: without it this is no save any more, however far we come.
        let mut paths: Vec<_> = entries.map(|it| it.map(|it| it.path())).collect::<io::Result<_>>()?;
        paths.sort_by_key(|it| !it.ends_with(MANIFEST));
        paths.iter().try_for_each(std::fs::remove_file)?;
        std::fs::remove_dir(dir)
    });
    match cleared {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %err, "a save stays that was to go");
        }
        _ => {}
    }
}

/// A save that is finished.
#[derive(Clone, Debug, PartialEq)]
pub struct Save {
    /// Name of the container, in lower case.
    pub name: String,
    /// Its time, as its directory is called.
    pub time: String,
    /// Its directory.
    pub location: PathBuf,
    /// What it holds.
    pub manifest: SaveManifest,
}

impl Store {
    fn saved_dir(&self) -> PathBuf {
        self.root().join("saved")
    }

    /// All saves, oldest first. Those that were never finished, or cannot be read, are left out.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn saves(&self) -> Result<Vec<Save>, StoreError> {
        let mut saves = Vec::new();
        for (name, location) in self.save_dirs()? {
            let Some(time) = location.file_name().and_then(|it| it.to_str()).map(str::to_owned) else { continue };
            let manifest = match read_own(&location.join(MANIFEST)) {
                Ok(bytes) => bytes.and_then(|it| SaveManifest::from_bytes(&it)),
                Err(err) => {
                    tracing::warn!(%err, "a save cannot be read");
                    None
                }
            };
            saves.extend(manifest.map(|manifest| Save { name, time, location, manifest }));
        }
        saves.sort_by(|a, b| (a.manifest.at, &a.name).cmp(&(b.manifest.at, &b.name)));
        Ok(saves)
    }

    /// The saves that are older than that.
    ///
    /// # Errors
    /// As [`saves`](Self::saves).
    pub fn saves_before(&self, before: Timestamp) -> Result<Vec<Save>, StoreError> {
        Ok(self.saves()?.into_iter().filter(|it| it.manifest.at < before).collect())
    }

    /// Removes the saves that are older than that, and what is left of those that were never finished. Gives the former.
    ///
    /// # Errors
    /// As [`saves`](Self::saves).
    pub fn forget_saved(&self, before: Timestamp) -> Result<Vec<Save>, StoreError> {
        let mut gone = Vec::new();
        for save in self.saves_before(before)? {
            clear(&save.location);
            if !save.location.exists() {
                gone.push(save);
            }
        }
        self.clear_unfinished()?;
        Ok(gone)
    }

    /// One without a manifest is on its way only while its container is locked.
    fn clear_unfinished(&self) -> Result<(), StoreError> {
        for (name, dir) in self.save_dirs()?.into_iter().filter(|it| !it.1.join(MANIFEST).exists()) {
            let Ok(name) = ContainerName::parse(&name) else { continue };
            if let Ok(Some(_lock)) = self.try_lock(&name)
                && !dir.join(MANIFEST).exists()
            {
                clear(&dir);
            }
        }
        for above in directories(&self.saved_dir())? {
            // One that holds something stays.
            let _ = std::fs::remove_dir(above);
        }
        Ok(())
    }

    /// What is left of saves of this container that were never finished. The caller holds its lock.
    pub(super) fn clear_unfinished_of(&self, name: &ContainerName) -> Result<(), StoreError> {
        let unfinished = |it: &PathBuf| !it.join(MANIFEST).exists();
        let dirs = directories(&self.saved_dir().join(key_of(name)))?;
        dirs.iter().filter(|it| unfinished(it)).for_each(|it| clear(it));
        Ok(())
    }

    fn save_dirs(&self) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let mut found = Vec::new();
        for above in directories(&self.saved_dir())? {
            let Some(name) = above.file_name().and_then(|it| it.to_str()).map(str::to_owned) else { continue };
            found.extend(directories(&above)?.into_iter().map(|it| (name.clone(), it)));
        }
        Ok(found)
    }
}

/// Directories in a directory; none if that is missing.
fn directories(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StoreError::io(dir))?,
    };
    let is_dir = |it: &std::fs::DirEntry| it.file_type().is_ok_and(|it| it.is_dir());
    Ok(entries.flatten().filter(is_dir).map(|it| it.path()).collect())
}

#[cfg(test)]
mod tests {
    use coracle_runtime::{ContainerPath, LabelNamespace};

    use super::*;
    use crate::record::tests::record;
    use crate::save::SavedKind;

    fn saved(store: &Store, name: &str, bytes: &[u8]) -> Result<Option<Save>, SaveError> {
        let mut out = SaveWriter::new(store, &record(name), 100, &[]);
        let mut item = SavedItem::new(ContainerPath::parse("/workspace/app").unwrap(), SavedKind::Git);
        let mut draft = out.part(PartKind::Staged)?;
        draft.write(bytes)?;
        out.keep(&mut item, draft)?;
        out.add(item);
        out.finish()
    }

    #[tokio::test]
    async fn old_saves_go_and_what_was_never_finished_unless_somebody_is_at_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let save = saved(&store, "Web", b"patch").unwrap().unwrap();
        assert_eq!((save.name.as_str(), save.manifest.bytes()), ("web", 5));
        assert_eq!(store.saves().unwrap(), std::slice::from_ref(&save));
        let half = dir.path().join("saved/db/20200101T000000.000Z");
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(half.join("0.tar"), "half").unwrap();
        let lock = store.lock(&ContainerName::parse("db").unwrap()).await.unwrap();
        assert_eq!(store.forget_saved(save.manifest.at).unwrap(), []);
        assert!(half.exists() && save.location.exists());
        drop(lock);
        let after = save.manifest.at + jiff::SignedDuration::from_secs(1);
        assert_eq!(store.forget_saved(after).unwrap(), [save]);
        assert_eq!(std::fs::read_dir(dir.path().join("saved")).unwrap().count(), 0);
    }

    #[test]
    fn more_than_may_be_is_no_save_and_nothing_is_made_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        assert!(SaveWriter::new(&store, &record("web"), 100, &[]).finish().unwrap().is_none());
        assert!(!dir.path().join("saved").exists());
        assert!(matches!(saved(&store, "web", &[0; 101]), Err(SaveError::TooLarge)));
        assert_eq!(store.saves().unwrap(), []);
    }
}
