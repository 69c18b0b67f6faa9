//! The proxies of containers that this process runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_proxy::ProxyEvent;
use coracle_sandbox::{ProxyLease, Startup};
use coracle_types::RecordId;
use tokio::task::JoinHandle;

/// The proxies of containers that this process uses: each listens until the process ends or the container is removed.
#[derive(Debug, Default)]
pub struct Proxies(Mutex<BTreeMap<String, Arc<OpenProxy>>>);

/// A proxy that listens.
pub struct OpenProxy {
    /// Prepares the container after each of its starts.
    pub startup: Startup,
    /// Its directory, which is removed with the container.
    pub dir: PathBuf,
    /// Lets it listen.
    pub lease: ProxyLease,
    /// What it refused and was not yet reported to a caller.
    pub refused: RecentEvents,
}

/// The newest events of a proxy, each once, and the tasks that record them.
#[derive(Clone, Debug, Default)]
pub struct RecentEvents(Arc<Mutex<EventsAndTasks>>);

type EventsAndTasks = (Vec<ProxyEvent>, Vec<JoinHandle<()>>);

/// Maximum number of events for one answer.
const MAX_EVENTS: usize = 20;

impl RecentEvents {
    /// Adds an event, if there is room and it is new.
    pub fn add(&self, event: &ProxyEvent, records: Option<JoinHandle<()>>) {
        let (events, tasks) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < MAX_EVENTS && !events.contains(event) {
            events.push(event.clone());
        }
        tasks.retain(|it| !it.is_finished());
        tasks.extend(records);
    }

    /// Takes the events, and waits until they are recorded: the process may end with this call.
    async fn take(&self) -> Vec<ProxyEvent> {
        let (events, tasks) = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        events
    }
}

impl fmt::Debug for OpenProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProxy").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Proxies {
    /// Returns the proxy of a container, opened at its first use. Closes those of removed containers.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get_or_open<E>(
        &self,
        container: &RecordId,
        open: impl FnOnce() -> Result<OpenProxy, E>,
    ) -> Result<Arc<OpenProxy>, E> {
        let mut proxies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        proxies.retain(|_, it| it.dir.is_dir());
        if let Some(known) = proxies.get(container.as_str()) {
            return Ok(known.clone());
        }
        let opened = Arc::new(open()?);
        proxies.insert(container.as_str().to_owned(), opened.clone());
        Ok(opened)
    }

    /// Takes what the proxy of a container has refused since the last time.
    pub(crate) async fn refused(&self, container: &RecordId) -> Vec<ProxyEvent> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(container.as_str()).cloned();
        match known {
            Some(proxy) => proxy.refused.take().await,
            None => Vec::new(),
        }
    }
}
