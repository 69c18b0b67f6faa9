//! `coracle saved`: what was kept of containers that are gone, and how it comes back. Only a person asks for it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::ArgMatches;
use coracle::target::reach_running;
use coracle::{Context, Failure, Host, Options, audit, suggest};
use coracle_lifecycle::{Restored, Save, Session, Target, guided_session, session as plain_session};
use coracle_runtime::{ExecTarget, Handle};
use serde_json::{Map, Value, json};

use super::{exit, startup};
use crate::render;

/// Lists or restores, and prints what came of it.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let done = async {
        let cx = startup::open_configured(host, options)?.context;
        match verb {
            "list" => list(&cx, matches),
            _ => Box::pin(restore(&cx, matches)).await,
        }
    };
    let json = matches.get_flag("json");
    match done.await {
        Ok(answer) if json => exit::finish(&answer),
        Ok(answer) => {
            render::print(&render::saved(verb, &Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => exit::finish(&failure.answer(Some(&format!("saved {verb}")))),
        Err(failure) => exit::failed(&failure),
    }
}

fn list(cx: &Context, matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let name = matches.get_one::<String>("name").map(|it| it.to_ascii_lowercase());
    let saves = cx.store()?.saves()?;
    let saves = saves.iter().filter(|it| name.as_ref().is_none_or(|name| *name == it.name));
    let told: Vec<Value> = saves.map(told).collect();
    Ok(answer(json!({ "saves": told, "count": told.len() })))
}

fn told(save: &Save) -> Value {
    let Save { name, time, location, manifest } = save;
    let items = manifest.items.iter().map(|it| {
        json!({ "path": it.path, "kind": it.kind, "files": it.files, "bytes": it.bytes, "left_out": it.left_out.count })
    });
    json!({
        "name": name,
        "time": time,
        "container": manifest.container,
        "session": manifest.session,
        "bytes": manifest.bytes(),
        "items": items.collect::<Vec<_>>(),
        "location": location,
    })
}

async fn restore(cx: &Context, matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let (named, into) = (word("save"), word("into"));
    let save = find(cx, &named)?;
    let args = Map::from_iter([("save".to_owned(), named.into()), ("into".to_owned(), into.clone().into())]);
    let intent = audit::intent(cx, "saved_restore", &args).await?;
    let restored = match into.contains('/') || into == "." {
        true => {
            let dir = cx.host.path(into.as_ref());
            save.unpack(&dir).map_err(Failure::from)
        }
        false => put_back(cx, &save, &into).await,
    };
    let result = restored.map(|restored| {
        let mut answer = answer(json!({ "restored": restored, "into": into }));
        answer.insert("save".into(), format!("{}/{}", save.name, save.time).into());
        answer
    });
    intent.result(&result).await;
    result
}

/// The save of `NAME/TIME`, or the newest of `NAME`.
fn find(cx: &Context, named: &str) -> Result<Save, Failure> {
    let (name, time) = named.split_once('/').map_or((named, None), |it| (it.0, Some(it.1)));
    let name = name.to_ascii_lowercase();
    let mut saves = cx.store()?.saves()?;
    let known: Vec<String> = match time {
        Some(_) if saves.iter().any(|it| it.name == name) => {
            saves.iter().filter(|it| it.name == name).map(|it| format!("{}/{}", it.name, it.time)).collect()
        }
        _ => saves.iter().map(|it| it.name.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
    };
    saves.retain(|it| it.name == name && time.is_none_or(|time| it.time == time));
    saves.pop().ok_or_else(|| no_save(named, &known))
}

fn no_save(named: &str, known: &[String]) -> Failure {
    let hint = suggest::hint(named, known, "`coracle saved list` shows what there is");
    Failure::not_found("save", named, &[]).detail("near", known).hint(hint)
}

async fn put_back(cx: &Context, save: &Save, into: &str) -> Result<Vec<Restored>, Failure> {
    let handle = Handle::parse(into).map_err(|err| Failure::name("into", err))?;
    let (mut found, _) = reach_running(cx, &handle).await?;
    let inside = cx.links().inside(&cx.store()?, &mut found).await?;
    let session: Session = match &inside {
        ExecTarget::Guest(_) => guided_session(&found.record, false)?,
        ExecTarget::Plain(..) => plain_session(&found, false)?,
    };
    let target = Target { found: &found, inside: &inside, session: &session, scratch: cx.state()?.scratch() };
    Ok(target.put_back(save).await?)
}

fn answer(fields: Value) -> Map<String, Value> {
    let mut answer = Map::from_iter([("success".to_owned(), true.into())]);
    if let Value::Object(fields) = fields {
        answer.extend(fields);
    }
    answer
}
