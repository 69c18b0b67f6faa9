//! Finished saves: `saved/<name>/<time>/` of the state directory, each written once and then only read.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use coracle_host::fs::digest;
use coracle_types::{ContainerName, ContainerPath, parse_stored};
use jiff::Timestamp;

use super::manifest::{SaveManifest, SavedItem, SavedPart};
use crate::record::Record;
use crate::store::{key_of, read_own_up_to};
use crate::{Result, Store, StoreError};

pub(super) const MANIFEST: &str = "manifest.json";

/// Bytes of a manifest: lists of names of each of many work trees.
const MAX_MANIFEST: u64 = 256 << 20;

/// Where a save is written, and what its manifest says about the container.
#[derive(Clone, Debug)]
pub struct SaveDestination {
    /// The directory of the container's saves, each of which is a directory below it.
    pub dir: PathBuf,
    /// The manifest without items.
    pub manifest: SaveManifest,
}

impl SaveDestination {
    pub(crate) fn new(store: &Store, record: &Record) -> Self {
        Self { dir: store.saved_dir().join(key_of(&record.name)), manifest: SaveManifest::new(record) }
    }

    /// An item of a finished save that has all its parts, among those of a path.
    #[must_use]
    pub fn find(&self, path: &ContainerPath, matches: impl Fn(&SavedItem) -> bool) -> Option<(Save, SavedItem)> {
        directories(&self.dir).ok()?.into_iter().filter_map(|dir| Save::read(dir).ok()?).find_map(|save| {
            let item = save.manifest.items.iter().find(|it| it.path == *path && matches(it))?.clone();
            item.parts.iter().all(|it| save.open(it).is_ok()).then_some((save, item))
        })
    }
}

/// A time as the name of a directory: names sort by time, and a shell needs no quotes for them.
pub(super) fn time_name(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string()
}

/// Removes a save: the files in its directory, then the directory.
pub(super) fn clear(dir: &Path) {
    let cleared = std::fs::read_dir(dir).and_then(|entries| {
        // Removes the manifest first: without it this is no save any more, even if the rest remains.
        let mut paths: Vec<_> = entries.map(|it| it.map(|it| it.path())).collect::<io::Result<_>>()?;
        paths.sort_by_key(|it| !it.ends_with(MANIFEST));
        paths.iter().try_for_each(std::fs::remove_file)?;
        std::fs::remove_dir(dir)
    });
    match cleared {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %err, "a save cannot be removed");
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

impl Save {
    pub(super) fn new(location: PathBuf, manifest: SaveManifest) -> Option<Self> {
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        Some(Self { name: name(location.parent()?)?, time: name(&location)?, location, manifest })
    }

    /// `None` for an unfinished one.
    ///
    /// # Errors
    /// When it cannot be read. [`StoreError::Newer`] for one that a newer version wrote.
    fn read(location: PathBuf) -> Result<Option<Self>, StoreError> {
        let file = location.join(MANIFEST);
        let Some(bytes) = read_own_up_to(&file, MAX_MANIFEST)? else { return Ok(None) };
        Ok(Self::new(location, parse_stored(&file, &bytes)?))
    }

    /// A part, if it is as the manifest describes it.
    pub(super) fn open(&self, part: &SavedPart) -> io::Result<File> {
        let is_plain = !part.file.contains('/') && part.file != "..";
        let mut file = File::open(self.location.join(&part.file))?;
        if !is_plain || digest(&file)?.sha256 != part.sha256 {
            return Err(io::Error::other(format!("`{}` of the save is damaged", part.file)));
        }
        file.rewind()?;
        Ok(file)
    }
}

impl Store {
    fn saved_dir(&self) -> PathBuf {
        self.root().join("saved")
    }

    /// All saves, oldest first, without unfinished and unreadable ones.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn saves(&self) -> Result<Vec<Save>, StoreError> {
        Ok(self.all_saves()?.0)
    }

    /// The same, and the manifests that a newer version wrote.
    ///
    /// # Errors
    /// As [`saves`](Self::saves).
    pub fn all_saves(&self) -> Result<(Vec<Save>, Vec<PathBuf>), StoreError> {
        let (mut saves, mut newer) = (Vec::new(), Vec::new());
        for dir in self.save_dirs()? {
            match Save::read(dir) {
                Ok(save) => saves.extend(save),
                Err(StoreError::Newer(file)) => newer.push(file),
                Err(err) => tracing::warn!(%err, "a save cannot be read"),
            }
        }
        saves.sort_by(|a, b| (a.manifest.at, &a.name).cmp(&(b.manifest.at, &b.name)));
        Ok((saves, newer))
    }

    /// The saves of before a time.
    ///
    /// # Errors
    /// As [`saves`](Self::saves).
    pub fn saves_before(&self, before: Timestamp) -> Result<Vec<Save>, StoreError> {
        Ok(self.saves()?.into_iter().filter(|it| it.manifest.at < before).collect())
    }

    /// Removes the saves of before a time, and returns them. Removes abandoned unfinished saves as well.
    ///
    /// # Errors
    /// As [`saves`](Self::saves).
    pub fn forget_saved(&self, before: Timestamp) -> Result<Vec<Save>, StoreError> {
        let mut gone = self.saves_before(before)?;
        gone.iter().for_each(|it| clear(&it.location));
        gone.retain(|it| !it.location.exists());
        self.clear_unfinished()?;
        Ok(gone)
    }

    /// A save without a manifest is being written only while its container is locked.
    fn clear_unfinished(&self) -> Result<(), StoreError> {
        for above in directories(&self.saved_dir())? {
            let name = above.file_name().and_then(|it| ContainerName::parse(it.to_str()?).ok());
            if let Some(name) = name
                && unfinished(&above)?.next().is_some()
                && let Ok(Some(_lock)) = self.try_lock(&name)
            {
                unfinished(&above)?.for_each(|it| clear(&it));
            }
            // A directory that holds something stays.
            let _ = std::fs::remove_dir(above);
        }
        Ok(())
    }

    /// Removes unfinished saves of a container. The caller holds its lock.
    pub(super) fn clear_unfinished_of(&self, name: &ContainerName) -> Result<(), StoreError> {
        unfinished(&self.saved_dir().join(key_of(name)))?.for_each(|it| clear(&it));
        Ok(())
    }

    fn save_dirs(&self) -> Result<Vec<PathBuf>, StoreError> {
        let above = directories(&self.saved_dir())?;
        Ok(above.iter().map(|it| directories(it)).collect::<Result<Vec<_>, _>>()?.concat())
    }
}

fn unfinished(above: &Path) -> Result<impl Iterator<Item = PathBuf> + use<>, StoreError> {
    Ok(directories(above)?.into_iter().filter(|it| !it.join(MANIFEST).exists()))
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
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use coracle_host::find_program::find_program;
    use coracle_host::process::{Invocation, Stdin, run};
    use coracle_types::{ContainerPath, LabelNamespace};

    use super::*;
    use crate::record::tests::record;
    use crate::save::error::SaveError;
    use crate::save::manifest::{PartKind, SavedKind};
    use crate::save::writer::SaveWriter;

    /// An argument of this test program: another one traces it.
    const TRACED: &str = "traced-by-another-test";

    fn saved(store: &Store, name: &str, bytes: &[u8]) -> Result<Option<Save>, SaveError> {
        let mut out = SaveWriter::in_place(SaveDestination::new(store, &record(name)), 100);
        let mut item = SavedItem::new(ContainerPath::parse("/workspace/app").unwrap(), SavedKind::Git);
        let mut part = out.part(PartKind::Staged)?;
        part.write(bytes)?;
        out.keep(&mut item, part)?;
        out.add(item);
        out.finish()
    }

    #[tokio::test]
    async fn old_and_unfinished_saves_are_removed_unless_in_use() {
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
        let empty = SaveWriter::in_place(SaveDestination::new(&store, &record("web")), 100);
        assert!(empty.finish().unwrap().is_none());
        assert!(!dir.path().join("saved").exists());
        assert!(matches!(saved(&store, "web", &[0; 101]), Err(SaveError::TooLarge)));
        assert_eq!(store.saves().unwrap(), []);
    }

    /// Saves of a process that is traced: as a removal writes one, and as a caller without the container's lock does.
    fn save_both_ways(root: &Path) -> [PathBuf; 2] {
        let [one, other] = ["a", "b"].map(|name| {
            let root = root.join(name);
            std::fs::create_dir(&root).unwrap();
            Store::open(&root, LabelNamespace::parse("coracle").unwrap()).unwrap()
        });
        let destination = SaveDestination::new(&other, &record("web"));
        let mut staged = SaveWriter::staged(destination, root, 100).unwrap();
        let mut item = SavedItem::new(ContainerPath::parse("/workspace").unwrap(), SavedKind::Files);
        let mut part = staged.part(PartKind::Staged).unwrap();
        part.write(b"patch").unwrap();
        staged.keep(&mut item, part).unwrap();
        staged.add(item);
        [saved(&one, "web", b"patch").unwrap(), staged.finish().unwrap()].map(|save| save.unwrap().location)
    }

    #[tokio::test]
    async fn a_save_is_on_the_disk_with_the_directories_above_it() {
        let dir = tempfile::tempdir().unwrap();
        if std::env::args().any(|argument| argument == TRACED) {
            let places = save_both_ways(dir.path());
            println!("{}", places.map(|place| format!("saved {}\n", place.display())).concat());
            return;
        }
        let Ok(strace) = find_program("strace") else { return coracle_skips::skip("needs strace") };
        let log = dir.path().join("trace");
        let own_name = "a_save_is_on_the_disk_with_the_directories_above_it";
        let calls = "trace=fsync,rename,renameat,renameat2";
        let words = ["-f", "-y", "-s", "4096", "-e", calls, "-o"].map(OsString::from).into_iter();
        let words = words.chain([log.clone().into(), std::env::current_exe().unwrap().into()]);
        let words = words.chain([own_name, TRACED, "--nocapture"].map(OsString::from));
        let limits = (Duration::from_secs(60), 1 << 20);
        let output = run("strace", &Invocation::new(strace, words), Stdin::Empty, limits).await.unwrap();
        let printed = output.stdout.text();
        let places: Vec<&Path> =
            printed.lines().filter_map(|line| Some(Path::new(line.strip_prefix("saved ")?))).collect();
        assert_eq!(places.len(), 2, "{printed}");
        let trace = std::fs::read_to_string(log).unwrap();
        for place in places {
            let named = trace.rfind(place.to_str().unwrap()).unwrap();
            let after = &trace[named..];
            for above in place.ancestors().skip(1).take(3) {
                let sync = format!("<{}>)", above.display());
                assert!(after.contains(&sync), "{} is not synced after the save:\n{trace}", above.display());
            }
        }
    }
}
