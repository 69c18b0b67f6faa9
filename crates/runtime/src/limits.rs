//! What a container may use, and what an engine makes of it.

use serde::{Deserialize, Serialize};

use crate::{ByteSize, Capability, EngineKind};

/// A machine of Apple's engine with less does not start.
pub(crate) const LEAST_MEMORY: ByteSize = ByteSize::mib(200);

/// Ceilings of what a container may use.
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

/// A limit that an engine does not keep as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unkept {
    /// What the engine lacks; nothing where it only has a least value.
    pub capability: Option<Capability>,
    /// What becomes of the limit, in one sentence.
    pub message: String,
}

impl Limits {
    /// Those of these limits that an engine of that kind makes something else of, whatever its version.
    #[must_use]
    pub fn unkept_by(&self, engine: EngineKind) -> Vec<Unkept> {
        if engine != EngineKind::Container {
            return Vec::new();
        }
        let unkept = |capability, message| Some(Unkept { capability, message });
        let pids = self.pids.and_then(|it| {
            unkept(Some(Capability::PidsLimit), format!("{engine} ignores the limit of {it} processes"))
        });
        let cpus = self.cpus.filter(|it| it.fract() != 0.0).and_then(|it| {
            let whole = whole_cpus(it);
            unkept(Some(Capability::FractionalCpus), format!("{engine} gives whole cores: {it} became {whole}"))
        });
        let memory = self
            .memory
            .filter(|it| *it < LEAST_MEMORY)
            .and_then(|it| unkept(None, format!("{engine} gives at least {LEAST_MEMORY} of memory: {it} became that")));
        [pids, cpus, memory].into_iter().flatten().collect()
    }
}

/// What Apple's engine gives: at least one; a part of a processor counts as a whole one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
pub(crate) fn whole_cpus(cpus: f64) -> u32 {
    cpus.ceil().clamp(1.0, f64::from(u16::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r22_what_apples_engine_does_not_keep_is_told_and_others_keep_all() {
        let limits = Limits { memory: Some(ByteSize::mib(64)), cpus: Some(0.5), pids: Some(50) };
        let told: Vec<_> = limits.unkept_by(EngineKind::Container).into_iter().map(|it| it.capability).collect();
        assert_eq!(told, [Some(Capability::PidsLimit), Some(Capability::FractionalCpus), None]);
        let cpus = &limits.unkept_by(EngineKind::Container)[1].message;
        assert_eq!(cpus, "container gives whole cores: 0.5 became 1");
        assert_eq!(limits.unkept_by(EngineKind::Docker), []);
        let whole = Limits { memory: Some(ByteSize::mib(200)), cpus: Some(2.0), pids: None };
        assert_eq!(whole.unkept_by(EngineKind::Container), []);
    }
}
