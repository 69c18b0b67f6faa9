//! The shells of a session: programs on terminals in containers, which stay open from call to call.
//!
//! **Invariant:** the number of shells and the stored output of each are bounded.

mod keys;
mod output;
mod shell;
mod terminal;
mod transcript;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::output::TerminalOutput;
pub use self::shell::{Shell, ShellEnd, WaitEnd};

/// Maximum number of shells per session.
pub const MAX_SHELLS: usize = 16;

/// The shells of a session, by their ids. They end when it is dropped.
#[derive(Clone, Debug, Default)]
pub struct Shells(Arc<Mutex<OpenShells>>);

#[derive(Debug, Default)]
struct OpenShells {
    /// How many shells were opened so far.
    opened: u64,
    all: BTreeMap<String, Arc<Shell>>,
}

impl Shells {
    fn open(&self) -> MutexGuard<'_, OpenShells> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the maximum is reached. Shells that have ended do not count.
    pub fn is_full(&self) -> bool {
        self.open().all.values().filter(|it| it.end().is_none()).count() >= MAX_SHELLS
    }

    /// Adds a shell and returns its id.
    pub fn add(&self, shell: Arc<Shell>) -> String {
        let mut open = self.open();
        if open.all.len() >= MAX_SHELLS {
            let ended = open.all.iter().find(|it| it.1.end().is_some()).map(|it| it.0.clone());
            ended.and_then(|id| open.all.remove(&id));
        }
        open.opened += 1;
        let id = format!("s{}", open.opened);
        open.all.insert(id.clone(), shell);
        id
    }

    /// Returns a shell by its id.
    pub fn get(&self, id: &str) -> Option<Arc<Shell>> {
        self.open().all.get(id).cloned()
    }

    /// Removes a shell. It ends when its last user drops it.
    pub fn remove(&self, id: &str) -> Option<Arc<Shell>> {
        self.open().all.remove(id)
    }

    /// Lists the shells with the names of their containers.
    pub fn list(&self) -> Vec<(String, String)> {
        self.open().all.iter().map(|(id, it)| (id.clone(), it.container.to_string())).collect()
    }

    /// Ends all shells, and waits for them.
    pub(crate) async fn close_all(&self, within: Duration) {
        let all = std::mem::take(&mut self.open().all);
        futures_util::future::join_all(all.values().map(|it| it.close(within))).await;
    }
}
