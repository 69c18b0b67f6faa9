//! Keeps the network that all containers share from one container to the next: Docker takes a third of a second to create
//! and to remove it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use coracle_runtime::ContainerRuntime;
use coracle_types::EngineKind;

use crate::Lock;

/// The lock that keeps it, in a process that creates one container after another.
#[derive(Debug, Default)]
pub(crate) struct NetworkHold {
    is_enabled: AtomicBool,
    held: Mutex<Option<HeldNetwork>>,
}

#[derive(Debug)]
struct HeldNetwork {
    engine: EngineKind,
    endpoint: String,
    _lock: Lock,
}

impl NetworkHold {
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Takes the lock under which a container was put on the network. Gives it back where this process keeps no network, or
    /// keeps one already.
    pub(crate) fn keep(&self, lock: Lock, runtime: &dyn ContainerRuntime) -> Option<Lock> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_enabled.load(Ordering::Relaxed) || held.is_some() {
            return Some(lock);
        }
        *held = Some(HeldNetwork { engine: runtime.kind(), endpoint: runtime.endpoint().address, _lock: lock });
        None
    }

    /// Gives up the lock. Returns the engine of the network and its endpoint.
    pub(crate) fn release(&self) -> Option<(EngineKind, String)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((held.engine, held.endpoint))
    }
}
