//! `coracle start`, `stop` and `adopt`: what only the person does with containers.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use coracle::commands;
use coracle::target::{Act, shaped, start_again};
use coracle::warning::Warning;
use coracle::{Context, Failure, Host, Options, Seconds, audit};
use coracle_lifecycle::{ManagedContainer, find};
use coracle_runtime::Handle;
use serde_json::{Map, Value, json};

use super::{exit, startup};
use crate::render;

pub(super) async fn run(verb: &str, matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    match done(verb, matches, host, options).await {
        Ok(answer) if json => exit::finish(&answer),
        Ok(answer) => {
            render::warnings(&answer);
            render::print(&render::yours(verb, &Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => exit::finish(&failure.answer(Some(verb))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn done(verb: &str, matches: &ArgMatches, host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    let cx = startup::open_configured(host, options)?.context;
    let handle = Handle::parse(&name).map_err(|err| Failure::name("container", err))?;
    let intent = audit::intent(&cx, verb, &Map::from_iter([("container".to_owned(), name.into())])).await?;
    let result = match verb {
        "start" => start(&cx, &handle).await,
        "stop" => {
            let grace = matches.get_one::<Seconds>("time").copied().unwrap_or(cx.config.exec.grace);
            stop(&cx, &handle, grace.0).await
        }
        _ => adopt(&cx, &handle).await,
    };
    intent.result(&result).await;
    result
}

async fn start(cx: &Context, handle: &Handle) -> Result<Map<String, Value>, Failure> {
    let store = cx.store()?;
    let found = find(cx.engines(), &store, handle).await?;
    shaped(cx, &found.record, Act::Use)?;
    let started = !found.present()?.running();
    let (found, warnings) = if started { start_again(cx, found).await? } else { (found, Vec::new()) };
    store.touch(&found.record)?;
    let warnings = if warnings.is_empty() { Value::Null } else { json!({ "warnings": warnings }) };
    let mut answer = fields(&found, json!({ "started": started }));
    answer.extend(warnings.as_object().cloned().unwrap_or_default());
    Ok(answer)
}

/// Ends its processes and keeps all that is on its disk, as well as the record: `start` goes on with both.
async fn stop(cx: &Context, handle: &Handle, grace: Duration) -> Result<Map<String, Value>, Failure> {
    let store = cx.store()?;
    let found = find(cx.engines(), &store, handle).await?;
    let container = found.present()?;
    let running = container.running();
    let jobs = if running { commands::running(cx, &found.record).await } else { 0 };
    if running {
        found.runtime.stop(&container.id, grace).await?;
        cx.links().forget(&container.id);
    }
    let mut answer = fields(&found, json!({ "stopped": running, "jobs_ended": jobs }));
    let warnings = if running { lost_by_stopping(&found) } else { Vec::new() };
    if !warnings.is_empty() {
        answer.insert("warnings".into(), json!(warnings));
    }
    Ok(answer)
}

/// What `start` does not bring back, and what goes on.
fn lost_by_stopping(found: &ManagedContainer) -> Vec<Warning> {
    let record = &found.record;
    let in_memory = record.guest.as_ref().is_some_and(|it| it.own.is_some());
    let memory = "its home and `/tmp` are in memory, and empty when it is started; `/workspace` stays";
    let services = record.compose_project.is_some();
    [
        in_memory.then(|| Warning::new("memory_lost", memory)),
        services.then(|| Warning::new("services_run", "the services of its stack go on")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

async fn adopt(cx: &Context, handle: &Handle) -> Result<Map<String, Value>, Failure> {
    let found = coracle_lifecycle::adopt(cx.engines(), &cx.store()?, handle, cx.call.session.as_str()).await?;
    let mounts = found.present()?.mounts.iter().filter(|it| it.writable && !it.source.as_os_str().is_empty());
    let mounts: Vec<_> = mounts.map(|it| it.source.display().to_string()).collect();
    Ok(fields(&found, json!({ "image": found.record.image, "writes_to": mounts })))
}

fn fields(found: &ManagedContainer, more: Value) -> Map<String, Value> {
    let container = json!({ "success": true, "container": found.record.name, "id": found.record.id });
    [container, more]
        .into_iter()
        .filter_map(|it| if let Value::Object(it) = it { Some(it) } else { None })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle::config::{Config, Preset};
    use coracle::{Code, Input, Mouth, Process, answer};
    use coracle_runtime::fake::LOCAL_IMAGE;
    use coracle_runtime::{ContainerRuntime as _, FakeRuntime};

    use super::*;

    fn context(dir: &Path, fake: &FakeRuntime) -> Context {
        let context = Context::open(Host::below(dir), &Options::default(), Mouth::Call).unwrap();
        context.with_fake(fake.clone())
    }

    #[tokio::test]
    async fn what_is_started_runs_its_main_program_again() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let cx = context(dir.path(), &fake);
        let call = async |call: Value| {
            let Value::Object(call) = call else { panic!("a call is an object") };
            Value::Object(answer(coracle::operations::ALL, &Process::of(cx.clone()), Input::Object(call)).await)
        };
        let made = call(json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false,
            "main": ["serve"] }));
        assert_eq!(made.await["success"], true);
        let record = || cx.store().unwrap().records().unwrap().remove(0);
        let first = record();
        fake.crash(first.id.as_ref().unwrap());
        let started = start(&cx, &Handle::parse("web").unwrap()).await.unwrap();
        assert_eq!(started["started"], true);
        // Before any other call that would see to it.
        let now = record();
        assert_eq!((now.jobs.len(), now.jobs[0].run == first.jobs[0].run), (1, false));
        let jobs = call(json!({ "operation": "jobs", "container": "web" })).await;
        assert_eq!((&jobs["jobs"][0]["job_id"], &jobs["count"]), (&"main".into(), &1.into()), "{jobs:#}");
        assert_ne!(jobs["jobs"][0]["state"], "lost", "{jobs:#}");
    }

    #[tokio::test]
    async fn what_standard_made_is_not_started_under_strict() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let mut cx = context(dir.path(), &fake);
        let call = json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false });
        let Value::Object(call) = call else { panic!("a call is an object") };
        assert_eq!(
            answer(coracle::operations::ALL, &Process::of(cx.clone()), Input::Object(call)).await["success"],
            true
        );
        let id = cx.store().unwrap().records().unwrap().remove(0).id.clone().unwrap();
        fake.crash(&id);
        cx.config = Config { policy: Preset::Strict, ..(*cx.config).clone() }.into();
        let refused = start(&cx, &Handle::parse("web").unwrap()).await.unwrap_err();
        assert_eq!((refused.code, &refused.details["rule"]), (Code::PolicyDenied, &"root.init".into()));
        assert!(!fake.inspect(&id.into()).await.unwrap().running());
    }
}
