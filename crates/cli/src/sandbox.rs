//! `coracle sandbox forward`: a port of this host that leads into a sandbox.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle_context::{Failure, Host, Options};
use coracle_prepare::sandbox;
use coracle_types::{ProfileName, WorkflowId};
use serde_json::json;

use super::reporter::with_progress;
use super::{exit, startup};
use crate::render;

/// Prints the address, and forwards until the call is cancelled.
pub(super) async fn forward(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    match run(matches, host, options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if matches.get_flag("json") => exit::finish(&failure.answer(Some("sandbox forward"))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let inside = matches.get_one::<u16>("inside").copied().unwrap_or_default();
    let at = matches.get_one::<u16>("port").copied().unwrap_or_default();
    let (profile, id) = workflow(matches)?;
    let sandbox = process.sandboxes().with_workflow(profile, &id).await?;
    let open = with_progress(cx, async |cx| sandbox::opened(cx, &sandbox, &id).await).await?;
    let forward = sandbox.provider().forward_at(inside, at).await?;
    drop(open);
    let address = format!("127.0.0.1:{}", forward.port);
    render::print(&match matches.get_flag("json") {
        true => json!({ "success": true, "workflow": id, "inside": inside, "address": address, "port": forward.port })
            .to_string(),
        false => address,
    });
    cx.call.cancel.cancelled().await;
    Ok(())
}

fn workflow(matches: &ArgMatches) -> Result<(Option<ProfileName>, WorkflowId), Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let profile = word("profile").map(ProfileName::parse).transpose()?;
    Ok((profile, WorkflowId::parse(word("workflow").unwrap_or_default())?))
}
