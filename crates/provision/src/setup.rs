//! Runs the caller's setup commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_runtime::ExecTarget;
use coracle_types::{Chunk, Command, ContainerPath, Exec, ExecLimits, ExecOutput, Ids};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::step_error::StepError;
use crate::{ReportItem, Status, StepContext, StepReport, exit};

/// A command that prepares the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupCommand {
    /// What to run.
    pub command: Command,
    /// Whether it runs as root instead of as the exec user.
    pub as_root: bool,
    /// Whether it was not requested, but suggested by the detected kind of project.
    pub hint: bool,
    /// The command to run instead if it fails.
    pub alternative: Option<Command>,
}

/// How setup commands run.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Run in this order; a failure does not stop the next one.
    pub commands: &'a [SetupCommand],
    /// The directory in which they run.
    pub workdir: &'a ContainerPath,
    /// The exec user.
    pub user: Ids,
    /// Variables of the exec user's commands.
    pub user_env: &'a BTreeMap<String, String>,
    /// Variables of root's commands.
    pub root_env: &'a BTreeMap<String, String>,
    /// Time limit of each command.
    pub timeout: Duration,
    /// When the time for all commands is over.
    pub deadline: Instant,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Ends the running command, and prevents the next ones.
    pub cancel: CancellationToken,
    /// Receives the output of the commands while they run.
    pub live: Option<mpsc::Sender<Chunk>>,
}

impl<'a> Setup<'a> {
    /// Creates settings for commands in the work directory.
    #[must_use]
    pub fn at(context: &'a StepContext, commands: &'a [SetupCommand]) -> Self {
        Self {
            commands,
            workdir: &context.workdir,
            user: context.user,
            user_env: &context.user_env,
            root_env: &context.root_env,
            timeout: context.timeout,
            deadline: context.deadline,
            grace: context.grace,
            cancel: context.cancel.clone(),
            live: None,
        }
    }

    fn exec(&self, command: &Command, as_root: bool) -> Result<Exec, StepError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if self.cancel.is_cancelled() {
            return Err(StepError::cancelled());
        }
        if left.is_zero() {
            return Err(StepError::no_time());
        }
        let (user, env) = if as_root { (Ids::ROOT, self.root_env) } else { (self.user, self.user_env) };
        let mut exec = Exec::new(command.clone(), user, self.workdir.clone());
        exec.env = env.clone();
        exec.limits = ExecLimits { total: Some(left.min(self.timeout)), silence: None, grace: self.grace };
        exec.keep_bytes = exit::KEEP_BYTES;
        exec.cancel = self.cancel.clone();
        exec.live = self.live.clone();
        Ok(exec)
    }
}

/// Runs the commands and reports each.
pub async fn setup(inside: &ExecTarget, setup: &Setup<'_>) -> StepReport {
    if setup.commands.is_empty() {
        return StepReport::skipped("setup_commands", "none were given");
    }
    let begun = Instant::now();
    let mut items = Vec::with_capacity(setup.commands.len());
    for command in setup.commands {
        items.push(tracked(inside, setup, command).await);
    }
    summary(items).with_duration(begun.elapsed())
}

fn summary(items: Vec<ReportItem>) -> StepReport {
    let (all, good) = (items.len(), items.iter().filter(|it| it.status == Status::Success).count());
    StepReport::of_items(
        "setup_commands",
        format!("{good}/{all} commands succeeded"),
        "each command ended with 0",
        items,
    )
}

/// Runs a command, and its alternative if it fails. The item has the fields of the one that ran last.
async fn tracked(inside: &ExecTarget, setup: &Setup<'_>, command: &SetupCommand) -> ReportItem {
    let first = Attempt::run(inside, setup, &command.command, command.as_root).await;
    let item = match &command.alternative {
        Some(other) if first.failed_by_itself() => {
            let instead_of = first.to_json();
            let second = Attempt::run(inside, setup, other, command.as_root).await;
            second.item(&exit::name(&command.command)).with("instead_of", instead_of)
        }
        _ => first.item(&exit::name(&command.command)),
    };
    item.with("hint", command.hint)
}

/// A command and its result, if it ran.
struct Attempt<'a> {
    command: &'a Command,
    output: Option<ExecOutput>,
    failure: Option<StepError>,
}

impl<'a> Attempt<'a> {
    async fn run(inside: &ExecTarget, setup: &Setup<'_>, command: &'a Command, as_root: bool) -> Self {
        let exec = match setup.exec(command, as_root) {
            Ok(exec) => exec,
            Err(failure) => return Self { command, output: None, failure: Some(failure) },
        };
        let limit = exec.limits.total;
        match inside.exec(exec).await {
            Ok(output) => Self { command, failure: exit::failure(&output, limit), output: Some(output) },
            Err(err) => Self { command, output: None, failure: Some(err.into()) },
        }
    }

    /// Whether the command itself failed, so that its alternative should run. Not if it was cancelled or did not start.
    fn failed_by_itself(&self) -> bool {
        self.output.is_some() && self.failure.as_ref().is_some_and(|it| *it != StepError::cancelled())
    }

    fn to_json(&self) -> Value {
        let error = self.failure.as_ref().map(|it| it.error.as_str());
        let exit_code = self.output.as_ref().and_then(exit::exit_code);
        json!({ "command": exit::words(self.command), "exit_code": exit_code, "error": error })
    }

    fn item(self, name: &str) -> ReportItem {
        let item = self.failure.map_or_else(|| ReportItem::success(name), |it| it.into_item(name));
        let item = item.with("command", exit::words(self.command));
        match self.output {
            Some(output) => item.with("exit_code", exit::exit_code(&output)).with("output", exit::tail(&output)),
            None => item,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::test_support::Trial;

    fn command(script: &str) -> SetupCommand {
        SetupCommand { command: Command::Shell(script.into()), as_root: true, hint: false, alternative: None }
    }

    fn hint(script: &str, other: &str) -> SetupCommand {
        let alternative = Some(Command::Shell(other.into()));
        SetupCommand { hint: true, as_root: false, alternative, ..command(script) }
    }

    async fn ran(trial: &Trial, commands: &[SetupCommand]) -> StepReport {
        setup(&ExecTarget::Guest(trial.context.link.clone()), &Setup::at(&trial.context, commands)).await
    }

    #[tokio::test]
    async fn a_failure_does_not_stop_the_next_command_and_is_reported_with_its_reason() {
        let trial = Trial::new().await;
        let failing = "echo out; echo 'cannot reach https://me:hunter2@host/x' >&2; exit 3";
        let step = ran(&trial, &[command(failing), command("pwd >here")]).await;
        assert_eq!((step.status, step.detail.as_str()), (Status::Partial, "1/2 commands succeeded"), "{step:#?}");
        assert_eq!(step.items[0].error.as_deref(), Some("exit 3: cannot reach https://host/x"));
        assert_eq!((&step.items[0].about["exit_code"], &step.items[1].about["exit_code"]), (&3.into(), &0.into()));
        assert!(trial.read("workspace/here").ends_with("/workspace\n"));
    }

    #[tokio::test]
    async fn a_failed_hint_is_replaced_by_its_alternative_and_the_item_names_the_one_that_ran() {
        let trial = Trial::new().await;
        let step = ran(&trial, &[hint("exit 4", "echo second"), hint("echo first", "touch other")]).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        insta::assert_snapshot!(serde_json::to_string(&step.items[0]).unwrap(), @r#"{"name":"exit 4","status":"success","error":null,"command":"echo second","exit_code":0,"hint":true,"instead_of":{"command":"exit 4","error":"exit 4","exit_code":4},"output":"second\n"}"#);
        assert!(!step.items[1].about.contains_key("instead_of") && !trial.root.join("workspace/other").exists());
        let step = ran(&trial, &[hint("exit 4", "exit 5")]).await;
        assert_eq!((step.status, step.items[0].error.as_deref()), (Status::Failed, Some("exit 5")));
    }

    #[tokio::test]
    async fn a_command_ends_after_its_timeout_and_does_not_start_without_time_left() {
        let mut trial = Trial::new().await;
        trial.context.timeout = Duration::from_millis(300);
        let step = ran(&trial, &[hint("sleep 100", "echo quick")]).await;
        assert_eq!((step.status, &step.items[0].about["output"]), (Status::Success, &"quick\n".into()), "{step:#?}");
        trial.context.deadline = Instant::now();
        let step = ran(&trial, &[hint("touch begun", "touch begun")]).await;
        assert_eq!((step.status, step.items[0].error.as_deref()), (Status::Failed, Some("no time was left for it")));
        assert!(!trial.root.join("workspace/begun").exists());
    }

    #[tokio::test]
    async fn a_cancelled_call_ends_the_running_command_and_starts_no_other() {
        let trial = Trial::new().await;
        let canceller = trial.context.cancel.clone();
        trial.write("workspace/cancel.sh", "echo begun; sleep 100");
        let (live, mut printed) = mpsc::channel(8);
        let commands = [hint("sh cancel.sh", "touch other"), command("touch next")];
        let setup_of = Setup { live: Some(live), ..Setup::at(&trial.context, &commands) };
        let inside = ExecTarget::Guest(trial.context.link.clone());
        let watch = async {
            assert_eq!(printed.recv().await.unwrap().bytes, b"begun\n");
            canceller.cancel();
        };
        let (step, ()) = tokio::join!(setup(&inside, &setup_of), watch);
        assert_eq!(step.status, Status::Failed);
        assert!(step.items.iter().all(|it| it.code.as_deref() == Some("cancelled")), "{step:#?}");
        assert!(!trial.root.join("workspace/other").exists() && !trial.root.join("workspace/next").exists());
    }

    #[tokio::test]
    async fn a_container_without_a_guest_is_set_up_by_the_engines_exec() {
        let trial = Trial::new().await;
        let inside = ExecTarget::Plain(Arc::new(trial.fake.clone()), trial.id.clone());
        let commands = [command("echo plain"), hint("exit 1", "echo other")];
        let step = setup(&inside, &Setup::at(&trial.context, &commands)).await;
        assert_eq!((step.status, &step.items[0].about["output"]), (Status::Success, &"plain\n".into()), "{step:#?}");
        assert_eq!(step.items[1].about["output"], "other\n");
    }
}
