//! The operations: one file each, and the table that drives every mouth.

mod cache_clear;
mod copy;
pub(crate) mod create;
mod create_network;
mod destroy;
mod destroy_all;
mod destroy_network;
mod exec;
mod exec_background;
mod exec_cancel;
mod exec_interactive_hint;
mod exec_poll;
mod fork;
mod images;
mod input;
mod job;
mod job_page;
mod job_read;
mod job_wait;
mod jobs;
mod list;
mod networks;
mod preflight;
mod protected_paths;
mod prune;
mod restore;
mod snapshot;
mod snapshot_delete;
mod snapshots;
mod status;
mod wait_healthy;
mod words;
pub(crate) mod workflow;
pub mod worktree;

use std::time::Duration;

use coracle_lifecycle::Record;
use coracle_runtime::RecordId;

pub(crate) use self::job::Encoding;
pub use self::job::running as jobs_running;
pub(crate) use self::job_page::JobPage;
use crate::context::Context;
use crate::op::Entry;
use crate::removal::removing;
use crate::requests::WithOrigin;

/// All of them, in the order in which they are told.
pub static ALL: &[Entry] = &[
    Entry::of::<preflight::Preflight>(),
    Entry::of::<crate::requests::Create>(),
    Entry::of::<exec::Exec>(),
    Entry::of::<exec_interactive_hint::ExecInteractiveHint>(),
    Entry::of::<exec_background::ExecBackground>(),
    Entry::of::<exec_poll::ExecPoll>(),
    Entry::of::<job_wait::JobWait>(),
    Entry::of::<job_read::JobRead>(),
    Entry::of::<exec_cancel::ExecCancel>(),
    Entry::of::<jobs::Jobs>(),
    Entry::of::<list::List>(),
    Entry::of::<status::StatusOf>(),
    Entry::of::<wait_healthy::WaitHealthy>(),
    Entry::of::<copy::CopyIn>(),
    Entry::of::<copy::CopyOut>(),
    Entry::of::<snapshot::Snapshot>(),
    Entry::of::<snapshots::Snapshots>(),
    Entry::of::<snapshot_delete::SnapshotDelete>(),
    Entry::of::<WithOrigin<restore::OfSnapshot>>(),
    Entry::of::<WithOrigin<fork::OfContainer>>(),
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
    let mine = |it: &coracle_lifecycle::Listed| {
        it.record.session == cx.call.session.as_str() && !busy.contains(&it.record.record_id)
    };
    let unused = |it: &coracle_lifecycle::OwnNetwork| it.session.as_deref() == Some(cx.call.session.as_str());
    let ended = async {
        let removing = removing(cx, false, false)?;
        destroy_all::all(cx, mine, unused, (false, &removing)).await
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
        if job::running(cx, &record).await > 0 {
            tracing::info!(container = %record.name, "it outlives its session: jobs run in it");
            busy.push(record.record_id.clone());
        }
    }
    busy
}

/// When the reaper may take a container at the earliest.
fn expiry(cx: &Context, record: &Record) -> Option<String> {
    let at = coracle_lifecycle::expires_at(record, &cx.config.lifecycle.terms(), jiff::Timestamp::now());
    at.map(|it| it.to_string())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
