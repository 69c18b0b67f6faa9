//! Containers as the engine's events keep them, for lists that may be a moment old.
//!
//! The first list of a process is a plain query. From the second on an event stream is open: containers without an
//! event since their inspection are reported from memory. Before each answer the engine is pinged, so that an engine
//! that is gone is detected, and earlier events have arrived. Docker sends an event before the command's program ends.
//! Podman's service reads a log up to 250 ms later (4.3, measured); so there a container without a process, or whose
//! process has ended, is inspected each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_runtime::{Container, LabelFilter};
use coracle_types::ContainerId;

use super::super::api::{ApiResult, EventStream};
use super::super::dialect::Dialect;
use super::by_api::ApiLookup;
use crate::running_process::RunningProcess;

/// More changes than this since the last list cost more to read than a new list.
const MAX_CHANGES: usize = 256;

/// State between lists.
#[derive(Debug, Default)]
pub(super) struct RecentContainers {
    state: tokio::sync::Mutex<ListState>,
    /// Changes of the watched list. Behind a lock of its own, so that an act does not wait for a running list.
    changes: Mutex<Option<Arc<Changes>>>,
}

#[derive(Debug, Default)]
enum ListState {
    #[default]
    Unlisted,
    /// These were listed once; a second list starts the event stream.
    ListedOnce(LabelFilter),
    Watched(Box<WatchedList>),
}

#[derive(Debug)]
struct WatchedList {
    filter: LabelFilter,
    containers: BTreeMap<ContainerId, CachedContainer>,
    changes: Arc<Changes>,
    _events: AbortOnDrop,
}

#[derive(Debug)]
struct CachedContainer {
    container: Arc<Container>,
    /// Its PID 1, where that has to be watched beside the events.
    process: Option<RunningProcess>,
}

/// Ids that events named, each with the number of the last such event.
#[derive(Debug, Default)]
struct Changes(Mutex<ChangeLog>);

#[derive(Debug, Default)]
struct ChangeLog {
    last: u64,
    ids: BTreeMap<String, RecentChange>,
    /// Events were missed, or will be.
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct RecentChange {
    number: u64,
    is_created: bool,
}

impl ListState {
    fn is_of(&self, filter: &LabelFilter) -> bool {
        match self {
            Self::Unlisted => false,
            Self::ListedOnce(listed) => listed == filter,
            Self::Watched(watched) => watched.filter == *filter,
        }
    }
}

impl RecentContainers {
    pub(super) async fn list(&self, lookup: &ApiLookup, filter: &LabelFilter) -> ApiResult<Vec<Arc<Container>>> {
        let mut state = self.state.lock().await;
        let watched = match std::mem::take(&mut *state) {
            ListState::Watched(mut watched) if watched.filter == *filter && !watched.changes.is_broken() => {
                watched.refresh(lookup).await?;
                watched
            }
            before if before.is_of(filter) => match self.begin(lookup, filter).await {
                Ok(watched) => watched,
                Err(fault) => {
                    // Not every engine sends events, and each sends those that it has.
                    tracing::debug!("the engine's events cannot be followed: {fault}");
                    drop(state);
                    return listed_once(lookup, filter).await;
                }
            },
            _ => {
                *state = ListState::ListedOnce(filter.clone());
                drop(state);
                return listed_once(lookup, filter).await;
            }
        };
        let listed = watched.containers.values().map(|it| Arc::clone(&it.container)).collect();
        *state = ListState::Watched(watched);
        Ok(listed)
    }

    /// This process changed the container, so no event is waited for.
    pub(super) fn note_changed(&self, id: &ContainerId, is_created: bool) {
        if let Some(changes) = self.changes() {
            changes.note(id.as_str(), is_created);
        }
    }

    /// This process changed containers whose ids it does not know.
    pub(super) fn forget(&self) {
        if let Some(changes) = self.changes() {
            changes.break_off();
        }
    }

    fn changes(&self) -> Option<Arc<Changes>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn begin(&self, lookup: &ApiLookup, filter: &LabelFilter) -> ApiResult<Box<WatchedList>> {
        let changes = Arc::<Changes>::default();
        // From here on, so that none is missed between the first look and the first answer.
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes.clone());
        WatchedList::begin(lookup, filter, changes).await
    }
}

impl WatchedList {
    async fn begin(lookup: &ApiLookup, filter: &LabelFilter, changes: Arc<Changes>) -> ApiResult<Box<Self>> {
        let events = lookup.events().await?;
        let watching = tokio::spawn(watch(events, changes.clone()));
        let mut it = Box::new(Self {
            filter: filter.clone(),
            containers: BTreeMap::new(),
            changes,
            _events: AbortOnDrop(watching),
        });
        for container in lookup.containers(filter).await? {
            it.keep(lookup.dialect(), container);
        }
        Ok(it)
    }

    fn keep(&mut self, dialect: Dialect, container: Container) {
        let is_watched = dialect == Dialect::Podman;
        let process = container.pid.filter(|_| is_watched).and_then(RunningProcess::open);
        self.containers.insert(container.id.clone(), CachedContainer { container: Arc::new(container), process });
    }

    /// Inspects what may have changed.
    async fn refresh(&mut self, lookup: &ApiLookup) -> ApiResult<()> {
        lookup.ping().await?;
        tokio::task::yield_now().await;
        let changed = self.changes.noted();
        let is_known = |id: &str| self.containers.keys().any(|it| it.as_str() == id);
        let named = changed.iter().filter(|(id, change)| change.is_created || is_known(id)).map(|(id, _)| id.clone());
        let mut stale: Vec<String> = named.collect();
        if lookup.dialect() == Dialect::Podman {
            let ended = self.containers.iter().filter(|(_, it)| !it.process.as_ref().is_some_and(RunningProcess::runs));
            stale.extend(ended.map(|(id, _)| id.to_string()).filter(|it| !changed.contains_key(it)));
        }
        let found = lookup.containers_of(&stale).await?;
        for id in &stale {
            self.containers.retain(|it, _| it.as_str() != id);
        }
        for container in found {
            if self.filter.admits(&container.labels) {
                self.keep(lookup.dialect(), container);
            }
        }
        self.changes.forget(&changed);
        Ok(())
    }
}

async fn listed_once(lookup: &ApiLookup, filter: &LabelFilter) -> ApiResult<Vec<Arc<Container>>> {
    Ok(lookup.containers(filter).await?.into_iter().map(Arc::new).collect())
}

async fn watch(mut events: EventStream, changes: Arc<Changes>) {
    loop {
        match events.next().await {
            Ok(Some(happened)) => happened.iter().for_each(|it| changes.note(&it.container, it.is_created)),
            Ok(None) => break,
            Err(fault) => {
                tracing::debug!("the engine's events cannot be followed: {fault}");
                break;
            }
        }
    }
    changes.break_off();
}

impl Changes {
    fn log(&self) -> std::sync::MutexGuard<'_, ChangeLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: &str, is_created: bool) {
        let mut log = self.log();
        log.last += 1;
        let number = log.last;
        let before = log.ids.get(id).is_some_and(|it| it.is_created);
        log.ids.insert(id.to_owned(), RecentChange { number, is_created: is_created || before });
        if log.ids.len() > MAX_CHANGES {
            log.ids.clear();
            log.is_broken = true;
        }
    }

    fn break_off(&self) {
        self.log().is_broken = true;
    }

    fn is_broken(&self) -> bool {
        self.log().is_broken
    }

    fn noted(&self) -> BTreeMap<String, RecentChange> {
        self.log().ids.clone()
    }

    /// Forgets changes that were inspected since. An id with a newer event stays.
    fn forget(&self, seen: &BTreeMap<String, RecentChange>) {
        self.log().ids.retain(|id, it| seen.get(id).is_none_or(|then| then.number != it.number));
    }
}

#[derive(Debug)]
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_during_a_look_is_looked_into_again() {
        let changes = Changes::default();
        changes.note("a", true);
        changes.note("b", false);
        let seen = changes.noted();
        changes.note("a", false);
        changes.forget(&seen);
        let left = changes.noted();
        assert_eq!(left.keys().collect::<Vec<_>>(), ["a"]);
        assert!(left["a"].is_created, "it was never seen, so it is still new");
    }

    #[test]
    fn a_flood_of_changes_ends_the_watch() {
        let changes = Changes::default();
        (0..=MAX_CHANGES).for_each(|it| changes.note(&it.to_string(), false));
        assert!(changes.is_broken() && changes.noted().is_empty());
    }
}
