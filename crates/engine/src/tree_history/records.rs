//! The files of a container's checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use coracle_host::fs::{remove as remove_file, replace, sync_entry};
use coracle_runtime::CheckpointRequest;
use coracle_types::parse_stored;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Index, Tree, TreePath, path_text};
use crate::directories::remove_unfinished_files;

/// The directory of a container's checkpoints. It exists once there is one.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointDir(PathBuf);

/// A checkpoint, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCheckpoint {
    pub(crate) number: u64,
    pub(crate) parent: Option<u64>,
    /// Milliseconds since 1970.
    pub(crate) created: u64,
    pub(crate) note: String,
    /// Whether limits remove it before others.
    #[serde(default)]
    pub(crate) is_step: bool,
    /// The disk space of the objects that its parent does not have.
    pub(crate) bytes: u64,
    pub(crate) changes: Vec<TreeChange>,
}

/// A path whose object differs from the parent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeChange {
    #[serde(with = "path_text")]
    pub(crate) path: TreePath,
    /// `None` for a path that only the parent has.
    pub(crate) object: Option<u64>,
}

/// The checkpoint that the upper directory is being changed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewindRecord {
    pub(crate) number: u64,
}

impl CheckpointDir {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.objects())
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }

    fn checkpoint_file(&self, number: u64) -> PathBuf {
        self.0.join(format!("{number}.json"))
    }

    pub(crate) fn index_file(&self) -> PathBuf {
        self.0.join("index.json")
    }

    fn rewind_file(&self) -> PathBuf {
        self.0.join("rewind.json")
    }

    /// Exists while objects are written that no checkpoint names yet.
    fn unfinished_file(&self) -> PathBuf {
        self.0.join("unfinished")
    }

    /// Reads the index. Before the first checkpoint, it is empty.
    pub(crate) fn index(&self) -> io::Result<Index> {
        Ok(read(&self.index_file())?.unwrap_or_else(|| Index { next_object: 1, ..Index::default() }))
    }

    pub(crate) fn write_index(&self, index: &Index) -> io::Result<()> {
        write(&self.index_file(), index)
    }

    pub(crate) fn rewind_record(&self) -> io::Result<Option<RewindRecord>> {
        read(&self.rewind_file())
    }

    /// The checkpoint of a rewind that has not finished.
    pub(crate) fn rewind_target(&self) -> io::Result<Option<u64>> {
        Ok(self.rewind_record()?.map(|it| it.number))
    }

    pub(crate) fn write_rewind_record(&self, record: RewindRecord) -> io::Result<()> {
        write(&self.rewind_file(), &record)
    }

    pub(crate) fn remove_rewind_record(&self) -> io::Result<()> {
        remove_file(&self.rewind_file())?;
        // Otherwise, a start after a loss of power would repeat the rewind, and revert later work.
        sync_entry(&self.rewind_file())
    }

    /// The numbers of all checkpoints, in order.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number: Option<u64> = name.to_str().and_then(|it| it.strip_suffix(".json")?.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads a checkpoint; `None` if there is none with that number.
    pub(crate) fn checkpoint(&self, number: u64) -> io::Result<Option<StoredCheckpoint>> {
        read(&self.checkpoint_file(number))
    }

    pub(crate) fn checkpoints(&self) -> io::Result<BTreeMap<u64, StoredCheckpoint>> {
        let mut found = BTreeMap::new();
        for number in self.numbers()? {
            found.extend(self.checkpoint(number)?.map(|it| (number, it)));
        }
        Ok(found)
    }

    /// The object of each path in a checkpoint; `None` if there is none with that number.
    pub(crate) fn tree(&self, number: u64) -> io::Result<Option<Tree>> {
        let Some(last) = self.checkpoint(number)? else { return Ok(None) };
        let mut chain = vec![last];
        while let Some(parent) = chain.last().and_then(|it| it.parent) {
            let missing =
                || io::Error::other(format!("checkpoint {number} needs checkpoint {parent}, which is missing"));
            chain.push(self.checkpoint(parent)?.ok_or_else(missing)?);
        }
        let mut tree = Tree::new();
        for change in chain.into_iter().rev().flat_map(|it| it.changes) {
            match change.object {
                Some(object) => tree.insert(change.path, object),
                None => tree.remove(&change.path),
            };
        }
        Ok(Some(tree))
    }

    /// Whether objects may have been written that no checkpoint names.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished_file().exists()
    }

    /// Notes that objects are going to be written.
    pub(crate) fn begin(&self) -> io::Result<()> {
        std::fs::write(self.unfinished_file(), "")
    }

    /// Notes that all objects are named by a checkpoint or removed.
    pub(crate) fn finish(&self) -> io::Result<()> {
        remove_file(&self.unfinished_file())
    }

    /// Removes objects that a process which died has written for no checkpoint. Returns an index whose new objects are
    /// free.
    pub(crate) fn repaired_index(&self) -> io::Result<Index> {
        let mut index = self.index()?;
        if self.is_unfinished() {
            remove_unfinished_files(&self.0)?;
            let named = self.named_objects(&index)?;
            index.next_object = index.next_object.max(named.last().map_or(1, |it| it + 1));
            self.remove_objects(|it| !named.contains(&it))?;
            self.write_index(&index)?;
            self.finish()?;
        }
        Ok(index)
    }

    /// Adds a checkpoint of the entries in `index`, if they differ from those `before`. Their objects exist.
    pub(crate) fn save(
        &self,
        request: &CheckpointRequest,
        before: &Index,
        index: Index,
    ) -> io::Result<Option<StoredCheckpoint>> {
        let changes = changes(&before.tree(), &index.tree());
        let is_first = before.current == 0;
        if changes.is_empty() && !is_first {
            if index != *before {
                // A version that was known is on the disk already.
                if !index.entries.iter().map(|it| it.fingerprint).eq(before.entries.iter().map(|it| it.fingerprint)) {
                    self.sync()?;
                }
                self.write_index(&index)?;
            }
            self.finish()?;
            return Ok(None);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let checkpoint = StoredCheckpoint {
            number: self.numbers()?.last().copied().unwrap_or(0).max(before.current).max(before.last) + 1,
            parent: (!is_first).then_some(before.current),
            created: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            note: request.note.clone(),
            is_step: request.is_step,
            bytes: self.size(changes.iter().filter_map(|it| it.object))?,
            changes,
        };
        // The index promises that the files are as they were, also after a loss of power.
        self.sync()?;
        self.add(&checkpoint)?;
        let (current, last) = (checkpoint.number, checkpoint.number);
        let named: BTreeSet<u64> = index.entries.iter().map(|it| it.object).collect();
        let index = Index { current, last, past_bytes: self.past_bytes_after(before, &named)?, ..index };
        self.write_index(&index)?;
        // The first of two passes may have copied what changed before the second one.
        for object in (before.next_object..index.next_object).filter(|it| !named.contains(it)) {
            self.remove_object(object)?;
        }
        self.finish()?;
        Ok(Some(checkpoint))
    }

    /// The bound of the space of past states when the current state has only these objects.
    pub(crate) fn past_bytes_after(&self, before: &Index, current: &BTreeSet<u64>) -> io::Result<u64> {
        let left = before.entries.iter().map(|it| it.object).filter(|it| !current.contains(it));
        Ok(before.past_bytes + self.size(left)?)
    }

    /// Gives the current checkpoint, which has the files of a request, its note.
    pub(crate) fn rename(&self, number: u64, request: &CheckpointRequest) -> io::Result<()> {
        if request.is_step {
            return Ok(());
        }
        let Some(found) = self.checkpoint(number)? else { return Ok(()) };
        let note = if request.note.is_empty() { found.note.clone() } else { request.note.clone() };
        let renamed = StoredCheckpoint { note, is_step: false, ..found.clone() };
        if renamed == found { Ok(()) } else { self.add(&renamed) }
    }

    /// Writes all objects, and the files of the container, to the disk: they are on one file system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(self.objects())?)?)
    }

    /// Removes checkpoints beyond the limits, steps before others, the oldest first. The current one and its parent stay.
    pub(crate) fn prune(&self, limits: &CheckpointRequest) -> io::Result<()> {
        let mut index = self.index()?;
        let bound = index.past_bytes;
        loop {
            let count = self.numbers()?.len() as u64;
            let has_too_many = limits.max_count.is_some_and(|max| count > max);
            // What the container has now is needed in any case. The exact number needs a look at each object.
            if limits.max_bytes.is_some_and(|max| index.past_bytes > max) {
                index.past_bytes = self.size(Self::past_objects(&self.checkpoints()?, &index).into_iter())?;
            }
            let is_too_large = limits.max_bytes.is_some_and(|max| index.past_bytes > max);
            if !has_too_many && !is_too_large {
                break;
            }
            let all = self.checkpoints()?;
            let parent = all.get(&index.current).and_then(|it| it.parent);
            let removable = all.values().filter(|it| it.number != index.current && Some(it.number) != parent);
            let Some(first) = removable.min_by_key(|it| (!it.is_step, it.number)) else { break };
            self.remove(&[first.number])?;
        }
        if index.past_bytes != bound { self.write_index(&index) } else { Ok(()) }
    }

    fn add(&self, checkpoint: &StoredCheckpoint) -> io::Result<()> {
        write(&self.checkpoint_file(checkpoint.number), checkpoint)
    }

    /// Removes checkpoints. Those that are relative to them become relative to their parents.
    pub(crate) fn remove(&self, numbers: &[u64]) -> io::Result<()> {
        let mut all = self.checkpoints()?;
        self.begin()?;
        for number in numbers {
            let Some(removed) = all.remove(number) else { continue };
            for child in all.values_mut().filter(|it| it.parent == Some(*number)) {
                child.changes = composed(&removed.changes, &child.changes);
                child.parent = removed.parent;
                if child.parent.is_none() {
                    child.changes.retain(|it| it.object.is_some());
                }
                child.bytes = self.size(child.changes.iter().filter_map(|it| it.object))?;
                self.add(child)?;
            }
            remove_file(&self.checkpoint_file(*number))?;
        }
        self.repaired_index().map(drop)
    }

    /// The objects that only checkpoints need, and not the container's current state.
    fn past_objects(all: &BTreeMap<u64, StoredCheckpoint>, index: &Index) -> BTreeSet<u64> {
        let mut past: BTreeSet<u64> = all.values().flat_map(|it| &it.changes).filter_map(|it| it.object).collect();
        index.entries.iter().for_each(|it| {
            past.remove(&it.object);
        });
        past
    }

    /// The objects that checkpoints and the index name.
    fn named_objects(&self, index: &Index) -> io::Result<BTreeSet<u64>> {
        let mut named: BTreeSet<u64> = index.entries.iter().map(|it| it.object).collect();
        for checkpoint in self.checkpoints()?.values() {
            named.extend(checkpoint.changes.iter().filter_map(|it| it.object));
        }
        Ok(named)
    }

    /// Removes objects.
    pub(crate) fn remove_objects(&self, is_unused: impl Fn(u64) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(self.objects())? {
            let number = entry?.file_name().to_str().and_then(|it| it.parse().ok());
            if let Some(unused) = number.filter(|it| is_unused(*it)) {
                self.remove_object(unused)?;
            }
        }
        Ok(())
    }

    /// Removes an object, if it exists. Directories are empty.
    fn remove_object(&self, object: u64) -> io::Result<()> {
        let path = self.objects().join(object.to_string());
        let removed = match std::fs::remove_file(&path) {
            Err(err) if err.kind() == io::ErrorKind::IsADirectory => std::fs::remove_dir(&path),
            removed => removed,
        };
        match removed {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The attributes of an object.
    pub(crate) fn object(&self, object: u64) -> io::Result<std::fs::Metadata> {
        self.objects().join(object.to_string()).symlink_metadata()
    }

    /// The disk space of objects. One that several paths have counts once.
    pub(crate) fn size(&self, objects: impl Iterator<Item = u64>) -> io::Result<u64> {
        let mut bytes = 0;
        for object in objects.collect::<BTreeSet<_>>() {
            // Empty files need space, too.
            bytes += self.object(object)?.blocks() * 512 + 512;
        }
        Ok(bytes)
    }
}

/// The changes from one tree to another.
pub(crate) fn changes(from: &Tree, to: &Tree) -> Vec<TreeChange> {
    let removed = from.keys().filter(|it| !to.contains_key(*it));
    let removed = removed.map(|it| TreeChange { path: it.clone(), object: None });
    let changed = to.iter().filter(|(path, object)| from.get(*path) != Some(object));
    let changed = changed.map(|(path, object)| TreeChange { path: path.clone(), object: Some(*object) });
    removed.chain(changed).collect()
}

/// Changes that have the same result as first those and then these.
fn composed(first: &[TreeChange], then: &[TreeChange]) -> Vec<TreeChange> {
    let all: BTreeMap<_, _> = first.iter().chain(then).map(|it| (it.path.clone(), it.object)).collect();
    all.into_iter().map(|(path, object)| TreeChange { path, object }).collect()
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(parse_stored(path, &bytes)?)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value)?)
}
