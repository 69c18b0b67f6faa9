//! The ports of this host that a session forwards into containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_sandbox::SandboxKey;
use coracle_sandbox::provider::Forward;
use coracle_types::{RecordId, WorkflowId};

/// Ports that one session forwards at most.
pub const MAX_FORWARDS: usize = 32;

/// What a forwarded port leads into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForwardTarget {
    /// A container, by its record: another one of its name is another target.
    Container(RecordId),
    /// The sandbox of a workflow.
    Workflow { sandbox: SandboxKey, id: WorkflowId },
}

/// The forwarded ports of a session, by target and port inside. They end when it is dropped.
#[derive(Clone, Debug, Default)]
pub struct Forwards(Arc<Mutex<BTreeMap<(ForwardTarget, u16), Forward>>>);

impl Forwards {
    /// Whether there can be no more.
    pub fn is_full(&self) -> bool {
        self.all().len() >= MAX_FORWARDS
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Keeps one, in place of an earlier one from the same port inside.
    pub fn add(&self, target: ForwardTarget, inside: u16, forward: Forward) -> u16 {
        let port = forward.port;
        self.all().insert((target, inside), forward);
        port
    }

    /// Closes the ports of the targets that are gone.
    pub fn retain(&self, mut is_there: impl FnMut(&ForwardTarget) -> bool) {
        self.all().retain(|(target, _), _| is_there(target));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(ForwardTarget, u16), Forward>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port of one that is there.
    pub fn port(&self, target: &ForwardTarget, inside: u16) -> Option<u16> {
        self.all().get(&(target.clone(), inside)).map(|it| it.port)
    }
}
