//! A good verdict of preflight, which holds for a while and saves the next calls the look.

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

/// An engine that is ready to make containers.
#[derive(Clone, Debug)]
pub struct Ready {
    pub runtime: Arc<dyn ContainerRuntime>,
    pub ignored_limits: Vec<String>,
    pub gpu: bool,
}

/// An engine that is ready, and the records of what is made on it.
#[derive(Clone, Copy, Debug)]
pub struct Backend<'a> {
    pub ready: &'a Ready,
    pub store: &'a Store,
}

/// A good verdict, kept for the next calls.
#[derive(Debug, Serialize, Deserialize)]
struct PreflightRecord {
    engine: EngineKind,
    endpoint: String,
    ignored_limits: Vec<String>,
    gpu: bool,
    /// What it was made under: another configuration asks again.
    config: String,
    at: jiff::Timestamp,
}

/// A good verdict holds this long; a bad one is never kept.
const HOLDS: Duration = Duration::from_secs(600);

impl Engines {
    /// The engine of a verdict that still holds, without asking it.
    pub fn kept(&self) -> Option<Ready> {
        let bytes = std::fs::read(self.state().ok()?.preflight()).ok()?;
        let kept: PreflightRecord = serde_json::from_slice(&bytes).ok()?;
        let age = jiff::Timestamp::now().duration_since(kept.at);
        let fresh = !age.is_negative() && age.unsigned_abs() < HOLDS;
        if !fresh || kept.config != self.config_digest() {
            return None;
        }
        let runtime = self.recorded(kept.engine, &kept.endpoint).ok()?;
        Some(Ready { runtime, ignored_limits: kept.ignored_limits, gpu: kept.gpu })
    }

    /// A verdict that cannot be kept is looked for again: no harm but time.
    pub fn keep(&self, ready: &Ready) {
        let kept = PreflightRecord {
            engine: ready.runtime.kind(),
            endpoint: ready.runtime.endpoint().address,
            ignored_limits: ready.ignored_limits.clone(),
            gpu: ready.gpu,
            config: self.config_digest(),
            at: jiff::Timestamp::now(),
        };
        let Ok(state) = self.state() else { return };
        let written = || -> io::Result<()> { replace(&state.preflight(), &serde_json::to_vec(&kept)?) };
        if let Err(err) = written() {
            tracing::debug!(%err, "the verdict of preflight is not kept");
        }
    }

    /// The next call looks again.
    pub fn forget_kept(&self) {
        if let Ok(state) = self.state() {
            let _ = std::fs::remove_file(state.preflight());
        }
    }

    fn config_digest(&self) -> String {
        hex::encode(Sha256::digest(format!("{:?}", self.config)))
    }
}
