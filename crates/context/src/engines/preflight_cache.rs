//! Caches a good verdict of preflight, so that calls shortly after it need not inspect the host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coracle_host::fs::replace;
use coracle_lifecycle::Store;
use coracle_runtime::ContainerRuntime;
use coracle_types::EngineKind;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Engines;

/// An engine that is ready to create containers.
#[derive(Clone, Debug)]
pub struct Ready {
    pub runtime: Arc<dyn ContainerRuntime>,
    pub ignored_limits: Vec<String>,
    pub gpu: bool,
}

/// An engine that is ready, and the records of its containers.
#[derive(Clone, Copy, Debug)]
pub struct Backend<'a> {
    pub ready: &'a Ready,
    pub store: &'a Store,
}

/// A cached verdict.
#[derive(Debug, Serialize, Deserialize)]
struct PreflightRecord {
    engine: EngineKind,
    endpoint: String,
    ignored_limits: Vec<String>,
    gpu: bool,
    /// Digest of the configuration: the verdict does not apply to another one.
    config: String,
    at: jiff::Timestamp,
}

/// How long a good verdict applies. A bad one is never cached.
const MAX_AGE: Duration = Duration::from_secs(600);

impl Engines {
    /// Returns the engine of a verdict that still applies, without contacting it.
    pub fn cached(&self) -> Option<Ready> {
        let bytes = std::fs::read(self.state().ok()?.preflight()).ok()?;
        let record: PreflightRecord = serde_json::from_slice(&bytes).ok()?;
        let age = jiff::Timestamp::now().duration_since(record.at);
        let fresh = !age.is_negative() && age.unsigned_abs() < MAX_AGE;
        if !fresh || record.config != self.config_digest() {
            return None;
        }
        let runtime = self.recorded(record.engine, &record.endpoint).ok()?;
        Some(Ready { runtime, ignored_limits: record.ignored_limits, gpu: record.gpu })
    }

    /// Caches a verdict. An error only means that the next call inspects the host again.
    pub fn cache(&self, ready: &Ready) {
        let record = PreflightRecord {
            engine: ready.runtime.kind(),
            endpoint: ready.runtime.endpoint().address,
            ignored_limits: ready.ignored_limits.clone(),
            gpu: ready.gpu,
            config: self.config_digest(),
            at: jiff::Timestamp::now(),
        };
        let Ok(state) = self.state() else { return };
        let written = || -> io::Result<()> { replace(&state.preflight(), &serde_json::to_vec(&record)?) };
        if let Err(err) = written() {
            tracing::debug!(%err, "cannot cache the verdict of preflight");
        }
    }

    /// Deletes the cached verdict.
    pub fn clear_cached(&self) {
        if let Ok(state) = self.state() {
            let _ = std::fs::remove_file(state.preflight());
        }
    }

    fn config_digest(&self) -> String {
        hex::encode(Sha256::digest(format!("{:?}", self.config)))
    }
}
