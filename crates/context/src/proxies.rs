//! The proxies of containers that this process runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use coracle_sandbox::{ProxyLease, Startup};
use coracle_types::RecordId;
use tokio::task::JoinHandle;

/// The proxies of containers that this process uses: each listens until the process ends or the container is removed,
/// unless another process listens for it.
#[derive(Debug, Default)]
pub struct Proxies {
    open: Mutex<BTreeMap<String, Arc<OpenProxy>>>,
    program: OnceLock<PathBuf>,
}

/// A proxy that listens.
pub struct OpenProxy {
    /// Prepares the container after each of its starts.
    pub startup: Startup,
    /// Its directory, which is removed with the container.
    pub dir: PathBuf,
    /// Lets it listen.
    pub lease: ProxyLease,
    /// What it refused and was not yet reported to a caller.
    pub refusals: Refusals,
}

/// What a proxy refused since the last call: in a file, because the next call may be another process's. And the tasks
/// that record it in the audit trail.
#[derive(Clone, Debug)]
pub struct Refusals {
    file: PathBuf,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// Maximum number of refusals for one answer.
const MAX_REFUSALS: usize = 20;

impl Refusals {
    /// Those of the proxy with this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { file: dir.join("refused.jsonl"), tasks: Arc::default() }
    }

    /// Adds a refusal, if there is room and it is new.
    pub fn add(&self, refusal: &str, recorded_by: Option<JoinHandle<()>>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|it| !it.is_finished());
        tasks.extend(recorded_by);
        let known = self.read();
        if known.len() < MAX_REFUSALS && !known.iter().any(|it| it == refusal) {
            let line = format!("{}\n", serde_json::Value::from(refusal));
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file);
            if let Err(err) = file.and_then(|mut it| it.write_all(line.as_bytes())) {
                tracing::debug!(%err, "a refused request is not reported to the next call");
            }
        }
    }

    fn read(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
    }

    /// Takes the refusals, and waits until they are recorded: the process may end with this call.
    async fn take(&self) -> Vec<String> {
        let refusals = self.read();
        if !refusals.is_empty() {
            // Another call that reports the same is harmless.
            let _ = std::fs::remove_file(&self.file);
        }
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        refusals
    }
}

impl fmt::Debug for OpenProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProxy").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Proxies {
    /// This process makes one call and ends. The proxies that it needs run in processes of this program, which stay
    /// until their containers stop.
    pub fn run_by(&self, program: PathBuf) {
        let _ = self.program.set(program);
    }

    /// The program that runs proxies, for a process that makes one call.
    pub(crate) fn program(&self) -> Option<&Path> {
        self.program.get().map(PathBuf::as_path)
    }

    /// Returns the proxy of a container, opened at its first use. Closes those of removed containers.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get_or_open<E>(
        &self,
        container: &RecordId,
        open: impl FnOnce() -> Result<OpenProxy, E>,
    ) -> Result<Arc<OpenProxy>, E> {
        let mut proxies = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        proxies.retain(|_, it| it.dir.is_dir());
        if let Some(known) = proxies.get(container.as_str()) {
            return Ok(known.clone());
        }
        let opened = Arc::new(open()?);
        proxies.insert(container.as_str().to_owned(), opened.clone());
        Ok(opened)
    }

    /// Takes what the proxy of a container has refused since the last time. If this process runs the proxy, waits until
    /// its requests are recorded.
    pub(crate) async fn refused(&self, container: &RecordId) -> Vec<String> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(container.as_str()).cloned();
        match known {
            Some(proxy) => {
                proxy.lease.flush_record().await;
                proxy.refusals.take().await
            }
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_process_takes_a_refusal_once() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Refusals::new(dir.path()));
        assert!(other.take().await.is_empty());
        one.add("`a\nb`", None);
        one.add("`a\nb`", None);
        assert_eq!(other.take().await, ["`a\nb`"]);
        assert!(one.take().await.is_empty());
        (0..2 * MAX_REFUSALS).for_each(|number| one.add(&number.to_string(), None));
        assert_eq!(other.take().await.len(), MAX_REFUSALS);
    }
}
