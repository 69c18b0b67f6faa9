//! The ports of this host that a session forwards into containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_sandbox::provider::Forward;

/// Ports that one session forwards at most.
pub(crate) const MAX_FORWARDS: usize = 32;

/// The forwarded ports of a session, by container or workflow and port inside. They end when it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwards(Arc<Mutex<BTreeMap<(String, u16), Forward>>>);

impl Forwards {
    /// Whether there can be no more.
    pub(crate) fn is_full(&self) -> bool {
        self.all().len() >= MAX_FORWARDS
    }

    /// Keeps one, in place of an earlier one from the same port inside.
    pub(crate) fn add(&self, container: &str, inside: u16, forward: Forward) -> u16 {
        let port = forward.port;
        self.all().insert((container.to_owned(), inside), forward);
        port
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, u16), Forward>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port of one that is there.
    pub(crate) fn port(&self, container: &str, inside: u16) -> Option<u16> {
        self.all().get(&(container.to_owned(), inside)).map(|it| it.port)
    }
}
