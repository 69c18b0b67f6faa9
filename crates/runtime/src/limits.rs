//! Resource limits of a container, and which of them an engine does not enforce.

use coracle_types::{ByteSize, Capability, EngineKind};
use serde::{Deserialize, Serialize};

/// Virtual machines of Apple's engine do not start with less.
pub const LEAST_MEMORY: ByteSize = ByteSize::mib(200);

/// Resource limits of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory; no swap is added.
    pub memory: Option<ByteSize>,
    /// Cores, also parts of one.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

impl Eq for Limits {}

/// A limit that an engine ignores or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnenforcedLimit {
    /// The capability that the engine lacks. Unset where the engine only has a minimum.
    pub capability: Option<Capability>,
    /// How the engine treats the limit, in one sentence.
    pub message: String,
}

impl Limits {
    /// Returns the limits that engines of that kind ignore or change, in every version.
    #[must_use]
    pub fn unenforced_by(&self, engine: EngineKind) -> Vec<UnenforcedLimit> {
        if !matches!(engine, EngineKind::Container | EngineKind::Kubernetes) {
            return Vec::new();
        }
        let unenforced = |capability, message| Some(UnenforcedLimit { capability, message });
        let pids = self.pids.and_then(|it| {
            unenforced(Some(Capability::PidsLimit), format!("{engine} ignores the limit of {it} processes"))
        });
        if engine == EngineKind::Kubernetes {
            return pids.into_iter().collect();
        }
        let cpus = self.cpus.filter(|it| it.fract() != 0.0).and_then(|it| {
            let whole = whole_cpus(it);
            unenforced(Some(Capability::FractionalCpus), format!("{engine} gives whole cores: {it} became {whole}"))
        });
        let memory = self.memory.filter(|it| *it < LEAST_MEMORY).and_then(|it| {
            unenforced(None, format!("{engine} gives at least {LEAST_MEMORY} of memory: {it} became that"))
        });
        [pids, cpus, memory].into_iter().flatten().collect()
    }
}

/// The number of cores that Apple's engine gives: at least one; a part of a core counts as a whole one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
#[must_use]
pub fn whole_cpus(cpus: f64) -> u32 {
    cpus.ceil().clamp(1.0, f64::from(u16::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r22_limits_that_apples_engine_does_not_enforce_are_reported_and_others_enforce_all() {
        let limits = Limits { memory: Some(ByteSize::mib(64)), cpus: Some(0.5), pids: Some(50) };
        let capabilities: Vec<_> =
            limits.unenforced_by(EngineKind::Container).into_iter().map(|it| it.capability).collect();
        assert_eq!(capabilities, [Some(Capability::PidsLimit), Some(Capability::FractionalCpus), None]);
        let cpus = &limits.unenforced_by(EngineKind::Container)[1].message;
        assert_eq!(cpus, "container gives whole cores: 0.5 became 1");
        assert_eq!(limits.unenforced_by(EngineKind::Docker), []);
        let of_pods: Vec<_> =
            limits.unenforced_by(EngineKind::Kubernetes).into_iter().map(|it| it.capability).collect();
        assert_eq!(of_pods, [Some(Capability::PidsLimit)]);
        let whole = Limits { memory: Some(ByteSize::mib(200)), cpus: Some(2.0), pids: None };
        assert_eq!(whole.unenforced_by(EngineKind::Container), []);
    }
}
