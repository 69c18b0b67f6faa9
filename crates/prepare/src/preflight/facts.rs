//! The facts about this host that the checks of preflight need.

use std::path::PathBuf;

use coracle_context::config::Engine;
use coracle_context::context::Context;
use coracle_context::engines::{Choice, data_dir};
use coracle_context::failure::Failure;
use coracle_context::host_identity::trusted_path;
use coracle_context::host_system::System;
use coracle_host::find_program::find_program_in;
use coracle_lifecycle::Store;
use coracle_runtime::EngineInfo;
use coracle_types::{EngineKind, Error};

use super::checks::Check;

/// The input of all checks.
#[derive(Clone, Debug)]
pub(crate) struct PreflightFacts {
    pub system: System,
    /// The setting `engine`.
    pub wanted: Engine,
    pub config: Option<Failure>,
    pub state: Option<Failure>,
    /// Why the configured engine may not be used.
    pub endpoint: Option<Failure>,
    pub engine: Option<EngineInfo>,
    pub skipped: Vec<SkippedEngine>,
    /// Why `auto` chose the engine.
    pub(crate) auto_reason: Option<String>,
    /// Free bytes where the engine stores its data, if that can be read here.
    pub(crate) free_bytes: Option<u64>,
    /// The state directory, and the bytes that are free there.
    pub(crate) state_space: Option<(PathBuf, u64)>,
    pub root: bool,
    pub git: bool,
    pub gh: bool,
    pub unverified: Vec<String>,
    /// Files of the state directory that a newer version wrote.
    pub newer: Vec<PathBuf>,
    /// Checks of the embedded engine, if it is chosen or could not be chosen, or those of a cluster.
    pub(crate) of_engine: Vec<Check>,
}

/// An engine that was not chosen.
#[derive(Clone, Debug)]
pub(crate) struct SkippedEngine {
    pub kind: EngineKind,
    pub installed: bool,
    pub denied: bool,
    pub why: String,
}

impl PreflightFacts {
    /// Collects the facts without changing anything.
    pub(crate) fn gather(
        cx: &Context,
        detected: &Result<Choice, Failure>,
        unverified: Vec<String>,
        system: System,
    ) -> Self {
        let choice = detected.as_ref().ok();
        let engine = choice.and_then(|it| it.chosen.as_ref()).map(|it| it.1.clone());
        let free = |it: &EngineInfo| free_at(&it.data_root);
        // A cluster's data is on its nodes.
        let here = engine.as_ref().filter(|it| it.kind != EngineKind::Kubernetes);
        Self {
            system,
            wanted: cx.config.engine,
            config: cx.settings.fault.clone(),
            state: cx.state().err(),
            endpoint: detected.as_ref().err().cloned(),
            free_bytes: here.and_then(free),
            state_space: cx.state().ok().and_then(|state| Some((state.root().to_owned(), free_at(state.root())?))),
            engine,
            skipped: choice.map(|it| it.skipped.iter().map(SkippedEngine::from_error).collect()).unwrap_or_default(),
            auto_reason: choice.and_then(|it| it.reason.clone()),
            root: cx.host.uid == 0,
            git: find_program_in("git", &trusted_path(cx)).is_ok(),
            gh: find_program_in("gh", &trusted_path(cx)).is_ok(),
            unverified,
            newer: cx.store().map(|store| newer_files(&store)).unwrap_or_default(),
            of_engine: Vec::new(),
        }
        .with_embedded(cx)
    }

    /// Inspects the host for the embedded engine.
    #[cfg(target_os = "linux")]
    fn with_embedded(mut self, cx: &Context) -> Self {
        use super::embedded::{checks, isolation, oci_runtime};

        let is_embedded = match &self.engine {
            Some(engine) => engine.kind == EngineKind::Embedded,
            None => self.skipped.iter().any(|it| it.kind == EngineKind::Embedded),
        };
        if is_embedded {
            let found = coracle_engine::preflight::Readiness::inspect(&data_dir(&cx.config, &cx.host));
            self.of_engine = checks(&found, &self.system);
            let runtime = coracle_context::engines::runtime(&cx.config);
            self.of_engine.extend(runtime.map(|it| oci_runtime(it, &found, &self.system)));
            self.of_engine.push(isolation(&found, runtime));
        }
        self
    }

    #[cfg(not(target_os = "linux"))]
    fn with_embedded(self, _: &Context) -> Self {
        self
    }
}

fn free_at(dir: &std::path::Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|it| it.f_bavail * it.f_frsize)
}

fn newer_files(store: &Store) -> Vec<PathBuf> {
    let saves = store.all_saves().map(|(_, newer)| newer);
    [store.newer_files(), saves].into_iter().flatten().flatten().collect()
}

impl SkippedEngine {
    pub(super) fn from_error((kind, err): &(EngineKind, Error)) -> Self {
        Self {
            kind: *kind,
            // The embedded engine is always installed, and users fix another one first.
            installed: !matches!(err, Error::NotInstalled { .. }) && *kind != EngineKind::Embedded,
            denied: matches!(err, Error::Unavailable { denied: true, .. }),
            why: err.to_string(),
        }
    }
}
