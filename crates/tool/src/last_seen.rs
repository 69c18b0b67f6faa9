//! What the engines last showed of the containers, for the time in which one is busy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_host::fs::replace;
use coracle_lifecycle::{ContainerList, Store};
use coracle_runtime::{Container, PublishedPort};
use coracle_types::RecordId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The state of all containers at a time.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LastSeen {
    pub(crate) at: Option<Timestamp>,
    containers: BTreeMap<String, LastState>,
}

/// The state of one container.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LastState {
    pub(crate) status: String,
    pub(crate) running: bool,
    pub(crate) ports: Vec<PublishedPort>,
}

impl LastSeen {
    /// What a listing shows, each container with the word that `status` has for it.
    pub(crate) fn from_list(listing: &ContainerList, status: impl Fn(Option<&Container>) -> String) -> Self {
        let entries = listing.containers.iter().chain(&listing.others);
        let containers = entries.map(|entry| {
            let container = entry.container.as_deref();
            let state = LastState {
                status: status(container),
                running: container.is_some_and(Container::running),
                ports: container.map(|it| it.ports.clone()).unwrap_or_default(),
            };
            (entry.record.record_id.to_string(), state)
        });
        Self { at: Some(Timestamp::now()), containers: containers.collect() }
    }

    /// What is stored; nothing if that cannot be read.
    pub(crate) fn load(store: &Store) -> Self {
        let read = std::fs::read(path(store)).ok();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Stores it. A list is right without it, so nothing fails.
    pub(crate) fn save(&self, store: &Store) {
        let saved = serde_json::to_vec(self).map_err(std::io::Error::other);
        if let Err(err) = saved.and_then(|bytes| replace(&path(store), &bytes)) {
            tracing::debug!(%err, "what the engines showed is not stored");
        }
    }

    /// One whose container was made since then has no state yet.
    pub(crate) fn container(&self, id: &RecordId) -> LastState {
        let unknown = || LastState { status: "unknown".to_owned(), running: false, ports: Vec::new() };
        self.containers.get(id.as_str()).cloned().unwrap_or_else(unknown)
    }
}

fn path(store: &Store) -> PathBuf {
    store.root().join("last-seen.json")
}
