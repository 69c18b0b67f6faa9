//! Executes a call of the command line, from its arguments to its exit code.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, Command};
use coracle::{Audience, operations};
use coracle_context::{Failure, Host, Options};
use coracle_prepare::Process;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::operation_args::as_word;
use super::operation_call::{CONTAINER, FOR_SEVERAL, INTERACTIVE, OperationCall, STRICT, TERMINAL, allow};
use super::output::{NOT_RUN, Present};
use super::{cli_messages, consent, copy_stdout, exit, job, signals, startup, stdin};
use crate::render;

/// Exit code of a container with a failed step.
const INCOMPLETE: u8 = 3;

/// Interval of checks whether a forwarded port still has a target.
const FORWARD_LOOK: Duration = Duration::from_secs(2);

const STRICT_HELP: &str = "Exit with 3 when a step of the report failed";

/// Operations whose answer has a report of steps.
const REPORTING: &[&str] = &["create", "restore", "fork"];

/// Operations that copy a path of the host.
const COPYING: &[&str] = &["copy_in", "copy_out"];

/// Adds options that an operation has only on the command line.
pub(super) fn with_own_options(name: &str, command: Command) -> Command {
    let flag = |id: &'static str, help: &'static str| Arg::new(id).long(id).action(ArgAction::SetTrue).help(help);
    match name {
        "exec" => command.args([
            flag(INTERACTIVE, "Give standard input to the command whatever it is, a terminal too").short('i'),
            flag(TERMINAL, "Give the command your terminal, as `-it` does").short('t').conflicts_with("json"),
        ]),
        // Options of other tools. `list` always shows all containers, and each runs in the background.
        "list" => command.arg(flag("all", "Show stopped containers too, as always").short('a').hide(true)),
        "create" => {
            let detach = flag("detach", "Run in the background, as always").short('d');
            command.args([flag(STRICT, STRICT_HELP), detach.hide(true)])
        }
        _ if FOR_SEVERAL.contains(&name) => command.mut_arg(as_word(CONTAINER), |arg| arg.num_args(1..)),
        _ if COPYING.contains(&name) => command.arg(allow()),
        _ if REPORTING.contains(&name) => command.arg(flag(STRICT, STRICT_HELP)),
        _ => command,
    }
}

/// A command that the terminal could not start.
pub(super) fn not_run(failure: &Failure) -> ExitCode {
    cli_messages::complain(failure);
    ExitCode::from(NOT_RUN)
}

/// Makes several calls in order. The code is that of the first failure; an interrupt ends all.
pub(super) async fn run_each(calls: Vec<OperationCall>, host: Host, options: &Options) -> ExitCode {
    let mut worst = ExitCode::SUCCESS;
    for call in calls {
        let code = call.run(host.clone(), options).await;
        if code == ExitCode::from(signals::interrupted_code()) {
            return code;
        }
        if worst == ExitCode::SUCCESS {
            worst = code;
        }
    }
    worst
}

impl OperationCall {
    /// Executes the call and prints the result.
    pub(super) async fn run(mut self, host: Host, options: &Options) -> ExitCode {
        let mut present = Present::new(&host);
        let json = self.has("json");
        if !json {
            job::as_bytes(&self.entry, &mut self.object);
        }
        let opened = self.opened(host, options).await;
        let process = match opened {
            Ok(process) => process,
            Err(failure) if json => return exit::finish(&failure.answer(Some(self.entry.name))),
            Err(failure) => {
                let failure = cli_messages::to_person(failure);
                return present.fail(&self.entry, &failure.answer(Some(self.entry.name)));
            }
        };
        if self.entry.name == "copy_out" && copy_stdout::is_stdout(&self.object) {
            return copy_stdout::to_stdout(&self, &process, present).await;
        }
        let mut reply = self.answer(&process, (!json).then_some(&mut present)).await;
        let document = reply.response.as_ref().map(|it| it.render(Timestamp::now())).unwrap_or_default();
        let stays = self.entry.name == "forward" && reply.is_success();
        let incomplete = document.is_incomplete;
        let strict = self.has(STRICT);
        let code = match json {
            true if self.entry.audience == Audience::Person && document.exit_code > 0 => {
                exit::finish(&reply.json);
                ExitCode::from(document.exit_code)
            }
            true => exit::finish(&reply.json),
            false => {
                self.for_the_person(&mut reply.json);
                present.end(&self.entry, reply)
            }
        };
        if stays {
            return until_the_port_closes(&process, code).await;
        }
        if incomplete && !strict && !json {
            render::note("some steps failed; with `--strict` the exit code would be 3");
        }
        if incomplete && strict { ExitCode::from(INCOMPLETE) } else { code }
    }

    async fn opened(&mut self, host: Host, options: &Options) -> Result<Process, Failure> {
        let process = startup::open(host, options)?;
        let cx = process.context.clone();
        if COPYING.contains(&self.entry.name) {
            let cx = consent::given(cx, self.entry.name, &self.object, &self.flags).await?;
            return Ok(process.with_context(cx));
        }
        let interactive = self.has(INTERACTIVE);
        Ok(process.with_context(stdin::attach(&self.entry, &mut self.object, (cx, interactive)).await?))
    }

    /// Replaces a hint for agents by one for users.
    fn for_the_person(&self, answer: &mut Map<String, Value>) {
        let rule = answer.get("details").and_then(|it| it.get("rule"));
        if COPYING.contains(&self.entry.name) && rule.is_some_and(|it| it == consent::RULE) {
            answer.insert("hint".into(), consent::HINT.into());
        }
    }
}

/// A forwarded port ends with this process, or with its target.
async fn until_the_port_closes(process: &Process, code: ExitCode) -> ExitCode {
    let cancel = &process.context.call.cancel;
    while operations::close_unused_forwards(process) {
        if tokio::time::timeout(FORWARD_LOOK, cancel.cancelled()).await.is_ok() {
            return code;
        }
    }
    render::note("the port is closed: what it led to was removed");
    ExitCode::FAILURE
}
