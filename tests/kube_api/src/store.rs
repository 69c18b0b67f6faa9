//! Objects with their versions, and the changes that watches see.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kinds::Kind;
use crate::status::Refusal;

/// Changes that are remembered; a watch from before them has expired.
const HISTORY: usize = 20_000;

/// The address of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) plural: &'static str,
    /// Empty for kinds without namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced { namespace.to_owned() } else { String::new() };
        Self { plural: kind.plural, namespace, name: name.to_owned() }
    }

    pub(crate) fn pod(namespace: &str, name: &str) -> Self {
        Self { plural: "pods", namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn node(name: &str) -> Self {
        Self { plural: "nodes", namespace: String::new(), name: name.to_owned() }
    }

    fn missing(&self) -> Refusal {
        Refusal::not_found(self.plural, &self.name)
    }
}

/// One change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct Store {
    content: Mutex<Content>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Content {
    version: u64,
    /// Changes up to this one are forgotten.
    forgotten: u64,
    objects: BTreeMap<Key, Value>,
    changes: VecDeque<Change>,
}

impl Content {
    fn change(&mut self, key: &Key, after: Option<Value>) -> u64 {
        self.version += 1;
        let version = self.version;
        let after = after.map(|mut it| {
            it["metadata"]["resourceVersion"] = json!(version.to_string());
            it
        });
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(key),
        };
        // A deleted object is shown with the version of its deletion.
        let before = before.map(|mut it| {
            if after.is_none() {
                it["metadata"]["resourceVersion"] = json!(version.to_string());
            }
            it
        });
        self.changes.push_back(Change { version, key: key.clone(), before, after });
        if self.changes.len() > HISTORY
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = oldest.version;
        }
        version
    }
}

impl Default for Store {
    fn default() -> Self {
        // Not zero, which means any version.
        let content = Content { version: 1, ..Content::default() };
        Self { content: Mutex::new(content), version: watch::channel(1).0 }
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, version: u64) {
        self.version.send_modify(|it| *it = version.max(*it));
    }

    /// Fires at each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.lock().objects.get(key).cloned()
    }

    pub(crate) fn create(&self, key: &Key, object: Value) -> Result<Value, Refusal> {
        let mut content = self.lock();
        if content.objects.contains_key(key) {
            return Err(Refusal::already_exists(key.plural, &key.name));
        }
        let version = content.change(key, Some(object));
        let made = content.objects.get(key).cloned().unwrap_or_default();
        drop(content);
        self.announce(version);
        Ok(made)
    }

    /// Changes an existing object. Does nothing if it is equal.
    pub(crate) fn update(
        &self,
        key: &Key,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Value, Refusal> {
        let mut content = self.lock();
        let mut object = content.objects.get(key).cloned().ok_or_else(|| key.missing())?;
        change(&mut object)?;
        if content.objects.get(key) == Some(&object) {
            return Ok(object);
        }
        let version = content.change(key, Some(object));
        let made = content.objects.get(key).cloned().unwrap_or_default();
        drop(content);
        self.announce(version);
        Ok(made)
    }

    pub(crate) fn remove(&self, key: &Key) -> Option<Value> {
        let mut content = self.lock();
        let removed = content.objects.get(key).cloned()?;
        let version = content.change(key, None);
        drop(content);
        self.announce(version);
        Some(removed)
    }

    /// Objects of a kind, and the version of the list.
    pub(crate) fn list(&self, plural: &str, namespace: Option<&str>) -> Listing {
        let content = self.lock();
        let chosen = content
            .objects
            .iter()
            .filter(|(key, _)| key.plural == plural && namespace.is_none_or(|it| it == key.namespace));
        Listing {
            objects: chosen.map(|(key, object)| (key.clone(), object.clone())).collect(),
            version: content.version,
        }
    }

    /// Objects that name an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Key> {
        let content = self.lock();
        let owned = |object: &Value| {
            object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|it| it["uid"] == uid)
        };
        content.objects.iter().filter(|(_, it)| owned(it)).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.lock().objects.values().any(|it| it["metadata"]["uid"] == uid)
    }

    /// Changes of a kind after a version; refused if some of them are forgotten.
    pub(crate) fn changes(&self, plural: &str, after: u64) -> Result<Vec<Change>, Refusal> {
        let content = self.lock();
        if after < content.forgotten {
            let message = format!("too old resource version: {after} ({})", content.forgotten);
            return Err(Refusal::expired(message));
        }
        let later = content.changes.iter().filter(|it| it.version > after && it.key.plural == plural);
        Ok(later.cloned().collect())
    }

    /// Whether a list of that version can be continued.
    pub(crate) fn remembers(&self, version: u64) -> bool {
        version >= self.lock().forgotten
    }

    /// Forgets the changes so far, as a server does after some minutes.
    pub(crate) fn forget(&self) {
        let mut content = self.lock();
        // A separate version, so that clients' earlier versions are older than the oldest retained one.
        content.version += 1;
        content.forgotten = content.version;
        content.changes.clear();
        let version = content.version;
        drop(content);
        self.announce(version);
    }
}

/// A list of a moment.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) objects: Vec<(Key, Value)>,
    pub(crate) version: u64,
}
