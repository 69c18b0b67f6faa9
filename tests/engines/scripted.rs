//! Simulates Apple's `container` with a program of this package. Each case has its own directory.

use std::os::unix::fs::PermissionsExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use coracle_apple::AppleRuntime;
use coracle_engine_program::EngineSettings;
use coracle_types::EngineKind;
use serde_json::Value;
use tempfile::TempDir;

use super::each::on_engine;
use super::{Case, caught, person, settings};

/// Its name among the engines.
pub(super) const CONTAINER: &str = "container";

/// The simulated engine of one case.
#[derive(Debug)]
pub(crate) struct Scripted(TempDir);

impl Scripted {
    /// An engine without containers. It uses namespaces of this machine, which need root.
    pub(crate) fn new() -> Result<Self, String> {
        if !cfg!(target_os = "linux") || !person::is_root() {
            return Err("the played `container` needs Linux and root".into());
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        // The product's environment does not reach an engine's program.
        let (program, state_dir) = (env!("CARGO_BIN_EXE_container"), dir.path().join("state"));
        let script =
            format!("#!/bin/sh\nCORACLE_SCRIPTED_CONTAINER='{}' exec '{program}' \"$@\"\n", state_dir.display());
        let it = Self(dir);
        std::fs::write(it.program(), script).unwrap();
        std::fs::set_permissions(it.program(), PermissionsExt::from_mode(0o755)).unwrap();
        Ok(it)
    }

    /// The program, for a configuration.
    pub(crate) fn program(&self) -> PathBuf {
        self.0.path().join(CONTAINER)
    }

    fn state_dir(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// Sets its faults from now on.
    pub(crate) fn plays(&self, scenario: &Value) {
        let _ = std::fs::remove_dir_all(self.state_dir().join("counts"));
        std::fs::write(self.state_dir().join("scenario.json"), scenario.to_string()).unwrap();
    }

    /// All calls: `{argv, env, stdin_open}` each.
    pub(crate) fn calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state_dir().join("calls.jsonl")).unwrap_or_default();
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    /// Number of calls of a verb.
    pub(crate) fn count(&self, verb: &str) -> usize {
        self.calls().iter().filter(|it| it["argv"][0] == verb).count()
    }

    pub(super) fn connect(&self, config: &Path) -> AppleRuntime {
        let settings = EngineSettings { program: Some(self.program()), ..settings(config) };
        AppleRuntime::connect(&settings).unwrap()
    }
}

/// Runs a check only on the simulated engine. If it cannot be simulated, the check counts as skipped.
pub(crate) async fn with_scripted(check: impl AsyncFn(&Case, &Scripted)) {
    if Scripted::new().is_err() {
        super::skip(CONTAINER);
        return;
    }
    let checked = async |case: &Case| {
        let scripted = case.scripted.as_ref().unwrap();
        let checked = caught(check(case, scripted)).await;
        scripted.plays(&serde_json::json!({}));
        if let Err(panic) = checked {
            resume_unwind(panic);
        }
    };
    if let Err(panic) = on_engine(&coracle_skips::test_name(), CONTAINER, &checked).await {
        resume_unwind(panic);
    }
}

/// Features that an engine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Images of containers.
    Commit,
    /// Stacks.
    Compose,
    /// Ports on the host.
    Publish,
    /// Whether it returns `limits` as they were given, such as fractions of cores, little memory, limits of processes.
    ExactLimits,
    /// Limits of each process: the simulated engine records the requested ones.
    Ulimits,
    /// Images by a Dockerfile.
    Build,
    /// A stream to the guest: another way than its socket.
    Stream,
    /// Freezing a container.
    Pause,
    /// Sources of mounts with any name.
    OddSources,
    /// The exit status of a container's first process, and its pid here.
    Processes,
    /// Whether images can be created, named and removed. A cluster has those of its registries.
    Images,
    /// Directories of this host.
    Binds,
    /// A second start of a container that ended.
    Restart,
    /// Files of a container that does not run.
    FilesAtRest,
    /// Whether a command without a guest can have another user in an image without a program for that.
    PlainUsers,
    /// Modes of directories in memory.
    MemoryModes,
    /// Whether networks carry data. Those of the simulated engine are only names.
    Carriers,
    /// Networks that containers share.
    NamedNetworks,
    /// A way to an address of this host: by a user-mode network it is the container's own.
    HostAddress,
    /// Whether the kernel enforces limits: no control groups are delegated to the unprivileged user.
    EnforcedLimits,
}

impl Case {
    /// Whether the engine lacks something that a check is about. It leaves that out, and it is counted.
    pub(crate) fn lacks(&self, what: Lack) -> bool {
        let lacks = match self.engine() {
            EngineKind::Container => match what {
                Lack::Images | Lack::Binds | Lack::Restart | Lack::FilesAtRest => false,
                Lack::PlainUsers | Lack::MemoryModes => false,
                Lack::NamedNetworks | Lack::HostAddress | Lack::EnforcedLimits => false,
                Lack::Carriers | Lack::Ulimits => self.scripted.is_some(),
                _ => true,
            },
            EngineKind::Embedded => match what {
                // Its guest's socket is always there, so there is no stream.
                Lack::Build | Lack::Stream => true,
                Lack::NamedNetworks | Lack::Carriers | Lack::Compose | Lack::HostAddress => self.is_rootless(),
                Lack::Pause | Lack::EnforcedLimits => !self.keeps_limits(),
                _ => false,
            },
            EngineKind::Kubernetes => !matches!(
                what,
                Lack::Processes | Lack::Stream | Lack::ExactLimits | Lack::NamedNetworks | Lack::EnforcedLimits
            ),
            _ => match what {
                Lack::EnforcedLimits => !self.keeps_limits(),
                _ => false,
            },
        };
        if lacks {
            self.left_out();
        }
        lacks
    }

    /// The test is about another engine, so nothing is checked here.
    pub(crate) fn is_not_meant(&self) {
        self.left_out.store(true, Ordering::Relaxed);
    }

    /// Counts that something is not tried on it. On the fake it counts if there is no other engine to try it on.
    pub(crate) fn left_out(&self) {
        self.is_not_meant();
        if self.is_real() {
            super::skip(self.engine().as_str());
        } else if !super::has_real_engine() {
            super::skip(coracle_skips::NEEDS_ENGINE);
        }
    }
}
