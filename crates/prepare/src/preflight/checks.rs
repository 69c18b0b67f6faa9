//! The checks of preflight, as a pure function of facts.

use std::path::Path;

use coracle_context::config::Engine;
use coracle_context::failure::Failure;
use coracle_context::guest;
use coracle_context::host_system::{MissingPrerequisite, guidance};
use coracle_runtime::EngineInfo;
use coracle_types::EngineKind;
use schemars::JsonSchema;
use serde::Serialize;

use super::facts::PreflightFacts;

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pass,
    Warn,
    Fail,
    Info,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct Check {
    pub name: &'static str,
    pub status: Status,
    pub passed: bool,
    pub detail: String,
    pub guidance: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Self { name, status, passed: status != Status::Fail, detail: detail.into(), guidance: None }
    }

    pub(super) fn with_guidance(mut self, text: impl Into<String>) -> Self {
        self.guidance = Some(text.into());
        self
    }
}

/// Runs all checks that apply. A check follows those that it depends on.
pub(crate) fn checks(facts: &PreflightFacts) -> Vec<Check> {
    let installed = facts.engine.is_some() || facts.skipped.iter().any(|it| it.installed) || facts.endpoint.is_some();
    if !installed {
        return [not_installed(facts)].into_iter().chain(facts.of_engine.clone()).collect();
    }
    let mut checks = vec![
        configuration(facts),
        runtime_installed(facts),
        endpoint(facts),
        daemon_running(facts),
        user_permissions(facts),
    ];
    checks.extend(facts.auto_reason.iter().map(|reason| Check::new("engine_choice", Status::Info, reason)));
    match &facts.engine {
        Some(engine) => checks.extend(of_engine(facts, engine)),
        None => {
            let skipped = |name| Check::new(name, Status::Fail, "skipped: daemon_running failed");
            checks.extend(["engine_version", "disk_space"].map(skipped));
        }
    }
    checks.extend(facts.of_engine.clone());
    checks.push(state_dir(facts));
    checks.extend(facts.state_space.as_ref().map(|(dir, free)| state_space(dir, *free)));
    let found = |it: bool| if it { "found on the host" } else { "not found on the host" };
    checks.push(Check::new("git", Status::Info, found(facts.git)));
    checks.push(Check::new("gh", Status::Info, found(facts.gh)));
    checks.push(unverified(facts));
    checks
}

fn fault_or(name: &'static str, fault: Option<&Failure>, good: &str) -> Check {
    match fault {
        None => Check::new(name, Status::Pass, good),
        Some(fault) => {
            let check = Check::new(name, Status::Fail, &fault.message);
            check.with_guidance(fault.hint.clone().unwrap_or_default())
        }
    }
}

fn configuration(facts: &PreflightFacts) -> Check {
    fault_or("configuration", facts.config.as_ref(), "it can be used")
}

fn runtime_installed(facts: &PreflightFacts) -> Check {
    let passed_over = facts
        .skipped
        .iter()
        .filter(|it| it.installed)
        .map(|it| format!("{} is installed and was not taken: {}", it.kind, it.why));
    let chosen = facts.engine.iter().map(|it| format!("{} {}", it.kind, it.version));
    Check::new("runtime_installed", Status::Pass, chosen.chain(passed_over).collect::<Vec<_>>().join("; "))
}

/// For a configured engine, reports what is missing. With `auto`, any engine would do.
fn not_installed(facts: &PreflightFacts) -> Check {
    let failed = |detail: String| Check::new("runtime_installed", Status::Fail, detail);
    let missing: Vec<_> = facts.skipped.iter().map(|it| it.why.as_str()).collect();
    if facts.wanted == Engine::Embedded {
        return failed(missing.join("; ")).with_guidance("the checks below that fail say what to change");
    }
    if facts.wanted == Engine::Auto || missing.is_empty() {
        let check = failed("neither podman nor docker is installed".to_owned());
        return check.with_guidance(guidance(&facts.system, MissingPrerequisite::Engine));
    }
    failed(missing.join("; ")).with_guidance(
        "the configuration names this engine: install it, or correct `engine` and `engine_path`; `engine = \"auto\"` takes \
         any engine that is installed",
    )
}

fn endpoint(facts: &PreflightFacts) -> Check {
    let here = facts.engine.as_ref().map_or_else(|| "local".to_owned(), |it| it.endpoint.clone());
    fault_or("endpoint", facts.endpoint.as_ref(), &here)
}

fn daemon_running(facts: &PreflightFacts) -> Check {
    match &facts.engine {
        Some(it) if it.kind == EngineKind::Embedded => {
            return Check::new("daemon_running", Status::Pass, "the embedded engine needs no daemon");
        }
        Some(it) if it.kind == EngineKind::Kubernetes => {
            return Check::new("daemon_running", Status::Pass, format!("the API server at {} answers", it.endpoint));
        }
        Some(_) => return Check::new("daemon_running", Status::Pass, "the engine answers"),
        None => {}
    }
    let down: Vec<_> = facts.skipped.iter().filter(|it| it.installed).collect();
    let why: Vec<_> = down.iter().map(|it| it.why.as_str()).collect();
    let check = Check::new("daemon_running", Status::Fail, why.join("; "));
    let missing = match down.first() {
        Some(it) if it.kind == EngineKind::Kubernetes => return check.with_guidance(CLUSTER),
        Some(it) if it.kind == EngineKind::Podman => MissingPrerequisite::PodmanAnswer,
        Some(it) if it.kind == EngineKind::Container => MissingPrerequisite::AppleAnswer,
        _ => MissingPrerequisite::DockerAnswer,
    };
    check.with_guidance(guidance(&facts.system, missing))
}

/// The guidance for a cluster that does not answer.
const CLUSTER: &str = "check `kubernetes.kubeconfig` and `kubernetes.context`, that this machine reaches the API server, and \
     that this program was built with the feature `kubernetes`";

fn user_permissions(facts: &PreflightFacts) -> Check {
    let denied = facts.engine.is_none() && facts.skipped.iter().any(|it| it.denied);
    if denied {
        let check = Check::new("user_permissions", Status::Fail, "this user may not talk to the engine");
        if facts.wanted == Engine::Kubernetes {
            return check.with_guidance("the login of the kubeconfig is refused: renew it");
        }
        return check.with_guidance(guidance(&facts.system, MissingPrerequisite::DockerPermission));
    }
    match &facts.engine {
        None => Check::new("user_permissions", Status::Fail, "skipped: daemon_running failed"),
        Some(it) if it.kind == EngineKind::Docker && !it.rootless && !facts.root => {
            Check::new("user_permissions", Status::Warn, "access by a group that equals root").with_guidance(
                "everyone with access to this Docker can become root; rootless Podman or Docker avoids that",
            )
        }
        Some(_) => Check::new("user_permissions", Status::Pass, "the engine answers this user"),
    }
}

fn of_engine(facts: &PreflightFacts, engine: &EngineInfo) -> Vec<Check> {
    let mapping = match (engine.kind, engine.rootless) {
        (EngineKind::Kubernetes, _) => "user ids are those of the cluster's nodes, of which this machine sees nothing",
        (EngineKind::Container, _) => "each container is a virtual machine with users of its own",
        (EngineKind::Embedded, false) => "each container has user ids of its own outside, where `isolation` says so",
        (EngineKind::Embedded, true) if engine.single_user => {
            "this user is root inside, and there is no other user: see `subordinate_ids`"
        }
        (EngineKind::Podman | EngineKind::Embedded, true) => "files made inside belong to this user (keep-id)",
        (_, true) => "this user is root inside",
        (_, false) => "user ids inside and outside are the same",
    };
    let compose = match &engine.compose_version {
        Some(_) if engine.kind == EngineKind::Embedded => "a part of this engine".to_owned(),
        Some(it) => format!("version {it}"),
        None if engine.kind == EngineKind::Embedded => "only as root, since services share a network".to_owned(),
        None => "missing".to_owned(),
    };
    let yes_no = |it: bool| if it { "yes" } else { "no" };
    let mut checks = vec![
        engine_version(engine),
        disk_space(facts),
        guest(engine),
        limits(engine),
        Check::new("user_mapping", Status::Info, mapping),
        Check::new("selinux", Status::Info, if engine.selinux { "enforcing" } else { "not enforcing" }),
        Check::new("compose", Status::Info, compose),
        Check::new("gpu_runtime", Status::Info, yes_no(engine.gpu)),
    ];
    checks.extend(slow_storage(engine));
    checks.extend(isolation(engine.kind));
    checks
}

/// Checks how containers are isolated from this host. The embedded engine has its own check.
fn isolation(engine: EngineKind) -> Option<Check> {
    let wall = match engine {
        EngineKind::Embedded => return None,
        EngineKind::Kubernetes => "containers run on the cluster's nodes, as `kubernetes.runtime_class` says",
        EngineKind::Container => "each container has a kernel of its own, in a virtual machine",
        EngineKind::Fake => "none: containers are played in this process",
        EngineKind::Docker | EngineKind::Podman if cfg!(target_os = "macos") => {
            "containers share the kernel of the engine's virtual machine"
        }
        EngineKind::Docker | EngineKind::Podman => "containers share this machine's kernel",
    };
    Some(Check::new("isolation", Status::Info, wall))
}

fn guest(engine: &EngineInfo) -> Check {
    match guest::embedded(&engine.arch) {
        _ if engine.kind == EngineKind::Fake => Check::new("guest", Status::Pass, "played in this process"),
        Some(guest) => Check::new("guest", Status::Pass, format!("one for {} is built in", guest.arch)),
        None => {
            let detail = format!("none for {} is built in: commands run through the engine's own exec", engine.arch);
            Check::new("guest", Status::Warn, detail)
        }
    }
}

fn engine_version(engine: &EngineInfo) -> Check {
    let detail = format!("{} {}", engine.kind, engine.version);
    let (least, safe) = match engine.kind {
        EngineKind::Docker => ((20, 10, 0), (25, 0, 5)),
        EngineKind::Podman => ((4, 3, 0), (4, 3, 0)),
        EngineKind::Container => ((1, 1, 0), (1, 1, 0)),
        EngineKind::Kubernetes => ((1, 20, 0), (1, 20, 0)),
        EngineKind::Embedded | EngineKind::Fake => return Check::new("engine_version", Status::Pass, detail),
    };
    let version = version(&engine.version);
    let (major, minor, _) = least;
    if version < least {
        let guidance = format!("coracle needs {} {major}.{minor} or later", engine.kind);
        return Check::new("engine_version", Status::Fail, detail).with_guidance(guidance);
    }
    if version < safe {
        let guidance =
            "before 25.0.5 a network without a way out still answers names; use `network: none` for isolation";
        return Check::new("engine_version", Status::Warn, detail).with_guidance(guidance);
    }
    Check::new("engine_version", Status::Pass, detail)
}

/// Reads the first three numbers of a version and ignores all other text.
fn version(text: &str) -> (u32, u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

fn disk_space(facts: &PreflightFacts) -> Check {
    let Some(bytes) = facts.free_bytes else {
        return Check::new("disk_space", Status::Info, "not readable here");
    };
    let detail = format!("{:.1} GiB free where the engine stores its data", bytes as f64 / f64::from(1 << 30));
    let status = match bytes >> 30 {
        0 => Status::Fail,
        1..5 => Status::Warn,
        _ => Status::Pass,
    };
    let check = Check::new("disk_space", status, detail);
    if status == Status::Pass {
        check
    } else {
        check.with_guidance("remove images and containers that you no longer need")
    }
}

/// Warns of a storage driver that copies whole images.
fn slow_storage(engine: &EngineInfo) -> Option<Check> {
    let driver = engine.storage_driver.as_deref().filter(|it| *it == "vfs")?;
    let detail = format!(
        "{} stores files with the driver `{driver}`, which copies the whole image for each container: `create` and `destroy` \
         take many seconds",
        engine.kind
    );
    let guidance = match engine.kind {
        EngineKind::Podman => {
            "use the embedded engine (`engine = \"embedded\"`), or install `fuse-overlayfs` and set `driver = \"overlay\"` in \
             `storage.conf`; Podman then no longer sees the containers and images that it has"
        }
        _ => {
            "use the embedded engine (`engine = \"embedded\"`), or give the engine another storage driver, such as `overlay2`"
        }
    };
    Some(Check::new("storage", Status::Warn, detail).with_guidance(guidance))
}

fn limits(engine: &EngineInfo) -> Check {
    if engine.ignored_limits.is_empty() {
        return Check::new("limits", Status::Pass, "memory, cores and processes are limited");
    }
    let detail = format!("this engine takes and ignores limits of {}", engine.ignored_limits.join(", "));
    Check::new("limits", Status::Warn, detail)
        .with_guidance("control groups version 2 with delegated controllers keeps them")
}

fn state_dir(facts: &PreflightFacts) -> Check {
    if facts.newer.is_empty() {
        return fault_or("state_dir", facts.state.as_ref(), "only its owner can open it, and file locks work");
    }
    let files: Vec<_> = facts.newer.iter().map(|file| file.display().to_string()).collect();
    let detail =
        format!("a newer version of Coracle wrote these files, and this one leaves them: {}", files.join(", "));
    Check::new("state_dir", Status::Warn, detail).with_guidance("update this program, or end what still runs it")
}

/// Checks the free space of the state directory, which may be on its own file system: records, saved work and the
/// audit trail.
fn state_space(dir: &Path, free: u64) -> Check {
    let (dir, name) = (dir.display(), "state_space");
    let (status, detail) = match free >> 20 {
        0 => (Status::Fail, format!("no space is left for the state directory `{dir}`")),
        mib @ 1..1024 => (Status::Warn, format!("{mib} MiB free for the state directory `{dir}`, with all saved work")),
        _ => return Check::new(name, Status::Pass, format!("more than 1 GiB free for `{dir}`")),
    };
    Check::new(name, status, detail)
        .with_guidance("free some space on its file system, or set `state_dir` to a directory on another one")
}

fn unverified(facts: &PreflightFacts) -> Check {
    match facts.unverified.as_slice() {
        [] => Check::new("unverified", Status::Pass, "no container carries our label without proof"),
        names => {
            let detail =
                format!("of another state directory, or without proof; nothing acts on them: {}", names.join(", "));
            Check::new("unverified", Status::Warn, detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::host_system::System;
    use coracle_types::Error;
    use insta::assert_snapshot;

    use super::super::facts::SkippedEngine;
    use super::*;

    fn info() -> EngineInfo {
        EngineInfo {
            kind: EngineKind::Docker,
            version: "20.10.24+dfsg1".into(),
            endpoint: "unix:///var/run/docker.sock".into(),
            rootless: false,
            single_user: false,
            arch: "amd64".into(),
            cgroup: 1,
            data_root: "/var/lib/docker".into(),
            storage_driver: None,
            compose_version: None,
            gpu: false,
            selinux: false,
            ignored_limits: Vec::new(),
        }
    }

    fn facts() -> PreflightFacts {
        PreflightFacts {
            system: System::Other,
            wanted: Engine::Auto,
            config: None,
            state: None,
            endpoint: None,
            engine: Some(info()),
            skipped: Vec::new(),
            auto_reason: None,
            free_bytes: Some(50 << 30),
            state_space: None,
            root: true,
            git: true,
            gh: false,
            unverified: Vec::new(),
            newer: Vec::new(),
            of_engine: Vec::new(),
        }
    }

    fn rendered(facts: &PreflightFacts) -> String {
        let line = |it: &Check| format!("{} {:?}: {}", it.name, it.status, it.detail);
        checks(facts).iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_healthy_machine_passes_every_check() {
        assert!(checks(&facts()).iter().all(|it| it.passed), "{}", rendered(&facts()));
    }

    #[test]
    fn without_an_engine_there_is_one_check_with_guidance() {
        let checks = checks(&PreflightFacts { engine: None, ..facts() });
        assert_eq!(checks.len(), 1);
        assert_eq!((checks[0].name, checks[0].passed), ("runtime_installed", false));
        assert!(checks[0].guidance.is_some());
    }

    #[test]
    fn a_configured_engine_that_is_missing_is_named() {
        let missing = |kind, program: &str| {
            SkippedEngine::from_error(&(kind, Error::NotInstalled { program: program.to_owned() }))
        };
        let check = |wanted, skipped| {
            let found = checks(&PreflightFacts { engine: None, wanted, skipped: vec![skipped], ..facts() });
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].guidance.as_ref().is_some_and(|it| it.contains("engine_path")), "{found:?}");
            found[0].detail.clone()
        };
        let apple = check(Engine::Container, missing(EngineKind::Container, "container"));
        assert_eq!(apple, "no `container` program was found");
        let docker = check(Engine::Docker, missing(EngineKind::Docker, "/nope/docker"));
        assert_eq!(docker, "no `/nope/docker` program was found");
    }

    #[test]
    fn an_engine_that_does_not_answer_is_reported_with_its_reason() {
        let down = SkippedEngine {
            kind: EngineKind::Docker,
            installed: true,
            denied: false,
            why: "docker does not answer: no socket".into(),
        };
        assert_snapshot!(rendered(&PreflightFacts { engine: None, skipped: vec![down], ..facts() }), @r"
        configuration Pass: it can be used
        runtime_installed Pass: docker is installed and was not taken: docker does not answer: no socket
        endpoint Pass: local
        daemon_running Fail: docker does not answer: no socket
        user_permissions Fail: skipped: daemon_running failed
        engine_version Fail: skipped: daemon_running failed
        disk_space Fail: skipped: daemon_running failed
        state_dir Pass: only its owner can open it, and file locks work
        git Info: found on the host
        gh Info: not found on the host
        unverified Pass: no container carries our label without proof
        ");
    }

    #[test]
    fn a_full_state_directory_fails_and_a_small_one_warns() {
        let judged = |free| state_space(Path::new("/state"), free).status;
        assert_eq!((judged(1023), judged(5 << 20), judged(2 << 30)), (Status::Fail, Status::Warn, Status::Pass));
    }

    #[test]
    fn versions_space_and_limits_are_checked() {
        let judged = |engine: EngineInfo, free: u64| {
            let facts = PreflightFacts { engine: Some(engine), free_bytes: Some(free), ..facts() };
            let of = |name: &str| checks(&facts).into_iter().find(|it| it.name == name).unwrap().status;
            (of("engine_version"), of("disk_space"), of("limits"))
        };
        let old = EngineInfo { version: "19.3.1".into(), ignored_limits: vec!["memory".into()], ..info() };
        assert_eq!(judged(old, 1), (Status::Fail, Status::Fail, Status::Warn));
        assert_eq!(judged(info(), 3 << 30), (Status::Warn, Status::Warn, Status::Pass));
        let new = EngineInfo { version: "28.5.0".into(), ..info() };
        assert_eq!(judged(new, 5 << 30), (Status::Pass, Status::Pass, Status::Pass));
    }
}
