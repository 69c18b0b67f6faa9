//! `coracle logs`: the output of a job, so far and as it comes.

use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use coracle::{CallInput, CallResponse, execute, operations};
use coracle_context::{Code, Failure, Host, Options};
use coracle_prepare::Process;
use coracle_types::JobId;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::operation_args::option;
use super::output::NOT_RUN;
use super::stdio::write_stdout;
use super::{cli_messages, exit, startup};
use crate::render::{self, Layout};
use crate::signals;

/// The subcommand.
pub(super) fn command() -> Command {
    let container = Arg::new("container").value_name("CONTAINER").required(true);
    let container = container.help("Its name, or an id of at least 12 digits");
    let job = Arg::new("job").value_name("JOB").help("Its id [default: `main`, else the newest one]");
    let follow = Arg::new("follow").long("follow").short('f').action(ArgAction::SetTrue);
    let follow = follow.help("Go on until the job ends; Ctrl-C ends only this");
    let tail = option("tail", "N", "Begin with the last lines, that many [default: all stored lines]").short('n');
    let tail = tail.value_parser(value_parser!(u32).range(0..=1000));
    Command::new("logs").about("Print what a job printed, and follow it").args([container, job, follow, tail])
}

/// Bytes of one request.
const PAGE: u64 = 256 << 10;

/// Minimum time between waits that end early.
const AGAIN: Duration = Duration::from_secs(1);

/// A pattern that matches every line, including an incomplete one.
const ANYTHING: &str = "^";

/// Why the output ends.
enum LogEnd {
    /// An answer without success.
    Failed(&'static str, Map<String, Value>),
    /// The reader disconnected.
    Unread,
}

/// A job that is shown.
struct JobLog<'a> {
    process: &'a Process,
    container: String,
    job: String,
    /// Offset of the next page.
    at: u64,
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let process = match startup::open_configured(host, options) {
        Ok(process) => process,
        Err(failure) => return exit::failed(&failure),
    };
    let follow = matches.get_flag("follow");
    let shown = async {
        let mut log = JobLog::from_matches(&process, matches).await?;
        if let Some(lines) = matches.get_one::<u32>("tail") {
            log.tail(*lines).await?;
        }
        log.show(follow).await
    };
    match Box::pin(shown).await {
        Ok(code) => code,
        Err(LogEnd::Unread) => exit::unread(),
        Err(LogEnd::Failed(operation, answer)) => failed(operation, &answer, follow),
    }
}

fn failed(operation: &str, answer: &Map<String, Value>, follow: bool) -> ExitCode {
    if answer.get("code").is_some_and(|it| *it == *Code::Cancelled.word()) {
        return ExitCode::from(signals::interrupted_code());
    }
    match operations::ALL.iter().find(|it| it.name == operation) {
        Some(entry) => render::complain(&cli_messages::for_people(entry, answer)),
        None => render::complain(answer),
    }
    // With `--follow`, the code is that of a wait.
    ExitCode::from(if follow { NOT_RUN } else { 1 })
}

impl<'a> JobLog<'a> {
    async fn from_matches(process: &'a Process, matches: &ArgMatches) -> Result<Self, LogEnd> {
        let container = matches.get_one::<String>("container").cloned().unwrap_or_default();
        let job = match matches.get_one::<String>("job") {
            Some(job) => job.clone(),
            None => usual_job(process, &container).await?,
        };
        Ok(Self { process, container, job, at: 0 })
    }

    async fn call(&self, operation: &'static str, more: Value) -> Result<Map<String, Value>, LogEnd> {
        Ok(self.reply(operation, more).await?.json)
    }

    async fn reply(&self, operation: &'static str, more: Value) -> Result<CallResponse, LogEnd> {
        let mut call = json!({ "container": self.container, "job_id": self.job });
        if let (Some(call), Value::Object(more)) = (call.as_object_mut(), more) {
            call.extend(more);
        }
        call_operation(self.process, operation, call).await
    }

    /// Shows the last lines, and continues after them.
    async fn tail(&mut self, lines: u32) -> Result<(), LogEnd> {
        let seen = self.call("exec_poll", json!({ "lines": lines })).await?;
        self.at = seen.get("next_offset").and_then(Value::as_u64).unwrap_or(0);
        print(seen.get("output").and_then(Value::as_str).unwrap_or_default().as_bytes())
    }

    /// Shows all stored output; with `--follow` also new output until the job ends.
    async fn show(&mut self, follow: bool) -> Result<ExitCode, LogEnd> {
        let mut end = None;
        loop {
            let page = self.call("job_read", json!({ "offset": self.at, "limit": PAGE, "encoding": "base64" })).await?;
            let bytes = STANDARD.decode(page["data"].as_str().unwrap_or_default()).unwrap_or_default();
            print(&bytes)?;
            let before = self.at;
            evicted(&page, before);
            self.at = page["next_offset"].as_u64().unwrap_or(before);
            let total = page["total_bytes"].as_u64();
            // Only `--follow` shows new output; otherwise a busy job would never end this.
            let end = if follow { total } else { *end.get_or_insert(total) };
            let all = end.is_none_or(|it| self.at >= it);
            let ended = page["running"] == false;
            if all && !follow {
                return Ok(ExitCode::SUCCESS);
            }
            if all && ended {
                return self.end().await;
            }
            if all {
                self.more(before == self.at).await?;
            }
        }
    }

    /// Waits in the guest until there is output, or the job ends.
    async fn more(&self, in_vain: bool) -> Result<(), LogEnd> {
        let most = self.process.context.config.jobs.wait_max.0;
        let wait = json!({ "until": "regex", "pattern": ANYTHING, "offset": self.at, "timeout": most.as_secs_f64() });
        let begun = std::time::Instant::now();
        self.call("job_wait", wait).await?;
        if in_vain && begun.elapsed() < AGAIN {
            // The available output cannot be shown yet, such as the start of a secret.
            self.call("job_wait", json!({ "timeout": AGAIN.as_secs_f64() })).await?;
        }
        Ok(())
    }

    /// Prints how the job ended, like `job-wait`.
    async fn end(&self) -> Result<ExitCode, LogEnd> {
        let wait = json!({ "until": "exit", "timeout": AGAIN.as_secs_f64() });
        let ended = self.reply("job_wait", wait).await?;
        let Some(document) = ended.response.map(|it| it.render(Timestamp::now())) else { return Ok(ExitCode::FAILURE) };
        document.notes.iter().for_each(|it| render::note(&Layout::of_stdout(false).text(it)));
        Ok(ExitCode::from(document.exit_code))
    }
}

/// Reports output from `requested` on that is no longer stored.
fn evicted(page: &Map<String, Value>, requested: u64) {
    let begins = page.get("offset").and_then(Value::as_u64).unwrap_or(requested);
    if begins > requested {
        render::note(&format!("{} bytes before this are no longer stored", begins - requested));
    }
}

/// The main program, else the newest job.
async fn usual_job(process: &Process, container: &str) -> Result<String, LogEnd> {
    let listing = call_operation(process, "jobs", json!({ "container": container })).await?.json;
    let jobs = listing.get("jobs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // The output of a foreground command belongs to its caller.
    let jobs: Vec<&Value> = jobs.iter().filter(|it| it["foreground"] != true).collect();
    let id = |it: &Value| it["job_id"].as_str().unwrap_or_default().to_owned();
    if let Some(main) = jobs.iter().find(|it| it["job_id"] == JobId::main().as_str()) {
        return Ok(id(main));
    }
    let newest = jobs.iter().max_by(|a, b| a["started_at"].as_str().cmp(&b["started_at"].as_str()));
    let Some(newest) = newest else {
        let failure = Failure::new(Code::JobNotFound, format!("no job runs in `{container}`, and none has run"))
            .hint(format!("`coracle exec-background {container} -- …` starts one"));
        return Err(LogEnd::Failed("jobs", failure.answer(Some("jobs"))));
    };
    if jobs.len() > 1 {
        let command = newest["command"].as_str().unwrap_or_default().escape_debug().to_string();
        render::note(&format!("job {} of {}: {command}", id(newest), jobs.len()));
    }
    Ok(id(newest))
}

async fn call_operation(process: &Process, operation: &'static str, call: Value) -> Result<CallResponse, LogEnd> {
    let Value::Object(mut call) = call else {
        return Err(LogEnd::Failed(operation, Failure::internal("a call is no object").answer(Some(operation))));
    };
    call.insert("operation".into(), operation.into());
    let reply = execute(operations::ALL, process, CallInput::Object(call)).await;
    if reply.response.is_some() { Ok(reply) } else { Err(LogEnd::Failed(operation, reply.json)) }
}

fn print(bytes: &[u8]) -> Result<(), LogEnd> {
    write_stdout(bytes).map_err(|_| LogEnd::Unread)
}
