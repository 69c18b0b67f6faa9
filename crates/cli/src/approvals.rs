//! `coracle approvals`: shows refused requests as they come, and asks about each.
//!
//! **Invariant:** a request that the user does not answer stays refused.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command};
use coracle::{CallInput, admin as operations, frontend};
use coracle_context::approvals::{self, ContainerApprovals, RefusedRequest};
use coracle_context::{Failure, Host, Options};
use coracle_prepare::Process;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::named_commands::NamedCommands;
use super::output::Present;
use super::{admin, exit, startup};
use crate::render;

/// How often to look for new requests.
const LOOKS: Duration = Duration::from_millis(300);

/// The command, with the operations as subcommands.
pub(super) fn command(named: NamedCommands<'_>) -> Command {
    let verbs = ["approvals list", "approvals allow", "approvals deny", "approvals revoke"];
    let about = "Decide about requests that the proxy of a container refused, as they come";
    let verbs = verbs.map(|it| admin::command(it, named));
    Command::new("approvals").about(about).arg(admin::json()).subcommands(verbs).args_conflicts_with_subcommands(true)
}

/// Without a subcommand: asks about each request at a terminal, and lists them elsewhere.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    let asks = host.stdin_is_terminal && host.stderr_is_terminal && !json;
    let process = match startup::open_configured(host, options) {
        Ok(process) => process,
        Err(failure) if json => return exit::finish(&failure.answer(Some("approvals list"))),
        Err(failure) => return exit::failed(&failure),
    };
    if asks {
        let watched = process.context.unless_cancelled(watch(&process)).await;
        return exit::code(watched);
    }
    execute(&process, "approvals list", &[], json).await
}

async fn watch(process: &Process) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    render::note("waiting for requests that a proxy refuses; Ctrl-C ends");
    loop {
        for (_, ContainerApprovals { container, requests, .. }) in approvals::all(process.context.state()?)? {
            for request in requests.iter().filter(|it| it.is_pending()) {
                if seen.insert(request.id.clone()) {
                    ask(process, &container, request).await?;
                }
            }
        }
        tokio::time::sleep(LOOKS).await;
    }
}

async fn ask(process: &Process, container: &str, request: &RefusedRequest) -> Result<(), Failure> {
    let RefusedRequest { id, rule, code, reason, waits_until, .. } = request;
    let left = waits_until.map_or(0, |it| it.duration_since(Timestamp::now()).as_secs());
    let waits = if left > 0 { format!(", waits {left} s") } else { String::new() };
    render::note(&format!("\n{container}: {rule} ({code}{waits})"));
    if let Some(reason) = reason {
        render::note(&format!("  {reason}"));
    }
    let scope = loop {
        let line =
            tokio::task::spawn_blocking(|| answer("allow [o]nce, for this [s]ession, [a]lways, [d]eny, [l]ater? "));
        match line.await.map_err(Failure::internal)?.as_deref().map(str::trim) {
            Some("o" | "once") => break "once",
            Some("s" | "session") => break "session",
            Some("a" | "always") => break "always",
            Some("d" | "deny") => break "deny",
            Some("l" | "later") => return Ok(()),
            None => return Err(Failure::cancelled()),
            Some(_) => {}
        }
    };
    match scope {
        "deny" => execute(process, "approvals deny", &[("id", id)], false).await,
        _ => execute(process, "approvals allow", &[("id", id), ("scope", scope)], false).await,
    };
    Ok(())
}

/// Executes an operation and prints its answer.
async fn execute(process: &Process, name: &str, fields: &[(&str, &str)], json: bool) -> ExitCode {
    let Some(entry) = operations::ALL.iter().find(|it| it.name == name) else { return ExitCode::FAILURE };
    let mut call: Map<_, _> = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    call.insert("operation".to_owned(), name.into());
    let response = frontend::execute(operations::ALL, process, CallInput::Object(call), None).await;
    match json {
        true => exit::finish(&response.json),
        false => Present::new(&process.context.host).end(entry, response),
    }
}

/// Reads a line in lower case; none at the end of the input.
fn answer(question: &str) -> Option<String> {
    let mut err = io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).ok()?;
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line).ok()?;
    (count > 0).then(|| line.to_ascii_lowercase())
}
