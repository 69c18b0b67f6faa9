//! `create`: a container, made ready, with a report of what works.

use std::collections::BTreeMap;
use std::time::Instant;

use coracle_images::{Base, Source};
use coracle_lifecycle::{Found, Making, begin, guided_session, hint, reconcile, session};
use coracle_provision::{Prepared, Report, Setup, Status, Step, UserAsk, Workspace, accounts, prepare, setup};
use coracle_runtime::{
    Access, Container, ContainerName, ContainerPath, ContainerRuntime, Ids, ImageRef, Inside, Limits, Protocol,
    PublishedPort, admit, random_hex,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::words::connect_command;
use crate::args::{Name, Script, Size};
use crate::config::Pull;
use crate::context::Context;
use crate::failure::Failure;
use crate::guest;
use crate::op::Operation;
use crate::reach::Warning;
use crate::resolve::{self, Request};

/// Make a container: the image, the person's working directory, limits, ports, setup commands; answered with a report of
/// what was done and seen to work.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    /// Its name: letters, digits, `_`, `.`, `-`. Without one it gets a fresh name.
    #[schemars(with = "Option<Name>")]
    pub(crate) name: Option<ContainerName>,
    /// Image to start from. Without one it is the configured default; where no registry answers, a Debian made here.
    #[schemars(with = "Option<String>")]
    pub(crate) image: Option<ImageRef>,
    /// When to fetch the image: `missing`, `always` or `never`.
    #[schemars(with = "Option<String>")]
    pub(crate) pull: Option<Pull>,
    /// Where commands run, and where the working directory is mounted. Made if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    pub(crate) workdir: Option<ContainerPath>,
    /// Mount the person's working directory at `workdir`. The default is to, if the policy allows it.
    pub(crate) mount_cwd: Option<bool>,
    /// Further host directories or files to mount. Host paths lie beneath directories that the person allows.
    pub(crate) mounts: Option<Vec<MountArg>>,
    /// Ports to publish on the host's loopback address.
    pub(crate) ports: Option<Vec<PortArg>>,
    /// Variables for the command or commands: names and plain values, no secrets.
    pub(crate) env: Option<BTreeMap<String, Value>>,
    /// Commands that make the container ready, run in order as root in `workdir`. A failure is reported and does not
    /// stop the next.
    pub(crate) setup_commands: Option<Vec<Script>>,
    /// Who runs commands: a name, a uid, or `uid:gid`. The default is the person's uid when a host directory is mounted,
    /// else root.
    #[schemars(with = "Option<String>")]
    pub(crate) user: Option<UserAsk>,
    /// Memory, in bytes or as `512m`, `4g`. No swap is added.
    #[schemars(with = "Option<Size>")]
    pub(crate) memory_limit: Option<coracle_runtime::ByteSize>,
    /// Cores, also parts of one.
    pub(crate) cpu_limit: Option<f64>,
    /// Processes and threads.
    pub(crate) pids_limit: Option<u32>,
    /// Give all GPUs of the host.
    pub(crate) gpu: Option<bool>,
    /// `bridge` (a way out, no other container in reach), `none`, or the name of a network of ours.
    #[schemars(extend("default" = "bridge"))]
    pub(crate) network: Option<String>,
    /// Lines for the hosts file: `name:ip` or `name:host-gateway`.
    pub(crate) add_hosts: Option<Vec<String>>,
    /// It outlives the session, and is started again when it stopped.
    #[schemars(extend("default" = false))]
    pub(crate) persistent: Option<bool>,
    /// Labels of the caller's own.
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

/// A host path to mount.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountArg {
    /// Path on the host: absolute, `~/…`, or relative to the working directory.
    pub(crate) host: String,
    /// Path inside.
    #[schemars(with = "String")]
    pub(crate) container: ContainerPath,
    /// `rw` (default) or `ro`.
    #[schemars(with = "Option<String>")]
    pub(crate) mode: Option<Access>,
}

/// A port to publish.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortArg {
    /// Port inside.
    pub(crate) container: u16,
    /// Port on the host; 0 or absent for a free one.
    pub(crate) host: Option<u16>,
    /// `tcp` (default) or `udp`.
    #[schemars(with = "Option<String>")]
    pub(crate) protocol: Option<Protocol>,
}

/// The answer of `create` (containers.md 4.5).
#[derive(Debug, Serialize)]
pub(crate) struct Created {
    container: ContainerName,
    container_id: String,
    id: String,
    image: String,
    image_id: String,
    image_source: Source,
    purpose: Option<String>,
    requested_purpose: Option<String>,
    connect_command: String,
    coracle_command: String,
    workdir: ContainerPath,
    home: ContainerPath,
    user: Ids,
    env_vars_injected: usize,
    persistent: bool,
    cache_used: bool,
    reused: bool,
    provisioning_report: Report,
    provisioning_ok: bool,
    network: String,
    ports: Vec<PublishedPort>,
    compose_project: Option<String>,
    main_job_id: Option<String>,
    repo_path: Option<String>,
    limits: LimitsAnswer,
    expires_at: Option<String>,
    warnings: Vec<Warning>,
    duration_ms: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct LimitsAnswer {
    memory: Option<u64>,
    cpus: Option<f64>,
    pids: Option<u32>,
    enforced: Vec<&'static str>,
}

impl LimitsAnswer {
    /// A limit is enforced if the engine tells it back.
    pub(crate) fn of(limits: &Limits) -> Self {
        let given =
            [("memory", limits.memory.is_some()), ("cpus", limits.cpus.is_some()), ("pids", limits.pids.is_some())];
        let enforced = given.iter().filter(|it| it.1).map(|it| it.0).collect();
        Self { memory: limits.memory.map(|it| it.0), cpus: limits.cpus, pids: limits.pids, enforced }
    }
}

impl Operation for Create {
    const NAME: &'static str = "create";
    type Answer = Created;

    async fn run(self, cx: &Context) -> Result<Created, Failure> {
        let begun = Instant::now();
        let request = resolve::create(self, cx)?;
        let policy = cx.policy()?;
        // The user may still be a name; what root needs is asked again once it is known.
        let checked = coracle_runtime::CreateSpec { exec_user: known_ids(&request.user), ..request.spec.clone() };
        admit(checked, &policy)?;
        if !request.setup.is_empty() && !policy.allow_root {
            return Err(super::root_refused("root.setup", "setup commands as root are not granted"));
        }
        let ready = super::preflight::ensure_ready(cx).await?;
        if request.spec.gpu && !ready.gpu {
            let capability = coracle_runtime::Capability::Gpu;
            return Err(coracle_runtime::Error::Unsupported { engine: ready.runtime.kind(), capability }.into());
        }
        let store = cx.store()?;
        reconcile(cx, &store, cx.config.lifecycle.gone_for.0).await?;
        let mut making = begin(&*ready.runtime, &store, request.draft.clone()).await?;
        let built = cx.unless_cancelled(build(cx, &ready, &mut making, &request)).await;
        match built {
            Ok(created) => Ok(Created { duration_ms: super::millis(begun.elapsed()), ..created }),
            Err(failure) => {
                cx.progress.message("undoing what was made").await;
                Err(not_undone(failure, &making.undo().await))
            }
        }
    }
}

/// Who that is without looking into the image: enough to say whether root is asked for.
fn known_ids(ask: &UserAsk) -> Ids {
    match ask {
        UserAsk::Ids(ids) => *ids,
        UserAsk::Uid(uid) => Ids { uid: *uid, gid: *uid },
        UserAsk::Name(_) => Ids { uid: 65534, gid: 65534 },
    }
}

fn not_undone(failure: Failure, left: &[coracle_lifecycle::Error]) -> Failure {
    if left.is_empty() {
        return failure;
    }
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    failure.detail("left", left)
}

/// From the image to a ready record. Whatever fails here is undone by the caller.
async fn build(
    cx: &Context,
    ready: &super::preflight::Ready,
    making: &mut Making<'_>,
    request: &Request,
) -> Result<Created, Failure> {
    let runtime = &*ready.runtime;
    let begun = Instant::now();
    let base = super::image::ensure(cx, runtime, request).await?;
    let imaged = image_step(&base, begun);
    cx.progress.step(&imaged).await;
    let exec_user = exec_user(cx, runtime, making, request, &base).await?;
    cx.progress.message(format!("making {}", request.draft.name)).await;
    let spec = coracle_runtime::CreateSpec { exec_user, ..request.spec.clone() };
    let admitted = admit(spec, &cx.policy()?)?;
    let guest = guest::program(cx, runtime, &base.image)?;
    let container = making.make(admitted, (&base.image, base.reference.as_str()), guest.as_ref()).await?;
    let inside = match &guest {
        Some(_) => Inside::Guest(making.meet(cx.links(), &container).await?),
        None => Inside::Plain(ready.runtime.clone(), container.id.clone()),
    };
    let workspace = Workspace {
        path: request.draft.workdir.clone(),
        bound: request.spec.mounts.iter().any(|it| it.at == request.draft.workdir),
    };
    let prepared = prepare(&inside, exec_user, &workspace).await?;
    making.is_user(prepared.name.clone(), prepared.home.clone(), prepared.shell.clone());
    cx.progress.step(&prepared.user).await;
    cx.progress.step(&prepared.workspace).await;
    let found = Found { runtime: ready.runtime.clone(), record: making.record().clone(), container: Some(container) };
    let commands = run_setup(cx, &found, &inside, request).await?;
    let report = report(imaged, prepared, commands, request);
    let record = making.ready(serde_json::to_value(&report).map_err(Failure::internal)?)?;
    answer(Found { record, ..found }, &base, report, ready)
}

fn image_step(base: &Base, begun: Instant) -> Step {
    let how = match base.source {
        Source::Local => "was here",
        Source::Pulled => "was pulled",
        Source::Bootstrap => "was made on this machine, since no registry answers",
    };
    let detail = base.note.clone().map_or_else(String::new, |note| format!(": {note}"));
    let detail = format!("{} {how}{detail}", base.reference);
    Step::success("image", detail, "the engine has the image under the id that the container is made from")
        .took(begun.elapsed())
}

/// Numbers are taken as they are; a name or a bare uid is looked up in the image's own passwd file.
async fn exec_user(
    cx: &Context,
    runtime: &dyn ContainerRuntime,
    making: &mut Making<'_>,
    request: &Request,
    base: &Base,
) -> Result<Ids, Failure> {
    if let UserAsk::Ids(ids) = request.user {
        return Ok(ids);
    }
    let name = format!("{}-peek-{}", cx.config.label_namespace, random_hex::<3>());
    let name = ContainerName::parse(name).map_err(Failure::internal)?;
    let bare = admit(resolve::bare(name, request.spec.image.clone()), &cx.policy()?)?;
    let peek = making.peek(bare, &base.image).await?;
    let known = accounts(runtime, &peek).await;
    runtime.remove(&peek).await?;
    Ok(known?.resolve(&request.user)?)
}

async fn run_setup(cx: &Context, found: &Found, inside: &Inside, request: &Request) -> Result<Step, Failure> {
    let root = match inside {
        Inside::Guest(_) => guided_session(&found.record, true)?,
        Inside::Plain(..) => session(found, true)?,
    };
    if !request.setup.is_empty() {
        cx.progress
            .message(match request.setup.len() {
                1 => "running the setup command".to_owned(),
                n => format!("running {n} setup commands"),
            })
            .await;
    }
    let how = Setup {
        commands: &request.setup,
        user: Ids::ROOT,
        workdir: &root.workdir,
        env: &root.env,
        timeout: cx.config.setup.timeout.0,
        total: cx.config.setup.total.0,
        grace: cx.config.exec.grace.0,
        cancel: cx.cancel.clone(),
    };
    let step = setup(inside, &how).await;
    if step.status != Status::Skipped {
        cx.progress.step(&step).await;
    }
    Ok(step)
}

/// Every entry of the contract, in the order of execution; what this container cannot have says so.
fn report(image: Step, prepared: Prepared, setup_commands: Step, request: &Request) -> Report {
    let mut workspace = prepared.workspace;
    if let Some(why) = &request.unmounted {
        workspace = Step::skipped("workspace", format!("the working directory is not mounted: {why}"));
    }
    let env = match request.draft.env.len() {
        0 => "no variables were given".to_owned(),
        1 => "1 plain value goes with each command; nothing is passed through from the host".to_owned(),
        n => format!("{n} plain values go with each command; nothing is passed through from the host"),
    };
    let later = "not in this release";
    Report(vec![
        image,
        Step::skipped("compose", later),
        prepared.user,
        workspace,
        Step::skipped("ca_certificates", later),
        Step::skipped("packages", "none were given"),
        Step::skipped("env_passthrough", env),
        Step::skipped("forward_git", later),
        Step::skipped("forward_gh", later),
        Step::skipped("forward_ssh", later),
        Step::skipped("dotfiles", later),
        Step::skipped("repos", "none were given"),
        Step::skipped("config_files", "none were given"),
        setup_commands,
    ])
}

fn answer(found: Found, base: &Base, report: Report, ready: &super::preflight::Ready) -> Result<Created, Failure> {
    let Container { id, ports, limits, networks, .. } = found.present()?.clone();
    let connect_command = connect_command(found.runtime.kind(), &hint(&found, false)?);
    let env = session(&found, false)?.env;
    let record = found.record;
    let mut warnings = Vec::new();
    if record.guest.is_none() {
        warnings.push(Warning::new("no_guest", "commands run through the engine's own exec: no jobs, no secrets"));
    }
    if base.source == Source::Bootstrap {
        let message = format!("no registry answers: {} stands in for the default image", base.reference);
        warnings.push(Warning::new("bootstrap_image", message));
    }
    let ignored = ready
        .ignored_limits
        .iter()
        .map(|it| Warning::new("limit_not_enforced", format!("this engine ignores the limit of {it}")));
    warnings.extend(ignored);
    let mut limits = LimitsAnswer::of(&limits);
    limits.enforced.retain(|it| !ready.ignored_limits.iter().any(|ignored| ignored == it));
    Ok(Created {
        container_id: id.short().to_owned(),
        id: id.to_string(),
        image: record.image.clone(),
        image_id: base.image.id.to_string(),
        image_source: base.source,
        purpose: None,
        requested_purpose: None,
        connect_command,
        coracle_command: format!("coracle shell {}", record.name),
        workdir: record.workdir,
        home: record.home.unwrap_or_else(ContainerPath::root),
        user: record.exec_user.unwrap_or(Ids::ROOT),
        env_vars_injected: env.len(),
        persistent: record.persistent,
        cache_used: false,
        reused: false,
        provisioning_ok: report.ok(),
        provisioning_report: report,
        network: networks.first().cloned().unwrap_or_else(|| "none".into()),
        ports,
        compose_project: None,
        main_job_id: None,
        repo_path: None,
        limits,
        expires_at: None,
        warnings,
        duration_ms: 0,
        container: record.name,
    })
}
