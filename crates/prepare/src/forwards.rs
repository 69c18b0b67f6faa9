//! The host ports that a session forwards into containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_sandbox::SandboxKey;
use coracle_sandbox::provider::Forward;
use coracle_types::{RecordId, WorkflowId};

/// Maximum number of forwarded ports per session.
pub const MAX_FORWARDS: usize = 32;

/// The destination of a forwarded port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForwardTarget {
    /// A container, by its record: another container that gets the same name is another target.
    Container(RecordId),
    /// The sandbox of a workflow.
    Workflow { sandbox: SandboxKey, id: WorkflowId },
}

/// The forwarded ports of a session, by target and container port. They close when it is dropped.
#[derive(Clone, Debug, Default)]
pub struct Forwards(Arc<Mutex<BTreeMap<(ForwardTarget, u16), Forward>>>);

impl Forwards {
    /// Whether the maximum is reached.
    pub fn is_full(&self) -> bool {
        self.all().len() >= MAX_FORWARDS
    }

    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Adds a forwarded port and returns its host port. Replaces an earlier one from the same container port.
    pub fn add(&self, target: ForwardTarget, inside: u16, forward: Forward) -> u16 {
        let port = forward.port;
        self.all().insert((target, inside), forward);
        port
    }

    /// Closes the ports of targets for which `is_there` returns false.
    pub fn retain(&self, mut is_there: impl FnMut(&ForwardTarget) -> bool) {
        self.all().retain(|(target, _), _| is_there(target));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(ForwardTarget, u16), Forward>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the host port that forwards to a container port.
    pub fn port(&self, target: &ForwardTarget, inside: u16) -> Option<u16> {
        self.all().get(&(target.clone(), inside)).map(|it| it.port)
    }
}
