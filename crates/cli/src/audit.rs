//! `coracle audit`: what was done, and whether the trail of it is whole.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use coracle::audit::{Acts, Broken, LogFilter, Verified, verify};
use coracle::{Code, Context, Failure, Host, Options, Seconds};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::operation_args::option;
use super::{exit, startup};
use crate::render;

/// Acts that are shown unless the person says how many.
const NEWEST: usize = 50;

/// The subcommands.
pub(super) fn command() -> Command {
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let since = option("since", "TIME", "From then on: `90s`, `1h`, `7d` ago, or a time such as 2026-11-24T06:00:00Z");
    let newest = option("newest", "N", "The newest ones, that many [default: 50]").short('n');
    let log = Command::new("log").about("Show what was done: when, by whom, to what, and how it went").args([
        since.value_parser(time),
        option("operation", "NAME", "Only this operation, such as `exec` or `copy_in`"),
        option("container", "NAME", "Only what was done to this container"),
        newest.value_parser(value_parser!(u32).range(1..)),
        json(),
    ]);
    let verify = Command::new("verify").about("Check that no line was changed or taken away").arg(json());
    Command::new("audit").about("The trail of what was done").subcommand_required(true).subcommands([log, verify])
}

/// So long ago, or at that time.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = Seconds::parse(text).ok_or("it is neither `1h` nor a time such as 2026-11-24T06:00:00Z")?;
    let ago = SignedDuration::try_from(ago.0).map_err(|err| err.to_string())?;
    Timestamp::now().checked_sub(ago).map_err(|err| err.to_string())
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let json = matches.get_flag("json");
    let answer = async {
        let cx = startup::open(host, options)?.context;
        match verb {
            "log" => log(&cx, filter(matches)).await,
            _ => checked(&cx).await,
        }
    };
    match answer.await {
        Ok(answer) if json => exit::finish(&answer),
        Ok(answer) => {
            let answer = Value::Object(answer);
            render::print(&if verb == "log" { render::audit_log(&answer) } else { render::audit(&answer) });
            ExitCode::SUCCESS
        }
        Err(failure) if json => exit::finish(&failure.answer(Some(&format!("audit {verb}")))),
        Err(failure) => exit::failed(&failure),
    }
}

fn filter(matches: &ArgMatches) -> LogFilter {
    let newest = matches.get_one::<u32>("newest").and_then(|it| usize::try_from(*it).ok());
    LogFilter {
        since: matches.get_one::<Timestamp>("since").copied(),
        // As it is written on a command line.
        operation: matches.get_one::<String>("operation").map(|it| it.replace('-', "_")),
        container: matches.get_one::<String>("container").cloned(),
        newest: newest.unwrap_or(NEWEST),
    }
}

async fn log(cx: &Context, filter: LogFilter) -> Result<Map<String, Value>, Failure> {
    let dir = cx.state()?.audit();
    let read = tokio::task::spawn_blocking(move || Acts::read(&dir, &filter)).await;
    let Acts { acts, older } = read.map_err(Failure::internal)?.map_err(|err| unreadable(&err))?;
    object(json!({ "success": true, "count": acts.len(), "older": older, "acts": acts }))
}

async fn checked(cx: &Context) -> Result<Map<String, Value>, Failure> {
    let dir = cx.state()?.audit();
    let looked = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || verify(&dir)
    });
    let looked = looked.await.map_err(Failure::internal)?.map_err(|err| unreadable(&err))?;
    match looked {
        Ok(Verified { files, lines, torn, first, last }) => object(
            json!({ "success": true, "dir": dir, "files": files, "lines": lines, "torn": torn, "first": first, "last": last }),
        ),
        Err(Broken { file, line, reason }) => {
            let message = format!("the audit trail is broken at line {line} of `{}`: {reason}", file.display());
            Err(Failure::new(Code::AuditBroken, message)
                .detail("file", file)
                .detail("line", line)
                .detail("reason", reason)
                .hint("somebody wrote to the files, or the disk lost something; what stands before that line is whole"))
        }
    }
}

fn unreadable(err: &std::io::Error) -> Failure {
    Failure::config("state_dir", None, format!("the audit trail cannot be read: {err}"))
}

fn object(answer: Value) -> Result<Map<String, Value>, Failure> {
    if let Value::Object(answer) = answer { Ok(answer) } else { Err(Failure::internal("an answer is no object")) }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::time;

    #[test]
    fn a_time_is_so_long_ago_or_written_out() {
        let ago = time("1h").unwrap().until(Timestamp::now()).unwrap();
        let seconds = SignedDuration::try_from(ago).unwrap().as_secs();
        assert!((3600..3660).contains(&seconds), "{seconds}");
        assert_eq!(time("2026-11-24T06:00:00Z").unwrap().as_second(), 1_795_500_000);
        assert!(time("yesterday").is_err());
    }
}
