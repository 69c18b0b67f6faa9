//! Checks whether containers can be created here and how to fix it if not. A good verdict is cached for a while.

mod checks;
mod cluster;
#[cfg(target_os = "linux")]
mod embedded;
mod facts;

use coracle_context::config::{Engine, Preset};
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, Symbol, word};
use coracle_context::engines::{Choice, Ready};
use coracle_context::failure::{Code, Failure};
use coracle_context::host_system;
use coracle_context::humanize::count;
use coracle_runtime::EngineInfo;
use coracle_types::{Capability, EngineKind};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use self::checks::{Check, Status};
use self::facts::PreflightFacts;

/// The answer of `preflight`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct PreflightResponse {
    ready: bool,
    #[schemars(with = "Option<String>")]
    runtime: Option<EngineKind>,
    checks: Vec<Check>,
    summary: String,
    #[schemars(with = "Option<EngineShape>")]
    engine: Option<EngineInfo>,
    capabilities: Capabilities,
    #[schemars(with = "String")]
    policy: Preset,
    allow_roots: Vec<String>,
    checked_at: String,
}

/// The schema of `EngineInfo`, whose crate knows none.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "the derived schema alone is used")]
struct EngineShape {
    kind: String,
    /// Of the engine, not of its client.
    version: String,
    /// Its address, or `local` for an engine without a daemon.
    endpoint: String,
    rootless: bool,
    /// Its containers have root alone, who is the user outside.
    single_user: bool,
    /// In the words of OCI: `amd64`, `arm64`.
    arch: String,
    /// Version of the control groups.
    cgroup: u8,
    data_root: String,
    storage_driver: Option<String>,
    compose_version: Option<String>,
    gpu: bool,
    selinux: bool,
    /// Limits that this engine accepts and does not enforce.
    ignored_limits: Vec<String>,
}

/// What containers can have here.
#[derive(Debug, JsonSchema, Serialize)]
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

/// Returns the engine for a `create`, from a cached verdict or a new inspection.
///
/// # Errors
/// `not_ready`, with the complete preflight report in `details`.
pub async fn ensure_ready(cx: &Context) -> Result<Ready, Failure> {
    if let Some(ready) = cx.engines().cached() {
        return Ok(ready);
    }
    let _inspection = cx.engines().lock_inspection().await;
    if let Some(ready) = cx.engines().cached() {
        return Ok(ready);
    }
    let (verdict, ready) = inspect(cx, false).await;
    match ready {
        Some(ready) if verdict.ready => {
            cx.engines().cache(&ready);
            Ok(ready)
        }
        _ => {
            cx.engines().clear_cached();
            Err(Failure::new(Code::NotReady, format!("not ready: {}", verdict.summary))
                .detail("preflight", &verdict)
                .hint("see `details.preflight.checks` for fixes; `coracle setup` prepares an engine"))
        }
    }
}

/// Inspects the host again and caches the verdict if it is good.
pub async fn renewed(cx: &Context) -> PreflightResponse {
    let (verdict, ready) = inspect(cx, true).await;
    match ready {
        Some(ready) if verdict.ready => cx.engines().cache(&ready),
        _ => cx.engines().clear_cached(),
    }
    verdict
}

/// With `containers`, also inspects existing containers, which is not needed to create new ones.
async fn inspect(cx: &Context, containers: bool) -> (PreflightResponse, Option<Ready>) {
    let mut detected = cx.engines().detect().await;
    if let Ok(Choice { chosen: Some((runtime, info)), .. }) = &mut detected {
        info.compose_version = runtime.compose_version().await;
    }
    let unverified = if containers { unverified(cx, detected.as_ref().ok()).await } else { Vec::new() };
    let mut facts = PreflightFacts::gather(cx, &detected, unverified, host_system::system());
    facts.of_engine.extend(cluster::checks(cx, facts.engine.as_ref()).await);
    let checks = checks::checks(&facts);
    let chosen = detected.ok().and_then(|it| it.chosen);
    let engine = chosen.as_ref().map(|it| it.1.clone());
    let ready = chosen.map(|(runtime, info)| Ready { runtime, gpu: info.gpu, ignored_limits: info.ignored_limits });
    (verdict(cx, checks, engine), ready)
}

/// Lists containers with Coracle's label and no valid proof. An error here does not fail preflight.
async fn unverified(cx: &Context, choice: Option<&Choice>) -> Vec<String> {
    if choice.is_none_or(|it| it.chosen.is_none()) {
        return Vec::new();
    }
    let Ok(store) = cx.store() else { return Vec::new() };
    coracle_lifecycle::list(cx.engines(), &store).await.map(|it| it.unverified).unwrap_or_default()
}

fn verdict(cx: &Context, checks: Vec<Check>, engine: Option<EngineInfo>) -> PreflightResponse {
    let failed: Vec<_> = checks.iter().filter(|it| it.status == Status::Fail).map(|it| it.name).collect();
    let summary = match (&engine, failed.as_slice()) {
        (Some(_), []) => "Container runtime ready".to_owned(),
        (None, ["runtime_installed"]) if cx.config.engine == Engine::Auto => "No container runtime found".to_owned(),
        (_, [name]) => format!("1 check failed: {name}"),
        (_, names) => format!("{} checks failed: {}", names.len(), names.join(", ")),
    };
    let allow_roots = cx.policy().map(|it| it.allow_roots).unwrap_or_default();
    PreflightResponse {
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
    let limits =
        |limit: &str| engine.is_some_and(|engine| !engine.ignored_limits.iter().any(|ignored| ignored == limit));
    Capabilities {
        exec: there,
        guest: engine
            .is_some_and(|it| it.kind == EngineKind::Fake || coracle_context::guest::embedded(&it.arch).is_some()),
        commit: can(Capability::Commit),
        // The embedded engine uses the kernel's networks, which only root may create.
        networks: engine.is_some_and(|it| it.kind != EngineKind::Embedded || !it.rootless),
        compose: can(Capability::Compose) && engine.is_some_and(|it| it.compose_version.is_some()),
        gpu: engine.is_some_and(|it| it.gpu),
        limits_memory: limits("memory"),
        limits_cpu: limits("cpus"),
        limits_pids: limits("pids"),
        bind: can(Capability::Bind),
        publish: can(Capability::Publish),
        keep_id: engine.is_some_and(|it| {
            matches!(it.kind, EngineKind::Podman | EngineKind::Embedded) && it.rootless && !it.single_user
        }),
    }
}

impl Render for PreflightResponse {
    fn render(&self, _: Timestamp) -> Document {
        let width = self.checks.iter().map(|it| it.name.len()).max().unwrap_or(0);
        let lines = self.checks.iter().flat_map(|check| {
            let mark = Symbol::of_status(&word(check.status));
            let name = check.name.replace('_', " ");
            let line = StyledText::new().symbol(mark).plain(format!(" {name:<width$}  {}", check.detail));
            let guidance = check.guidance.as_deref().unwrap_or_default().lines();
            [line].into_iter().chain(guidance.map(|it| format!("{:width$}    {it}", "").into())).collect::<Vec<_>>()
        });
        let warnings = self.checks.iter().filter(|it| it.status == Status::Warn).count() as u64;
        let warned =
            if warnings == 0 { String::new() } else { format!(", {}", count(warnings, "warning", "warnings")) };
        let summary =
            if self.ready { StyledText::new().good(&self.summary) } else { StyledText::new().bad(&self.summary) };
        // Scripts run `coracle preflight && …`, so the exit code reports the verdict, not whether the checks could run.
        let exit_code = u8::from(!self.ready);
        Document { exit_code, ..Document::default().and_lines(lines).then(summary.plain(warned)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_show_their_guidance_below() {
        let check = |name, status, detail: &str, guidance: Option<&str>| Check {
            name,
            status,
            passed: status != Status::Fail,
            detail: detail.into(),
            guidance: guidance.map(str::to_owned),
        };
        let checks = vec![
            check("runtime_installed", Status::Pass, "docker", None),
            check("guest", Status::Warn, "none", None),
            check("daemon_running", Status::Fail, "no answer", Some("sudo systemctl start docker\nor so")),
        ];
        let dir = tempfile::tempdir().unwrap();
        let response = verdict(&Context::for_tests(dir.path()), checks, None);
        insta::assert_snapshot!(coracle_context::document::rendered(&response, "2026-11-21T12:30:00Z"), @r"
        ✓ runtime installed  docker
        ! guest              none
        ✗ daemon running     no answer
                             sudo systemctl start docker
                             or so
        1 check failed: daemon_running, 1 warning
        ");
    }
}
