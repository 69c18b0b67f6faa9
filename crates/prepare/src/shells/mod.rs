//! The shells of a session: programs on terminals in containers, which stay open from call to call.
//!
//! **Invariant:** what is kept of each is bounded, and so is their number.

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

/// Shells that one session has at most.
pub const MAX_SHELLS: usize = 16;

/// The shells of a session, by their ids. They end when it is dropped.
#[derive(Clone, Debug, Default)]
pub struct Shells(Arc<Mutex<OpenShells>>);

#[derive(Debug, Default)]
struct OpenShells {
    /// How many there were.
    opened: u64,
    all: BTreeMap<String, Arc<Shell>>,
}

impl Shells {
    fn open(&self) -> MutexGuard<'_, OpenShells> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there can be no more. Those that ended make room.
    pub fn is_full(&self) -> bool {
        self.open().all.values().filter(|it| it.end().is_none()).count() >= MAX_SHELLS
    }

    /// Keeps one, and gives its id.
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

    /// One that is there.
    pub fn get(&self, id: &str) -> Option<Arc<Shell>> {
        self.open().all.get(id).cloned()
    }

    /// Takes one out. It ends when its last user lets go of it.
    pub fn remove(&self, id: &str) -> Option<Arc<Shell>> {
        self.open().all.remove(id)
    }

    /// Those that are there, with the names of their containers.
    pub fn list(&self) -> Vec<(String, String)> {
        self.open().all.iter().map(|(id, it)| (id.clone(), it.container.to_string())).collect()
    }

    /// Ends all of them, and waits for that.
    pub(crate) async fn close_all(&self, within: Duration) {
        let all = std::mem::take(&mut self.open().all);
        futures_util::future::join_all(all.values().map(|it| it.close(within))).await;
    }
}
