//! Code that runs in an interpreter which keeps its variables, for `run_code` and `evaluate_python`.

use std::time::Duration;

use coracle_types::{ContainerPath, Exit};
use serde::Serialize;

use crate::kernel::{Interruption, Kernel, KernelReply, KernelRun, RunError, RunRequest};
use crate::output::Inline;
use crate::response::{Result, fail};
use crate::shell::{CommandResult, Termination};
use crate::workspace::failed;
use crate::{Code, Failure, RunFile, RunOutput, SessionHandle, SlotRole, Warning, Workspace};

/// The interpreter that code ran in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelState {
    /// Runs that it did; 1 has no variables of earlier calls.
    pub runs: u64,
    /// Why it ended, if it did: its variables are lost, and the next call has a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// Code for a kernel.
pub(crate) struct PersistentCode<'a> {
    pub(crate) role: SlotRole,
    pub(crate) code: &'a str,
    pub(crate) limit: Duration,
    /// Variables of earlier calls are given up first.
    pub(crate) restart: bool,
}

/// What came of it.
pub(crate) struct PersistentRun {
    pub(crate) ended: CommandResult,
    pub(crate) reply: KernelReply,
    pub(crate) state: KernelState,
    pub(crate) warnings: Vec<Warning>,
}

/// Runs it in the kernel of its container, which is started if there is none.
pub(crate) async fn run(
    workspace: &Workspace,
    session: &SessionHandle,
    code: PersistentCode<'_>,
) -> Result<PersistentRun> {
    let mut slot = workspace.kernels().lock(code.role).await;
    // Taken out: a run that is given up half-way leaves no kernel that is in the middle of something.
    let had = slot.kernel.take();
    let is_lost = had.as_ref().is_some_and(|it| !it.is_usable(session.generation)) && !code.restart;
    let usable = had.filter(|it| it.is_usable(session.generation) && !code.restart);
    let mut kernel = match usable {
        Some(kernel) => kernel,
        None => start(session, code.role).await?,
    };
    let request =
        RunRequest { code: code.code, limit: code.limit, cancel: &workspace.cancel, live: workspace.live.as_ref() };
    let ran = kernel.run(request).await.map_err(|err| failed(&err, true))?;
    let lost = ran.reply.is_none().then(|| why_lost(&ran));
    let state = KernelState { runs: kernel.runs(), lost };
    if ran.reply.is_some() {
        slot.kernel = Some(kernel);
    }
    let gone =
        || Warning::new("kernel_lost", "The interpreter of earlier calls had ended, and its variables are lost.");
    let warnings = is_lost.then(gone).into_iter().collect();
    let ended = ended(&ran, code.limit);
    Ok(PersistentRun { ended, reply: ran.reply.unwrap_or_default(), state, warnings })
}

async fn start(session: &SessionHandle, role: SlotRole) -> Result<Kernel> {
    // The directory of snippets is not theirs to write.
    let workdir = match role {
        SlotRole::Run if session.workdir.as_str() == "/code" => ContainerPath::parse("/packages"),
        _ => Ok(session.workdir.clone()),
    };
    let workdir = workdir.map_err(|err| Failure::new(Code::Internal, err.to_string()))?;
    let (kernel, started) = Kernel::start(session, workdir).await.map_err(|err| failed(&err, false))?;
    if started.reply.is_some() {
        return Ok(kernel);
    }
    let errors = Inline::from_capture(&started.stderr).text;
    match started.end.map(|it| it.exit) {
        Some(Exit::Code(127)) => fail(Code::LanguageUnavailable, "The image has no `python3`."),
        exit => {
            let why = exit.map_or_else(|| "it does not answer".to_owned(), |it| format!("it ended with {it:?}"));
            fail(Code::RunFailed, format!("The interpreter cannot be started: {why}. {errors}").trim_end())
        }
    }
}

fn why_lost(ran: &KernelRun) -> String {
    match (&ran.end, ran.interruption) {
        (Some(end), _) if end.oom => "it was ended for its memory".to_owned(),
        (Some(end), _) => match (end.signal, end.exit) {
            (Some(signal), _) => format!("signal {signal} ended it"),
            (None, Exit::Code(code)) => format!("it exited with {code}"),
            (None, _) => "it ended".to_owned(),
        },
        (None, Some(_)) => "it did not obey its interruption, and was ended".to_owned(),
        (None, None) => "its replies could not be read".to_owned(),
    }
}

/// The run as that of a command.
fn ended(ran: &KernelRun, limit: Duration) -> CommandResult {
    let raised = ran.reply.as_ref().and_then(|it| it.error.as_ref());
    let end = ran.end.as_ref();
    let termination = match ran.interruption {
        _ if end.is_some_and(|it| it.oom) => Termination::Oom,
        Some(Interruption::Time) => Termination::TimedOut,
        Some(Interruption::Caller) => Termination::Cancelled,
        None if end.is_some_and(|it| it.signal.is_some()) => Termination::Signaled,
        None => Termination::Exited,
    };
    let exit_code = match (termination, end.map(|it| it.exit)) {
        (Termination::TimedOut, _) => 124,
        (Termination::Cancelled, _) => 130,
        (_, Some(Exit::Code(code))) => code,
        (_, None) => u8::from(raised.is_some()),
        (_, Some(_)) => 1,
    };
    let mut stderr = Inline::from_capture(&ran.stderr);
    if termination == Termination::TimedOut {
        let variables = if ran.reply.is_some() { "; variables are preserved" } else { "; variables are lost" };
        stderr.add_line(&format!("coracle: time limit of {} s reached{variables}", limit.as_secs_f64()));
    }
    CommandResult {
        termination,
        exit_code,
        signal: end.and_then(|it| it.signal),
        stdout: Inline::from_capture(&ran.stdout),
        stderr,
        output_id: None,
        job: None,
        survivors: 0,
        duration: ran.duration,
    }
}

/// What a run showed and wrote, as a model reads it.
pub(crate) fn render(outputs: &[RunOutput], files: &[RunFile], state: Option<&KernelState>) -> Vec<String> {
    let mut parts: Vec<String> = outputs.iter().filter_map(RunOutput::render).collect();
    if !files.is_empty() {
        let named: Vec<String> = files.iter().map(|it| format!("{} ({} bytes)", it.path, it.bytes)).collect();
        parts.push(format!("wrote {}", named.join(", ")));
    }
    let lost = state.and_then(|it| it.lost.as_deref());
    parts.extend(lost.map(|why| format!("The interpreter is gone ({why}): its variables are lost.")));
    parts
}

/// The sentence for what a run raised.
pub(crate) fn raised(error: &RunError) -> String {
    if error.message.is_empty() { error.name.clone() } else { format!("{}: {}", error.name, error.message) }
}
