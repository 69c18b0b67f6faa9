//! The table of operations that drives every front end, and one file for each. What runs in a container is in
//! [`commands`], and `create` and `snapshot` have modules of their own.

mod cache_clear;
mod copy;
mod create_network;
mod destroy;
mod destroy_all;
mod destroy_network;
mod fork;
mod images;
mod list;
mod networks;
mod preflight;
mod prune;
mod restore;
mod snapshot_delete;
mod snapshots;
mod status;
mod wait_healthy;
pub(crate) mod workflow;
pub mod worktree;

use coracle_runtime::RecordId;

use crate::commands;
use crate::context::Context;
use crate::dispatch::Entry;
use crate::removal::removing;

/// Those of agents, in the order of the tool's description.
pub static ALL: &[Entry] = &[
    Entry::of::<preflight::Preflight>(),
    Entry::of::<crate::requests::Create>(),
    Entry::of::<commands::Exec>(),
    Entry::of::<commands::ExecInteractiveHint>(),
    Entry::of::<commands::ExecBackground>(),
    Entry::of::<commands::ExecPoll>(),
    Entry::of::<commands::JobWait>(),
    Entry::of::<commands::JobRead>(),
    Entry::of::<commands::ExecCancel>(),
    Entry::of::<commands::Jobs>(),
    Entry::of::<list::List>(),
    Entry::of::<status::StatusOf>(),
    Entry::of::<wait_healthy::WaitHealthy>(),
    Entry::of::<copy::CopyIn>(),
    Entry::of::<copy::CopyOut>(),
    Entry::of::<crate::snapshot::Snapshot>(),
    Entry::of::<snapshots::Snapshots>(),
    Entry::of::<snapshot_delete::SnapshotDelete>(),
    Entry::of::<restore::Restore>(),
    Entry::of::<fork::Fork>(),
    Entry::of::<create_network::CreateNetwork>(),
    Entry::of::<networks::Networks>(),
    Entry::of::<destroy_network::DestroyNetwork>(),
    Entry::of::<images::Images>(),
    Entry::of::<cache_clear::CacheClear>(),
    Entry::of::<prune::PruneAll>(),
    Entry::of::<destroy::Destroy>(),
    Entry::of::<destroy_all::DestroyAll>(),
];

/// What a session leaves behind when its connection ends: containers that are to outlive it stay (containers.md 14.9).
pub async fn end_session(cx: &Context) {
    let busy = if cx.config.lifecycle.keep_jobs { busy(cx).await } else { Vec::new() };
    let mine = |it: &coracle_lifecycle::ContainerEntry| {
        it.record.session == cx.call.session.as_str() && !busy.contains(&it.record.record_id)
    };
    let unused = |it: &coracle_lifecycle::OwnNetwork| it.session.as_deref() == Some(cx.call.session.as_str());
    let ended = async {
        let removing = removing(cx, false, false)?;
        let selection = destroy_all::Selection { containers: mine, networks: unused, persistent: false };
        destroy_all::all(cx, selection, &removing).await
    };
    match ended.await {
        Ok(_) => tracing::debug!(session = %cx.call.session, "the session ended"),
        Err(failure) => tracing::warn!(session = %cx.call.session, "the session left something: {}", failure.message),
    }
}

/// The containers of this session in which background jobs run.
async fn busy(cx: &Context) -> Vec<RecordId> {
    let Ok(store) = cx.store() else { return Vec::new() };
    let mut busy = Vec::new();
    for record in store.records().unwrap_or_default().into_iter().filter(|it| it.session == cx.call.session.as_str()) {
        if commands::running(cx, &record).await > 0 {
            tracing::info!(container = %record.name, "it outlives its session: jobs run in it");
            busy.push(record.record_id.clone());
        }
    }
    busy
}
