//! `coracle sandbox`: what a person does with the sandboxes of all workflows.

use std::io::Write as _;
use std::process::ExitCode;

use clap::ArgMatches;
use coracle::sandbox::{self, Sandboxes};
use coracle::{Failure, Host, Options, Process};
use coracle_sandbox::provider::TeardownReport;
use coracle_sandbox::{ProfileName, SandboxKey, WorkflowId};
use serde_json::{Map, Value, json};

use super::packages::audited;
use super::reporter::watched;
use super::{exit, startup};
use crate::render;

/// A shorter beginning of a key is taken for a mistake.
const SHORTEST: usize = 4;

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let json = matches.get_flag("json");
    match done(verb, matches, host, options).await {
        // It told where it led when it began.
        Ok(_) if verb == "forward" => ExitCode::SUCCESS,
        Ok(answer) => {
            let code = if json {
                exit::finish(&answer)
            } else {
                render::print(&render::sandboxes(verb, &Value::Object(answer.clone())));
                ExitCode::SUCCESS
            };
            // A script asks `coracle sandbox review … && git …`.
            let found = answer.get("differences").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
            if found { ExitCode::FAILURE } else { code }
        }
        Err(failure) if json => exit::finish(&failure.answer(Some(&format!("sandbox {verb}")))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn done(verb: &str, matches: &ArgMatches, host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    match verb {
        "list" => {
            let rows = sandbox::overview(cx).await?;
            Ok(answer(json!({ "count": rows.len(), "sandboxes": rows })))
        }
        "remove" => {
            let keys: Vec<String> = matches.get_many("keys").into_iter().flatten().cloned().collect();
            let args = json!({ "keys": keys, "all": matches.get_flag("all") });
            audited(cx.clone(), "sandbox_remove", args, async |cx| {
                remove(Sandboxes { cx, ..process.sandboxes() }, &keys).await
            })
            .await
        }
        "forward" => forward(&process, matches).await,
        _ => review(&process, matches).await,
    }
}

/// Those that are named, or all when none is.
async fn remove(all: Sandboxes<'_>, keys: &[String]) -> Result<Map<String, Value>, Failure> {
    let report = if keys.is_empty() { sandbox::teardown_all(all).await } else { remove_named(all, keys).await };
    let TeardownReport { mut removed, saved, errors } = report?;
    removed.sort();
    Ok(answer(json!({ "removed": removed, "saved": saved, "errors": errors })))
}

async fn remove_named(sandboxes: Sandboxes<'_>, keys: &[String]) -> Result<TeardownReport, Failure> {
    let all = sandbox::known(sandboxes.cx).await?;
    let mut chosen = Vec::new();
    for named in keys {
        let found: Vec<_> = all.iter().filter(|it| it.key.as_str().starts_with(named.as_str())).collect();
        match &found[..] {
            // One that is gone is no failure; a word that is no key is a mistake.
            [] if SandboxKey::parse(named).is_some() => {}
            [it] if named.len() >= SHORTEST => chosen.push((*it).clone()),
            [] | [_] => {
                let failure = Failure::not_found("sandbox", named, &[]);
                return Err(failure.hint("`coracle sandbox list` shows the keys that there are"));
            }
            _ => return Err(Failure::invalid("keys", format!("several keys begin with `{named}`"))),
        }
    }
    chosen.sort_by(|a, b| a.key.cmp(&b.key));
    chosen.dedup_by(|a, b| a.key == b.key);
    sandbox::complete(sandbox::teardown(sandboxes, chosen).await)
}

/// Runs until it is told to end.
async fn forward(process: &Process, matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let cx = &process.context;
    let inside = matches.get_one::<u16>("inside").copied().unwrap_or_default();
    let at = matches.get_one::<u16>("port").copied().unwrap_or_default();
    let (profile, id) = workflow(matches)?;
    let sandbox = process.sandboxes().of_workflow(&profile, &id).await?;
    let open = watched(cx, async |cx| sandbox::opened(cx, &sandbox, &id).await).await?;
    let forward = sandbox.provider().forward_at(inside, at).await?;
    drop(open);
    let address = format!("127.0.0.1:{}", forward.port);
    let told = answer(json!({ "workflow": id, "inside": inside, "address": address, "port": forward.port }));
    render::print(&if matches.get_flag("json") { Value::Object(told.clone()).to_string() } else { address });
    // Whoever reads it waits for the line.
    let _ = std::io::stdout().flush();
    cx.call.cancel.cancelled().await;
    Ok(told)
}

async fn review(process: &Process, matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let cx = &process.context;
    let (profile, id) = workflow(matches)?;
    let sandbox = process.sandboxes().of_workflow(&profile, &id).await?;
    let open = watched(cx, async |cx| sandbox::opened(cx, &sandbox, &id).await).await?;
    let differences = sandbox.worktrees.review(&open.inside).await?;
    Ok(answer(json!({ "workflow": id, "directory": sandbox.shared_at(), "differences": differences })))
}

fn workflow(matches: &ArgMatches) -> Result<(ProfileName, WorkflowId), Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let profile = word("profile").map_or_else(|| ProfileName::parse("default"), ProfileName::parse)?;
    Ok((profile, WorkflowId::parse(word("workflow").unwrap_or_default())?))
}

fn answer(fields: Value) -> Map<String, Value> {
    let mut answer = Map::from_iter([("success".to_owned(), true.into())]);
    if let Value::Object(fields) = fields {
        answer.extend(fields);
    }
    answer
}
