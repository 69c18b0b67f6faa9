//! Can containers be made here, and what to do if not (containers.md 3): looked at, and kept for a while.

mod checks;

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{Capability, ContainerRuntime, EngineInfo, EngineKind};
use serde::{Deserialize, Serialize};

use self::checks::{Check, Facts, Status};
use crate::config::{Engine, Preset};
use crate::context::Context;
use crate::engines::Choice;
use crate::failure::{Code, Failure};
use crate::host_system;

/// The answer of `preflight` (containers.md 3.2).
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    ready: bool,
    runtime: Option<EngineKind>,
    checks: Vec<Check>,
    summary: String,
    engine: Option<EngineInfo>,
    capabilities: Capabilities,
    policy: Preset,
    allow_roots: Vec<String>,
    checked_at: String,
}

/// What containers can have here (containers.md 3.6).
#[derive(Debug, Serialize)]
struct Capabilities {
    exec: bool,
    guest: bool,
    commit: bool,
    networks: bool,
    compose: bool,
    gpu: bool,
    limits_memory: bool,
    limits_cpu: bool,
    limits_pids: bool,
    bind: bool,
    publish: bool,
    keep_id: bool,
}

/// An engine that is ready to make containers.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) runtime: Arc<dyn ContainerRuntime>,
    pub(crate) ignored_limits: Vec<String>,
    pub(crate) gpu: bool,
}

/// A good verdict, kept for the next calls.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
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

/// The engine for a `create`, from a kept verdict or a new look.
///
/// # Errors
/// `not_ready`, with the whole answer of preflight in `details`.
pub(crate) async fn ensure_ready(cx: &Context) -> Result<Ready, Failure> {
    if let Some(ready) = kept(cx) {
        return Ok(ready);
    }
    let _alone = cx.look_alone().await;
    if let Some(ready) = kept(cx) {
        return Ok(ready);
    }
    let (verdict, ready) = look(cx, false).await;
    match ready {
        Some(ready) if verdict.ready => {
            keep(cx, &ready);
            Ok(ready)
        }
        _ => {
            forget(cx);
            Err(Failure::new(Code::NotReady, format!("not ready: {}", verdict.summary))
                .detail("preflight", &verdict)
                .hint("`details.preflight.checks` say what to do; `coracle setup` prepares an engine"))
        }
    }
}

/// Looks again, and keeps the verdict if it is good.
pub(crate) async fn renewed(cx: &Context) -> Verdict {
    let (verdict, ready) = look(cx, true).await;
    match ready {
        Some(ready) if verdict.ready => keep(cx, &ready),
        _ => forget(cx),
    }
    verdict
}

/// `containers`: also those that exist are looked at, which says nothing about making new ones.
async fn look(cx: &Context, containers: bool) -> (Verdict, Option<Ready>) {
    let detected = cx.detect().await;
    let unverified = if containers { unverified(cx, detected.as_ref().ok()).await } else { Vec::new() };
    let facts = Facts::gather(cx, &detected, unverified, host_system::system());
    let checks = checks::checks(&facts);
    let chosen = detected.ok().and_then(|it| it.chosen);
    let engine = chosen.as_ref().map(|it| it.1.clone());
    let ready = chosen.map(|(runtime, info)| Ready { runtime, gpu: info.gpu, ignored_limits: info.ignored_limits });
    (verdict(cx, checks, engine), ready)
}

/// Containers that carry our label without the proof. Not being able to say is no reason to fail.
async fn unverified(cx: &Context, choice: Option<&Choice>) -> Vec<String> {
    if choice.is_none_or(|it| it.chosen.is_none()) {
        return Vec::new();
    }
    let Ok(store) = cx.store() else { return Vec::new() };
    coracle_lifecycle::list(cx, &store).await.map(|it| it.unverified).unwrap_or_default()
}

fn verdict(cx: &Context, checks: Vec<Check>, engine: Option<EngineInfo>) -> Verdict {
    let failed: Vec<_> = checks.iter().filter(|it| it.status == Status::Fail).map(|it| it.name).collect();
    let summary = match (&engine, failed.as_slice()) {
        (Some(_), []) => "Container runtime ready".to_owned(),
        (None, ["runtime_installed"]) if cx.config.engine == Engine::Auto => "No container runtime found".to_owned(),
        (_, [name]) => format!("1 check failed: {name}"),
        (_, names) => format!("{} checks failed: {}", names.len(), names.join(", ")),
    };
    let allow_roots = cx.policy().map(|it| it.allow_roots).unwrap_or_default();
    Verdict {
        ready: failed.is_empty() && engine.is_some(),
        runtime: engine.as_ref().map(|it| it.kind),
        capabilities: capabilities(engine.as_ref()),
        checks,
        summary,
        engine,
        policy: cx.config.policy,
        allow_roots: allow_roots.iter().map(|it| it.display().to_string()).collect(),
        checked_at: jiff::Timestamp::now().to_string(),
    }
}

fn capabilities(engine: Option<&EngineInfo>) -> Capabilities {
    let there = engine.is_some();
    let can = |what: Capability| engine.is_some_and(|it| !Capability::lacked_by(it.kind).contains(&what));
    let kept = |limit: &str| engine.is_some_and(|it| !it.ignored_limits.iter().any(|ignored| ignored == limit));
    Capabilities {
        exec: there,
        guest: engine.is_some_and(|it| it.kind == EngineKind::Fake || crate::guest::embedded(&it.arch).is_some()),
        commit: can(Capability::Commit),
        networks: there,
        compose: can(Capability::Compose) && engine.is_some_and(|it| it.compose_version.is_some()),
        gpu: engine.is_some_and(|it| it.gpu),
        limits_memory: kept("memory"),
        limits_cpu: kept("cpus"),
        limits_pids: kept("pids"),
        bind: there,
        publish: can(Capability::Publish),
        keep_id: engine.is_some_and(|it| it.kind == EngineKind::Podman && it.rootless),
    }
}

/// The engine of a verdict that still holds, without asking it.
pub(crate) fn kept(cx: &Context) -> Option<Ready> {
    let bytes = std::fs::read(cx.state().ok()?.preflight()).ok()?;
    let kept: Kept = serde_json::from_slice(&bytes).ok()?;
    let age = jiff::Timestamp::now().duration_since(kept.at);
    let fresh = !age.is_negative() && age.unsigned_abs() < HOLDS;
    if !fresh || kept.config != config_digest(cx) {
        return None;
    }
    let runtime = cx.runtime_for(kept.engine, &kept.endpoint).ok()?;
    Some(Ready { runtime, ignored_limits: kept.ignored_limits, gpu: kept.gpu })
}

/// A verdict that cannot be kept is looked for again: no harm but time.
fn keep(cx: &Context, ready: &Ready) {
    let kept = Kept {
        engine: ready.runtime.kind(),
        endpoint: ready.runtime.endpoint().address,
        ignored_limits: ready.ignored_limits.clone(),
        gpu: ready.gpu,
        config: config_digest(cx),
        at: jiff::Timestamp::now(),
    };
    let Ok(state) = cx.state() else { return };
    let written = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(state.root())?;
        serde_json::to_writer(&mut file, &kept)?;
        file.persist(state.preflight()).map(|_| ()).map_err(|err| err.error)
    };
    if let Err(err) = written() {
        tracing::debug!(%err, "the verdict of preflight is not kept");
    }
}

fn forget(cx: &Context) {
    if let Ok(state) = cx.state() {
        let _ = std::fs::remove_file(state.preflight());
    }
}

fn config_digest(cx: &Context) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(format!("{:?}", cx.config)))
}

/// The engine of a verdict of preflight that still holds.
pub(crate) fn kept_engine(cx: &Context) -> Option<Arc<dyn ContainerRuntime>> {
    kept(cx).map(|it| it.runtime)
}
