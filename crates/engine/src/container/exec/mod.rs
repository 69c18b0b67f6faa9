//! Runs a command in a container without the guest, by a process that enters the container's namespaces.

mod entered;
mod plan;
mod process;
mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_host::drain::{Drain, DrainOutcome};
use coracle_types::{
    Capability, Capture, Command, ContainerId, EngineKind, Error, Exec, ExecOutput, Exit, Ids, Result, random_hex,
};

pub(super) use self::entered::entered;
use self::plan::{ExecPlan, Outcome};
use super::containers::{StoredContainer, find};
use super::describe::describe;
use super::start::state_to_enter;
use super::state::State;
use super::{by_runtime, end};
use crate::blocking::blocking;
use crate::engine::Engine;
use crate::sys::{NOT_EXECUTED, SpawnWatch};

/// Timeout for a start: a process of the container can stop the one that enters.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the processes of a command may take to end after KILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn exec(engine: &Arc<Engine>, id: &ContainerId, mut exec: Exec) -> Result<ExecOutput> {
    exec.check_without_guest(EngineKind::Embedded)?;
    if engine.privileges.has_single_user() && exec.user != Ids::ROOT {
        return Err(Error::Unsupported { engine: EngineKind::Embedded, capability: Capability::OtherUsers });
    }
    let container = find(engine, &id.into())?;
    let (begun, mark) = (Instant::now(), random_hex::<16>());
    let state = state_to_enter(engine, &container, "exec").await?;
    if let Some(runtime) = container.config.runtime.filter(|it| it.has_own_kernel()) {
        return match state.process() {
            Some(_) => by_runtime::exec(engine, &container, runtime, exec).await,
            None => Err(not_running(engine, &container, None)?),
        };
    }
    let Some(plan) = plan_of(&container, &state, &exec, &mark)? else {
        return Err(not_running(engine, &container, None)?);
    };
    // Kills the process when this call ends or is dropped: one that was stopped while it enters would block every start of
    // this engine.
    let watch = SpawnWatch::new();
    let (watched, input) = (watch.pidfd(), exec.stdin.take());
    let starting = blocking("exec", move || plan.start(&watched, input));
    let started = tokio::time::timeout(START_TIMEOUT, starting).await;
    let started = started.map_err(|_| Error::TimedOut { verb: "exec", after: START_TIMEOUT })??;
    let mut process = match started {
        Outcome::Started(process) => process,
        Outcome::NoDirectory => return Err(Error::NoSuchPath(exec.workdir)),
        Outcome::NoProgram(code) => return no_program(&exec, code, begun.elapsed()),
    };
    let mut drain = Drain::new(&mut process, exec.keep_bytes, exec.live.take());
    let end = drain.until_end(&mut process, &exec.limits, &exec.cancel).await;
    let tree_ended = match end {
        DrainOutcome::Exited(_) => None,
        _ => {
            let tree = tree::Tree { first: process.pid(), mark, grace: exec.limits.grace, patience: KILL_TIMEOUT };
            Some(drain.while_reading(end_tree(engine, &container, tree)).await)
        }
    };
    let (stdout, stderr) = drain.finish(&mut process).await;
    let output = ExecOutput::plain(end.into(), (stdout, stderr), tree_ended, begun.elapsed());
    if let Some(code) = code_of_no_program(&output) {
        return no_program(&exec, code, begun.elapsed());
    }
    let killed = matches!(output.exit, Exit::Code(code) if code > 128);
    if killed && has_ended(&container).await? {
        let output = (output.stdout.total_bytes() > 0).then(|| Box::new(output));
        return Err(not_running(engine, &container, output)?);
    }
    Ok(output)
}

/// Whether the container ended. Its commands are killed shortly before PID 1 has ended.
async fn has_ended(container: &StoredContainer) -> Result<bool> {
    match container.state()?.process() {
        Some(process) => Ok(end::ends(process).await),
        None => Ok(true),
    }
}

/// Plans a command. `None` if the container does not run.
fn plan_of(container: &StoredContainer, state: &State, exec: &Exec, mark: &str) -> Result<Option<ExecPlan>> {
    let State::Running { run, process } = state else { return Ok(None) };
    ExecPlan::new(container, &plan::ExecRequest { exec, mark, run, process })
}

fn not_running(engine: &Engine, container: &StoredContainer, output: Option<Box<ExecOutput>>) -> Result<Error> {
    let container = describe(engine, container)?;
    let (status, exit_code, oom_killed) = (container.status, container.exit_code, container.oom_killed);
    Ok(Error::NotRunning { status, exit_code, oom_killed, output })
}

/// The exit code of a program that could not be executed, if that became known too late for a report through the start: for
/// example, its interpreter is missing, or it is for another architecture.
fn code_of_no_program(output: &ExecOutput) -> Option<u8> {
    match output.exit {
        Exit::Code(code @ (126 | 127)) if output.stderr.bytes() == NOT_EXECUTED => Some(code),
        _ => None,
    }
}

fn no_program(exec: &Exec, code: u8, duration: Duration) -> Result<ExecOutput> {
    match exec.command {
        Command::Shell(_) => Err(Error::NoShell),
        Command::Argv(_) => Ok(without_program(exec, code, duration)),
    }
}

/// Builds the output of a program that could not be executed, as a shell would report it.
pub(super) fn without_program(exec: &Exec, code: u8, duration: Duration) -> ExecOutput {
    let Command::Argv(words) = &exec.command else {
        return ExecOutput::plain(Exit::Code(code), (Capture::new(0), Capture::new(0)), None, duration);
    };
    let why = if code == 127 { "not found" } else { "Permission denied" };
    let mut stderr = Capture::new(exec.keep_bytes);
    stderr.push(format!("{}: {why}\n", words.first().map_or("", String::as_str)).as_bytes());
    ExecOutput::plain(Exit::Code(code), (Capture::new(exec.keep_bytes), stderr), None, duration)
}

async fn end_tree(engine: &Arc<Engine>, container: &StoredContainer, tree: tree::Tree) -> bool {
    let (engine, container) = (engine.clone(), container.clone());
    let ended = blocking("end a command", move || tree.end(&engine, &container)).await;
    ended.unwrap_or_else(|err| {
        tracing::warn!(%err, "the command's processes could not be ended");
        false
    })
}
