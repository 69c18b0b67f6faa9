//! `coracle run packages`: what the snippets of all sessions can use. Only a person adds to it.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle::{Context, Failure, Host, Options, audit, session_tools};
use serde_json::{Map, Value, json};

use super::reporter::watched;
use super::{exit, startup};
use crate::render;

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let json = matches.get_flag("json");
    match done(verb, matches, host, options).await {
        Ok(answer) if json => exit::finish(&answer),
        Ok(answer) => {
            render::print(&render::packages(verb, &Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => exit::finish(&failure.answer(Some(&format!("run packages {verb}")))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn done(verb: &str, matches: &ArgMatches, host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let cx = startup::open_configured(host, options)?.context;
    match verb {
        "list" => session_tools::packages::list(&cx),
        "add" => {
            let language = matches.get_one::<String>("language").cloned().unwrap_or_default();
            let names: Vec<String> = matches.get_many("names").into_iter().flatten().cloned().collect();
            let args = json!({ "language": language, "packages": names });
            audited(cx, "run_packages_add", args, async |cx| {
                Box::pin(session_tools::packages::add(cx, &language, &names)).await
            })
            .await
        }
        _ => audited(cx, "run_packages_clear", json!({}), async |cx| session_tools::packages::clear(cx).await).await,
    }
}

/// An act with its two lines in the audit, and its news for the person.
pub(super) async fn audited(
    cx: Context,
    act: &str,
    args: Value,
    work: impl AsyncFnOnce(&Context) -> Result<Map<String, Value>, Failure>,
) -> Result<Map<String, Value>, Failure> {
    let args = args.as_object().cloned().unwrap_or_default();
    let intent = audit::intent(&cx, act, &args).await?;
    let result = watched(&cx, work).await;
    intent.result(&result).await;
    result
}
