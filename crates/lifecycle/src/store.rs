//! The state directory: records, locks, and the key that signs labels.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_host::fs::{remove, replace};
use coracle_host::temporary::is_own_name;
use coracle_runtime::labels::Signer;
use coracle_types::{ContainerName, EngineKind, JobId, LabelNamespace, Secret};

use crate::network_hold::NetworkHold;
use crate::record::{BadRecord, Record};
use crate::record_cache::{FileStamp, RecordCache};
use crate::{Error, Lock, Result, StoreError};

/// Length of the key that signs labels.
const KEY_BYTES: usize = 32;

/// A caller waits this long for a lock before it gets `busy`.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Larger files are no records.
const MAX_RECORD: u64 = 4 << 20;

/// The directory of records. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    signer: Signer,
    read: Arc<RecordCache>,
    pub(crate) network: Arc<NetworkHold>,
}

/// A record, or a file that should have been one.
#[derive(Debug)]
pub(crate) enum LoadOutcome<T = Arc<Record>> {
    Record(T),
    /// Moved aside; the container's labels may still tell what it was.
    Damaged,
    Missing,
}

impl<T> LoadOutcome<T> {
    pub(crate) fn record(self) -> Option<T> {
        match self {
            Self::Record(record) => Some(record),
            Self::Damaged | Self::Missing => None,
        }
    }
}

impl Store {
    /// Opens a state directory, making what is missing.
    ///
    /// # Errors
    /// [`StoreError`] when it belongs to another user, is a link, or supports no locks.
    pub fn open(root: &Path, namespace: LabelNamespace) -> Result<Self, StoreError> {
        for dir in [
            "",
            "containers",
            "gone",
            "gone/container",
            "gone/network",
            "gone/making",
            "locks",
            "scratch",
            "engine",
            "link",
            "proxy",
            "sessions",
            "stack",
        ] {
            own_directory(&root.join(dir))?;
        }
        let probe = root.join("locks/probe");
        Lock::try_take(&probe).map_err(|_| StoreError::NoLocks(root.to_owned()))?;
        let signer = Signer::new(namespace, key(&root.join("key"))?, rustix::process::geteuid().as_raw());
        Ok(Self { root: root.to_owned(), signer, read: Arc::default(), network: Arc::default() })
    }

    /// Signs and checks labels.
    #[must_use]
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A directory that may be shared with containers.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// Waits for the lock of one container.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) when another call holds it for 10 s.
    pub async fn lock(&self, name: &ContainerName) -> Result<Lock> {
        self.lock_within(&format!("container-{}", key_of(name)), name.as_str(), LOCK_TIMEOUT).await
    }

    /// The lock of one container, unless another call holds it.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn try_lock(&self, name: &ContainerName) -> Result<Option<Lock>> {
        self.try_lock_file(&format!("container-{}", key_of(name)))
    }

    /// Held from the start of a container's removal, while its work is saved and its record is as before.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub async fn removal_lock(&self, name: &ContainerName) -> Result<Lock> {
        self.lock_within(&format!("removal-{}", key_of(name)), name.as_str(), LOCK_TIMEOUT).await
    }

    /// Whether another call is removing a container. Other calls that hold its lock, such as a snapshot, leave it there.
    ///
    /// # Errors
    /// When the file of the lock cannot be opened.
    pub async fn is_being_removed(&self, name: &ContainerName) -> Result<bool> {
        let file = self.lock_file(&format!("removal-{}", key_of(name)));
        // Shared: another call that asks the same is no removal.
        Ok(Lock::share(&file, Duration::ZERO).await.map_err(StoreError::io(&file))?.is_none())
    }

    /// Waits for a lock of all containers together. A call that holds one of these only tries for a container's lock and
    /// never waits for it.
    pub(crate) async fn common_lock(&self, what: &str) -> Result<Lock> {
        self.lock_within(&format!("common-{what}"), what, LOCK_TIMEOUT).await
    }

    /// A lock of all containers together, unless another call holds it.
    pub(crate) fn try_common_lock(&self, what: &str) -> Result<Option<Lock>> {
        self.try_lock_file(&format!("common-{what}"))
    }

    /// From now on this process keeps the network that all containers share, once it has put a container on it, until
    /// [`release_network`](crate::release_network). For a process that creates one container after another.
    pub fn keep_network(&self) {
        self.network.enable();
    }

    /// Holds the network that all containers share: it is not removed meanwhile.
    pub(crate) async fn hold_network(&self) -> Result<Lock> {
        let file = self.lock_file("common-network-in-use");
        let lock = Lock::share(&file, LOCK_TIMEOUT).await.map_err(StoreError::io(&file))?;
        lock.ok_or_else(|| Error::Busy { name: "the network".to_owned() })
    }

    /// The right to remove that network, unless another call holds it.
    pub(crate) fn try_own_network(&self) -> Result<Option<Lock>> {
        self.try_common_lock("network-in-use")
    }

    /// Waits for a lock for at most that time. `what` it is for is in the error.
    pub(crate) async fn lock_within(&self, lock: &str, what: &str, patience: Duration) -> Result<Lock> {
        let file = self.lock_file(lock);
        let lock = Lock::take(&file, patience).await.map_err(StoreError::io(&file))?;
        lock.ok_or_else(|| Error::Busy { name: what.to_owned() })
    }

    /// A lock, unless another call holds it.
    pub(crate) fn try_lock_file(&self, lock: &str) -> Result<Option<Lock>> {
        let file = self.lock_file(lock);
        Ok(Lock::try_take(&file).map_err(StoreError::io(&file))?)
    }

    fn lock_file(&self, lock: &str) -> PathBuf {
        self.root.join("locks").join(lock)
    }

    /// Reads one record. A damaged one is moved aside, once.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for one that a newer version wrote.
    pub(crate) fn load(&self, name: &ContainerName) -> Result<LoadOutcome, StoreError> {
        let file = self.record_file(name);
        // Of before it is read: what takes the file's place meanwhile has another stamp, and is read the next time.
        let stamp = file.symlink_metadata().ok().map(|it| FileStamp::from_metadata(&it));
        if let Some(known) = stamp.and_then(|it| self.read.get(&file, it)) {
            return Ok(LoadOutcome::Record(known));
        }
        let loaded = load_file(&file, |bytes| match Record::from_bytes(bytes)? {
            record if key_of(&record.name) == key_of(name) => Ok(Arc::new(record)),
            _ => Err(BadRecord::Name),
        })?;
        match (&loaded, stamp) {
            (LoadOutcome::Record(record), Some(stamp)) => self.read.keep(&file, stamp, record),
            (LoadOutcome::Record(_), None) => {}
            _ => self.read.forget(&file),
        }
        Ok(loaded)
    }

    /// Writes a record: beside the old one, to the disk, then in its place.
    pub(crate) fn save(&self, record: &Record) -> Result<(), StoreError> {
        let file = self.record_file(&record.name);
        own_directory(file.parent().unwrap_or(&self.root))?;
        self.read.forget(&file);
        write_whole(&file, &record.to_bytes())
    }

    /// Writes what was learned of a container, unless another call is at its record: then it is learned again.
    pub fn update(&self, record: &Record) -> Result<()> {
        self.note(record, |now| {
            (now.guest, now.held) = (record.guest.clone(), record.held.clone());
            now.mounts.clone_from(&record.mounts);
            let main = record.jobs.iter().find(|it| it.job == JobId::main());
            main.into_iter().for_each(|it| now.has_main(it.clone()));
        })
    }

    /// Removes a record and its directory if nothing else is in it.
    pub(crate) fn forget(&self, name: &ContainerName) -> Result<(), StoreError> {
        let file = self.record_file(name);
        remove(&file).map_err(StoreError::io(&file))?;
        if let Some(dir) = file.parent() {
            // Something set aside may lie in it: then it stays.
            let _ = std::fs::remove_dir(dir);
        }
        Ok(())
    }

    /// Takes away what a process left that was killed while it wrote its first record: nothing had been made then.
    pub(crate) fn clear_unwritten(&self) -> Result<()> {
        let above = self.root.join("containers");
        for entry in std::fs::read_dir(&above).map_err(StoreError::io(&above))?.flatten() {
            let Some(Ok(name)) = entry.file_name().to_str().map(ContainerName::parse) else { continue };
            if self.record_file(&name).exists() {
                continue;
            }
            let Some(_lock) = self.try_lock(&name)? else { continue };
            if !self.record_file(&name).exists() {
                let left = std::fs::read_dir(entry.path()).into_iter().flatten().flatten();
                left.filter(|it| is_own_name(&it.file_name())).for_each(|it| {
                    let _ = std::fs::remove_file(it.path());
                });
                // A record that was set aside stays.
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        Ok(())
    }

    /// All records. Damaged ones are set aside and left out; those of a newer version are left out.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn records(&self) -> Result<Vec<Arc<Record>>, StoreError> {
        Ok(self.all_records()?.0)
    }

    /// The records, and the files that a newer version wrote.
    pub(crate) fn all_records(&self) -> Result<(Vec<Arc<Record>>, Vec<PathBuf>), StoreError> {
        let dir = self.root.join("containers");
        let (mut records, mut newer) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&dir).map_err(StoreError::io(&dir))? {
            let name = entry.map_err(StoreError::io(&dir))?.file_name();
            let Some(Ok(name)) = name.to_str().map(ContainerName::parse) else { continue };
            match self.load(&name) {
                Ok(LoadOutcome::Record(record)) => records.push(record),
                Ok(LoadOutcome::Damaged | LoadOutcome::Missing) => {}
                Err(StoreError::Newer(file)) => newer.push(file),
                Err(err) => return Err(err),
            }
        }
        records.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok((records, newer))
    }

    /// Records a creation that was given up while the engine may not have received it yet: what appears later under
    /// this record has no owner.
    pub(crate) fn abandon(&self, record: &Record) -> Result<(), StoreError> {
        write_whole(&self.abandoned_file(record), &record.to_bytes())
    }

    pub(crate) fn abandoned(&self) -> Result<Vec<Record>, StoreError> {
        let dir = self.root.join("gone/making");
        let entries = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?;
        let read = |path: PathBuf| Ok(read_own(&path)?.and_then(|it| Record::from_bytes(&it).ok()));
        let found: Result<Vec<_>, StoreError> = entries.filter_map(|it| Some(read(it.ok()?.path()))).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    pub(crate) fn forget_abandoned(&self, record: &Record) -> Result<(), StoreError> {
        let file = self.abandoned_file(record);
        std::fs::remove_file(&file).map_err(StoreError::io(&file))
    }

    fn abandoned_file(&self, record: &Record) -> PathBuf {
        self.root.join("gone/making").join(format!("{}.json", record.record_id))
    }

    fn record_file(&self, name: &ContainerName) -> PathBuf {
        self.root.join("containers").join(key_of(name)).join("metadata.json")
    }

    /// The labels of a new object, with a signature.
    pub(crate) fn labels<'a>(
        &self,
        engine: EngineKind,
        own: impl IntoIterator<Item = (&'a str, String)>,
    ) -> BTreeMap<String, String> {
        let of_all = [("managed", "true".to_owned()), ("created", crate::clock::now().to_string())];
        let all = of_all.into_iter().chain(own);
        let mut labels = all.map(|(name, value)| (self.signer.key(name), value)).collect();
        self.signer.sign(engine, &mut labels);
        labels
    }

    /// Whether labels carry our signature.
    pub(crate) fn signed(&self, engine: EngineKind, labels: &BTreeMap<String, String>) -> bool {
        self.signer.verify(engine, labels)
    }
}

/// Names that differ only in case are the same container.
pub(crate) fn key_of(name: &ContainerName) -> String {
    name.as_str().to_ascii_lowercase()
}

pub(crate) fn own_directory(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
    if let Err(err) = made.or_else(|err| if path.is_dir() { Ok(()) } else { Err(err) }) {
        return Err(StoreError::io(path)(err));
    }
    let meta = path.symlink_metadata().map_err(StoreError::io(path))?;
    check(path, &meta, meta.is_dir())
}

fn check(path: &Path, meta: &std::fs::Metadata, right_kind: bool) -> Result<(), StoreError> {
    if !right_kind {
        return Err(StoreError::Link(path.to_owned()));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(StoreError::Owner(path.to_owned()));
    }
    Ok(())
}

/// Reads the record in a file. A file that Coracle did not write, or that `parse` refuses, is moved aside, once.
///
/// # Errors
/// [`StoreError::Newer`] for a file of a newer version, which stays.
pub(crate) fn load_file<T>(
    file: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, BadRecord>,
) -> Result<LoadOutcome<T>, StoreError> {
    let parsed = match read_own(file) {
        Ok(None) => return Ok(LoadOutcome::Missing),
        Ok(Some(bytes)) => match parse(&bytes) {
            Err(BadRecord::Newer) => return Err(StoreError::Newer(file.to_owned())),
            parsed => parsed.map_err(|err| err.to_string()),
        },
        Err(err @ (StoreError::Link(_) | StoreError::Owner(_))) => Err(err.to_string()),
        Err(err) => return Err(err),
    };
    let why = match parsed {
        Ok(record) => return Ok(LoadOutcome::Record(record)),
        Err(why) => why,
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let aside = file.with_file_name(format!("{name}.bad-{}", jiff::Timestamp::now().as_millisecond()));
    tracing::warn!(file = %file.display(), why, "a record is set aside");
    match std::fs::rename(file, aside) {
        // Another process has set it aside since.
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed.map_err(StoreError::io(file))?,
    }
    Ok(LoadOutcome::Damaged)
}

/// Reads a regular file of Coracle's; `None` for any other. No record is larger.
pub(crate) fn read_own(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    read_own_up_to(path, MAX_RECORD)
}

/// The same, of at most so many bytes.
pub(crate) fn read_own_up_to(path: &Path, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let meta = match path.symlink_metadata() {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(StoreError::io(path))?,
    };
    check(path, &meta, meta.is_file() && meta.len() <= most)?;
    let mut bytes = Vec::new();
    let file = match File::open(path) {
        // Another process has removed it since.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(StoreError::io(path))?,
    };
    file.take(most).read_to_end(&mut bytes).map_err(StoreError::io(path))?;
    Ok(Some(bytes))
}

/// Beside it, to the disk, in its place, and the directory to the disk too.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    replace(path, bytes).map_err(StoreError::io(path))
}

/// 32 random bytes, created once. If several processes create them concurrently, the first one's stay.
fn key(path: &Path) -> Result<Secret, StoreError> {
    if let Some(bytes) = read_own(path)?.filter(|it| it.len() == KEY_BYTES) {
        return Ok(Secret::new(bytes));
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    let make = || {
        let mut file = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .tempfile_in(dir)?;
        file.write_all(&hex::decode(coracle_types::random_hex::<KEY_BYTES>()).unwrap_or_default())?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Err(err) if err.error.kind() != io::ErrorKind::AlreadyExists => Err(err.error),
            _ => File::open(dir)?.sync_all(),
        }
    };
    make().map_err(StoreError::io(path))?;
    let bytes = read_own(path)?.unwrap_or_default();
    // A short key would make signatures that anybody could make.
    if bytes.len() == KEY_BYTES { Ok(Secret::new(bytes)) } else { Err(StoreError::Key(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::tests::record;
    use crate::summed_bytes;

    fn store(dir: &Path) -> Store {
        Store::open(dir, LabelNamespace::parse("coracle").unwrap()).unwrap()
    }

    #[test]
    fn records_are_saved_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let it = record("Web");
        store.save(&it).unwrap();
        assert!(
            matches!(store.load(&ContainerName::parse("wEB").unwrap()), Ok(LoadOutcome::Record(read)) if *read == it)
        );
        assert_eq!(store.records().unwrap().len(), 1);
        store.forget(&it.name).unwrap();
        assert!(matches!(store.load(&it.name), Ok(LoadOutcome::Missing)));
        assert!(!dir.path().join("containers/web").exists());
    }

    #[test]
    fn a_record_that_another_process_wrote_or_removed_is_not_the_one_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (store(dir.path()), store(dir.path()));
        let name = ContainerName::parse("web").unwrap();
        let purpose = |store: &Store| match store.load(&name).unwrap() {
            LoadOutcome::Record(it) => it.purpose.clone(),
            _ => panic!("it was saved"),
        };
        for wanted in ["a", "b", "a"].map(|it| Some(it.to_owned())) {
            other.save(&Record { purpose: wanted.clone(), ..record("web") }).unwrap();
            assert_eq!([purpose(&one), purpose(&one)], [wanted.clone(), wanted]);
        }
        other.forget(&name).unwrap();
        assert!(matches!(one.load(&name), Ok(LoadOutcome::Missing)));
    }

    #[test]
    fn the_main_program_of_a_new_guest_takes_the_place_of_that_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let mut it = record("web");
        it.main_began("first".into());
        let other = crate::RecordedJob { job: JobId::random(), run: "first".into(), began_ms: 1 };
        store.save(&crate::Record { jobs: [it.jobs.clone(), vec![other.clone()]].concat(), ..it.clone() }).unwrap();
        it.main_began("second".into());
        store.update(&it).unwrap();
        let LoadOutcome::Record(now) = store.load(&it.name).unwrap() else { panic!("it was saved") };
        let runs: Vec<_> = now.jobs.iter().map(|it| (it.job.clone(), it.run.as_str())).collect();
        assert_eq!(runs, [(JobId::main(), "second"), (other.job, "first")]);
    }

    #[test]
    fn a_damaged_record_is_set_aside_and_never_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        store.save(&record("web")).unwrap();
        let file = dir.path().join("containers/web/metadata.json");
        let text = std::fs::read_to_string(&file).unwrap().replace("1000:1000", "0:0");
        std::fs::write(&file, text).unwrap();
        assert!(matches!(store.load(&ContainerName::parse("web").unwrap()), Ok(LoadOutcome::Damaged)));
        assert!(!file.exists() && dir.path().join("containers/web").read_dir().unwrap().count() == 1);
    }

    #[test]
    fn records_of_a_newer_version_stay_unchanged_and_hide_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        store.save(&record("old")).unwrap();
        let later = [
            ("schema", "schema", json!(2)),
            ("word", "role", json!("invented_later")),
            ("shape", "image", json!({ "name": "busybox" })),
        ];
        for (name, field, content) in later {
            let mut value = serde_json::to_value(record(name)).unwrap();
            value[field] = content;
            let file = dir.path().join("containers").join(name).join("metadata.json");
            std::fs::create_dir(file.parent().unwrap()).unwrap();
            std::fs::write(&file, summed_bytes(&value)).unwrap();
            let before = std::fs::read(&file).unwrap();
            let name = ContainerName::parse(name).unwrap();
            assert!(matches!(store.load(&name), Err(StoreError::Newer(found)) if found == file));
            assert_eq!(std::fs::read(&file).unwrap(), before);
        }
        // A later format has a sum of its own.
        let file = dir.path().join("containers/schema/metadata.json");
        std::fs::write(&file, r#"{ "schema": 3 }"#).unwrap();
        let names: Vec<_> = store.records().unwrap().iter().map(|it| it.name.to_string()).collect();
        assert_eq!((names, store.all_records().unwrap().1.len()), (vec!["old".to_owned()], 3));
    }

    #[test]
    fn files_are_the_persons_alone_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let it = store(dir.path());
        it.save(&record("web")).unwrap();
        let mode = |path: &str| dir.path().join(path).metadata().unwrap().mode() & 0o777;
        assert_eq!([mode("key"), mode("containers/web/metadata.json"), mode("containers")], [0o600, 0o600, 0o700]);
        std::fs::rename(dir.path().join("containers"), dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("containers")).unwrap();
        let again = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap());
        assert!(matches!(again, Err(StoreError::Link(_))));
    }

    #[test]
    fn a_damaged_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _ = store(dir.path());
        std::fs::write(dir.path().join("key"), "short").unwrap();
        let again = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap());
        assert!(matches!(again, Err(StoreError::Key(_))));
    }

    #[test]
    fn the_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (store(dir.path()), store(dir.path()));
        let mut labels = std::collections::BTreeMap::new();
        first.signer().sign(EngineKind::Fake, &mut labels);
        assert!(second.signed(EngineKind::Fake, &labels));
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_container_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let name = ContainerName::parse("web").unwrap();
        let held = store.lock(&name).await.unwrap();
        assert!(matches!(store.lock(&name).await, Err(crate::Error::Busy { .. })));
        drop(held);
        assert!(store.lock(&name).await.is_ok());
    }
}
