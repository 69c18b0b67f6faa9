//! `start`, `stop` and `adopt`: containers that run, have stopped, or were made outside Coracle.

use coracle_context::arg_types::{Name, Seconds};
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::Failure;
use coracle_context::humanize::count;
use coracle_context::steps;
use coracle_context::warning::Warning;
use coracle_lifecycle::{ManagedContainer, find};
use coracle_runtime::ContainerRuntime;
use coracle_types::{Capability, ContainerId, ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands;
use crate::dispatch::{Effect, Operation};
use crate::target::{Access, check_policy, start_again};

/// Start a container of yours that has stopped.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartContainer {
    /// Its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
}

#[derive(Debug, Serialize)]
pub(super) struct StartContainerResponse {
    container: ContainerName,
    id: Option<ContainerId>,
    started: bool,
}

impl Operation for StartContainer {
    const NAME: &'static str = "start";
    const EFFECT: Effect = Effect::Mutating;
    type Response = StartContainerResponse;

    async fn run(self, cx: &Context) -> Result<StartContainerResponse, Failure> {
        let store = cx.store()?;
        let found = find(cx.engines(), &store, &self.container).await?;
        check_policy(cx, &found.record, Access::Use)?;
        let started = !found.present()?.running();
        let found = if started { start_again(cx, found).await? } else { found };
        store.touch(&found.record)?;
        let record = found.record;
        Ok(StartContainerResponse { container: record.name, id: record.id, started })
    }
}

impl Render for StartContainerResponse {
    fn render(&self, _: Timestamp) -> Document {
        let again = if self.started { "again" } else { "already" };
        Document::line(format!("{} runs {again}", self.container))
    }
}

/// Stop a container of yours; its files stay, and `start` starts it again.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StopContainer {
    /// Its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Seconds (or `90s`) for its processes to end by themselves [default: `exec.grace`].
    time: Option<Seconds>,
}

#[derive(Debug, Serialize)]
pub(super) struct StopContainerResponse {
    container: ContainerName,
    id: Option<ContainerId>,
    stopped: bool,
    jobs_ended: usize,
}

impl Operation for StopContainer {
    const NAME: &'static str = "stop";
    const EFFECT: Effect = Effect::Mutating;
    type Response = StopContainerResponse;

    /// Keeps the disk and the record: `start` needs both.
    async fn run(self, cx: &Context) -> Result<StopContainerResponse, Failure> {
        let found = find(cx.engines(), &cx.store()?, &self.container).await?;
        steps::settled(cx, &found.record.record_id).await;
        let container = found.present()?;
        let mut jobs_ended = 0;
        let stopped = container.running();
        if stopped {
            refuse_final(&*found.runtime)?;
            jobs_ended = commands::running(cx, &found.record).await;
            found.runtime.stop(&container.id, self.time.unwrap_or(cx.config.exec.grace).0).await?;
            cx.links().forget(&container.id);
            cx.warn(lost_by_stopping(&found));
        }
        let record = found.record;
        Ok(StopContainerResponse { container: record.name, id: record.id, stopped, jobs_ended })
    }
}

/// Where a stopped container never starts again, its files would be lost.
fn refuse_final(runtime: &dyn ContainerRuntime) -> Result<(), Failure> {
    let (engine, capability) = (runtime.kind(), Capability::Restart);
    match Capability::lacked_by(engine).contains(&capability) {
        true => Err(coracle_types::Error::Unsupported { engine, capability }.into()),
        false => Ok(()),
    }
}

/// What `start` does not bring back, and what continues to run.
fn lost_by_stopping(found: &ManagedContainer) -> Vec<Warning> {
    let record = &found.record;
    let in_memory = record.guest.as_ref().is_some_and(|it| it.own.is_some());
    let memory = "its home and `/tmp` are in memory, and empty when it is started; `/workspace` stays";
    let services = record.compose_project.is_some();
    let lost = in_memory.then(|| Warning::new("memory_lost", memory));
    let continues = services.then(|| Warning::new("services_run", "the services of its stack go on"));
    lost.into_iter().chain(continues).collect()
}

impl Render for StopContainerResponse {
    fn render(&self, _: Timestamp) -> Document {
        let name = &self.container;
        if !self.stopped {
            return Document::line(format!("{name} is stopped already"));
        }
        let jobs = match self.jobs_ended {
            0 => String::new(),
            jobs => format!("; {} ended", count(jobs as u64, "job", "jobs")),
        };
        Document::line(format!("{name} is stopped{jobs}; `coracle start {name}` starts it again, with its files"))
    }
}

/// Use a running container that Coracle did not make.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AdoptContainer {
    /// Its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
}

#[derive(Debug, Serialize)]
pub(super) struct AdoptContainerResponse {
    container: ContainerName,
    id: Option<ContainerId>,
    image: String,
    writes_to: Vec<String>,
}

impl Operation for AdoptContainer {
    const NAME: &'static str = "adopt";
    const EFFECT: Effect = Effect::Mutating;
    type Response = AdoptContainerResponse;

    async fn run(self, cx: &Context) -> Result<AdoptContainerResponse, Failure> {
        let session = cx.call.session.as_str();
        let found = coracle_lifecycle::adopt(cx.engines(), &cx.store()?, &self.container, session).await?;
        let mounts = found.present()?.mounts.iter().filter(|it| it.writable && !it.source.as_os_str().is_empty());
        let writes_to = mounts.map(|it| it.source.display().to_string()).collect();
        let record = found.record;
        Ok(AdoptContainerResponse { container: record.name, id: record.id, image: record.image, writes_to })
    }
}

impl Render for AdoptContainerResponse {
    fn render(&self, _: Timestamp) -> Document {
        let name = &self.container;
        let mounts = match self.writes_to.as_slice() {
            [] => String::new(),
            mounts => format!("; it can write to {}", mounts.join(", ")),
        };
        Document::line(format!(
            "{name} can be used now, by everyone who may use your session{mounts}; `coracle destroy {name}` only \
             removes it from Coracle's list"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle_context::config::{Config, Preset};
    use coracle_context::{Context, Frontend, Host, Options};
    use coracle_prepare::Process;
    use coracle_runtime::fake::LOCAL_IMAGE;
    use coracle_runtime::{ContainerRuntime as _, FakeRuntime};
    use serde_json::{Value, json};

    use crate::{CallInput, admin, execute, operations};

    fn context(dir: &Path, fake: &FakeRuntime) -> Context {
        Context::open(Host::below(dir), &Options::default(), Frontend::Cli).unwrap().with_fake(fake.clone())
    }

    async fn call(cx: &Context, call: Value) -> Value {
        let table = if call["operation"] == "start" { admin::ALL } else { operations::ALL };
        let input = CallInput::Object(call.as_object().cloned().unwrap());
        execute(table, &Process::new(cx.clone()), input).await.json.into()
    }

    #[tokio::test]
    async fn a_started_container_runs_its_main_program_again() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let cx = context(dir.path(), &fake);
        let create = json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false,
            "main": ["serve"] });
        assert_eq!(call(&cx, create).await["success"], true);
        let record = || cx.store().unwrap().records().unwrap().remove(0);
        let first = record();
        fake.crash(first.id.as_ref().unwrap());
        let started = call(&cx, json!({ "operation": "start", "container": "web" })).await;
        assert_eq!(started["started"], true, "{started:#}");
        // Before any other call that would start it.
        let now = record();
        assert_eq!((now.jobs.len(), now.jobs[0].run == first.jobs[0].run), (1, false));
        let jobs = call(&cx, json!({ "operation": "jobs", "container": "web" })).await;
        assert_eq!((&jobs["jobs"][0]["job_id"], &jobs["count"]), (&"main".into(), &1.into()), "{jobs:#}");
        assert_ne!(jobs["jobs"][0]["state"], "lost", "{jobs:#}");
    }

    #[tokio::test]
    async fn a_container_of_standard_is_not_started_under_strict() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let mut cx = context(dir.path(), &fake);
        let create = json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false });
        assert_eq!(call(&cx, create).await["success"], true);
        let id = cx.store().unwrap().records().unwrap().remove(0).id.clone().unwrap();
        fake.crash(&id);
        cx.config = Config { policy: Preset::Strict, ..(*cx.config).clone() }.into();
        let refused = call(&cx, json!({ "operation": "start", "container": "web" })).await;
        assert_eq!((&refused["code"], &refused["details"]["rule"]), (&"policy_denied".into(), &"root.init".into()));
        assert!(!fake.inspect(&id.into()).await.unwrap().running());
    }
}
