//! A call that the command line stands for, from its words to its exit code.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value};

use super::present::{NOT_RUN, Present};
use super::{collect, consent, copy, job, phrase, stdin};
use crate::context::Options;
use crate::failure::Failure;
use crate::host::Host;
use crate::op::{Entry, Input};
use crate::process::Process;
use crate::{frontend, render};

/// `exec -t`: the command gets the person's terminal.
pub(super) const TERMINAL: &str = "tty";

/// `exec -i`: standard input goes to the command whatever it is.
pub(super) const INTERACTIVE: &str = "interactive";

/// `copy-in --allow`: the person has thought about it.
pub(super) const ALLOW: &str = "allow";

/// `create --strict`: a step that failed makes an exit code.
const STRICT: &str = "strict";

/// Exit code of a container that is made, and not all that was asked for is in it.
const INCOMPLETE: u8 = 3;

/// Operations whose answer has a report of steps.
const REPORTING: &[&str] = &["create", "restore", "fork"];

/// Operations that copy a path of the host.
const COPYING: &[&str] = &["copy_in", "copy_out"];

/// Adds the options that an operation has on the command line alone.
pub(super) fn with_own_options(name: &str, command: Command) -> Command {
    let flag = |id: &'static str, help: &'static str| Arg::new(id).long(id).action(ArgAction::SetTrue).help(help);
    match name {
        "exec" => command.args([
            flag(INTERACTIVE, "Give standard input to the command whatever it is, a terminal too").short('i'),
            flag(TERMINAL, "Give the command your terminal, as `-it` does").short('t').conflicts_with("json"),
        ]),
        _ if COPYING.contains(&name) => command.arg(allow()),
        _ if REPORTING.contains(&name) => command.arg(flag(STRICT, "Exit with 3 when a step of the report failed")),
        _ => command,
    }
}

/// The option that stands for the answer of a prompt.
pub(super) fn allow() -> Arg {
    let help = "Copy a path outside the allowed directories without asking";
    Arg::new(ALLOW).long(ALLOW).action(ArgAction::SetTrue).help(help)
}

/// An operation with its fields, and what the command line alone knows of it.
pub(super) struct OperationCall {
    pub(super) table: &'static [Entry],
    pub(super) entry: Entry,
    pub(super) object: Map<String, Value>,
    /// The flags that are no fields, those that were given.
    pub(super) flags: Vec<&'static str>,
}

/// Runs the operation that the words name.
pub(super) async fn operation(
    (table, entry): (&'static [Entry], &Entry),
    matches: &ArgMatches,
    host: Host,
    options: &Options,
) -> ExitCode {
    let object = collect::object(entry, matches);
    let call = OperationCall { table, entry: *entry, object, flags: flags(matches) };
    Box::pin(call.run(host, options)).await
}

/// What was given of the flags that are no fields. A command that does not have one was not given it.
pub(super) fn flags(matches: &ArgMatches) -> Vec<&'static str> {
    let given = |it: &&str| matches.try_get_one::<bool>(it).ok().flatten() == Some(&true);
    ["json", INTERACTIVE, ALLOW, STRICT].into_iter().filter(given).collect()
}

/// A command that the terminal did not get to.
pub(super) fn not_run(failure: &Failure) -> ExitCode {
    phrase::complain(failure);
    ExitCode::from(NOT_RUN)
}

impl OperationCall {
    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Makes the call, and shows what came of it.
    pub(super) async fn run(mut self, host: Host, options: &Options) -> ExitCode {
        let mut present = Present::new(&host);
        let json = self.has("json");
        if !json {
            job::as_bytes(&self.entry, &mut self.object);
        }
        let opened = self.opened(host, options).await;
        let call = Value::Object(self.object.clone());
        let process = match opened {
            Ok(process) => process,
            Err(failure) if json => return super::finish(&failure.answer(Some(self.entry.name))),
            Err(failure) => {
                let failure = phrase::to_person(failure);
                return present.end(&self.entry, call, &failure.answer(Some(self.entry.name)));
            }
        };
        if self.entry.name == "copy_out" && copy::is_stdout(&self.object) {
            return copy::to_stdout(&self, &process, present).await;
        }
        let answer = self.answer(&process, (!json).then_some(&mut present)).await;
        let incomplete = REPORTING.contains(&self.entry.name) && is_incomplete(&answer);
        let strict = self.has(STRICT);
        let code = match json {
            true => super::finish(&answer),
            false => present.end(&self.entry, call, &self.for_the_person(answer)),
        };
        if incomplete && !strict && !json {
            render::note("some steps failed; with `--strict` the exit code would be 3");
        }
        if incomplete && strict { ExitCode::from(INCOMPLETE) } else { code }
    }

    /// The answer; with somebody who looks on, what happens meanwhile is shown.
    pub(super) async fn answer(&self, process: &Process, present: Option<&mut Present>) -> Map<String, Value> {
        let input = Input::Object(self.object.clone());
        match present {
            None => frontend::drive_one_of(self.table, process, input, None).await,
            Some(present) => {
                let mut hear = |event| present.hear(event, &process.context.call.cancel);
                frontend::drive_one_of(self.table, process, input, Some(&mut hear)).await
            }
        }
    }

    async fn opened(&mut self, host: Host, options: &Options) -> Result<Process, Failure> {
        let process = super::open(host, options)?;
        let cx = process.context.clone();
        if COPYING.contains(&self.entry.name) {
            let cx = consent::given(cx, self.entry.name, &self.object, &self.flags).await?;
            return Ok(process.with_context(cx));
        }
        let interactive = self.has(INTERACTIVE);
        Ok(process.with_context(stdin::give(&self.entry, &mut self.object, (cx, interactive)).await?))
    }

    /// A person can say at once what an agent cannot.
    fn for_the_person(&self, mut answer: Map<String, Value>) -> Map<String, Value> {
        let rule = answer.get("details").and_then(|it| it.get("rule"));
        if COPYING.contains(&self.entry.name) && rule.is_some_and(|it| it == consent::RULE) {
            answer.insert("hint".into(), consent::HINT.into());
        }
        answer
    }
}

/// It was made, and a step of its report failed.
fn is_incomplete(answer: &Map<String, Value>) -> bool {
    let steps = answer.get("provisioning_report").and_then(Value::as_array);
    steps.into_iter().flatten().any(|it| ["failed", "partial"].iter().any(|status| it["status"] == *status))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::is_incomplete;

    #[test]
    fn what_was_skipped_is_not_what_failed() {
        let check = |statuses: &[&str]| {
            let steps: Vec<Value> = statuses.iter().map(|it| json!({ "name": "x", "status": it })).collect();
            is_incomplete(json!({ "success": true, "provisioning_report": steps }).as_object().unwrap())
        };
        assert!(!check(&[]) && !check(&["success", "skipped"]));
        assert!(check(&["success", "partial"]) && check(&["failed"]));
    }
}
