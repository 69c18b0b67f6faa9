//! The records of containers, opened at their first use, and the connections to their guests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coracle_client::LinkSettings;
use coracle_lifecycle::{Links, SessionContainers, SlotLimits, Store};
use coracle_protocol::Retention;
use coracle_types::LabelNamespace;

use crate::config::{Config, Exec};
use crate::failure::Failure;
use crate::state::StateDir;

/// The records of one process.
#[derive(Debug)]
pub struct Records {
    /// The state directory, or why it cannot be used.
    state: Result<Arc<StateDir>, Arc<Failure>>,
    namespace: LabelNamespace,
    store: OnceLock<Store>,
    /// See [`Store::keep_network`].
    keeps_network: AtomicBool,
    links: Links,
    terms: SlotLimits,
    slots: OnceLock<SessionContainers>,
}

impl Records {
    /// Opens no file.
    pub fn new(config: &Config, state: Result<Arc<StateDir>, Arc<Failure>>) -> Self {
        let Exec { keep_bytes, keep_total, keep_for, .. } = &config.exec;
        let keep = Retention { bytes: keep_bytes.0, total: keep_total.0, for_s: keep_for.0.as_secs() };
        let terms = SlotLimits {
            idle: config.workspace.idle.0,
            sandbox_idle: config.sandbox.idle.0,
            lifetime: config.workspace.lifetime.unless_zero().unwrap_or(Duration::MAX),
            sandbox_lifetime: config.sandbox.lifetime.unless_zero().unwrap_or(Duration::MAX),
            ..SlotLimits::default()
        };
        let (namespace, links) = (config.label_namespace.clone(), Links::new(LinkSettings { keep }));
        Self {
            state,
            namespace,
            store: OnceLock::new(),
            keeps_network: AtomicBool::new(false),
            links,
            terms,
            slots: OnceLock::new(),
        }
    }

    /// Coracle's state directory.
    pub fn state(&self) -> Result<&StateDir, Failure> {
        self.state.as_deref().map_err(|fault| Failure::clone(fault))
    }

    /// Opens the records.
    pub fn store(&self) -> Result<Store, Failure> {
        if let Some(store) = self.store.get() {
            return Ok(store.clone());
        }
        let store = Store::open(self.state()?.root(), self.namespace.clone())?;
        let store = self.store.get_or_init(|| store).clone();
        if self.keeps_network.load(Ordering::Relaxed) {
            store.keep_network();
        }
        Ok(store)
    }

    /// See [`Store::keep_network`].
    pub fn keep_network(&self) {
        self.keeps_network.store(true, Ordering::Relaxed);
        if let Some(store) = self.store.get() {
            store.keep_network();
        }
    }

    /// Connections to the guests of containers.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The containers of sessions.
    pub fn session_containers(&self) -> Result<SessionContainers, Failure> {
        let store = self.store()?;
        Ok(self.slots.get_or_init(|| SessionContainers::new(store, self.links.clone(), self.terms)).clone())
    }
}
