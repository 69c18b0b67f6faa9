//! The table of operations that drives every front end, and one file for each. What runs in a container is in
//! `commands`, and `create` and `snapshot` have modules of their own.

mod cache_clear;
mod copy;
mod create_network;
mod destroy;
mod destroy_all;
mod destroy_network;
mod forward;
mod images;
pub(crate) mod list;
mod network_request;
mod networks;
mod preflight;
mod prune;
mod restore;
mod snapshot_archive;
mod snapshot_delete;
mod snapshots;
mod status;
mod wait_healthy;

use coracle_context::context::Context;
use coracle_context::removal::removing;
use coracle_types::RecordId;

use crate::dispatch::OperationEntry;
use crate::{checkpoints, commands, terminals};

pub use self::destroy::{Destroy, DestroyResponse};
pub(crate) use self::forward::Forward;
pub use self::forward::{close_unused_forwards, may_open_port};
pub use self::list::{ContainerRow, List, ListResponse, OtherRow};
pub use self::status::{StatusOf, StatusResponse};
pub use crate::commands::{ExecCancel, ExecCancelResponse, ExecPoll, ExecPollResponse, JobRow, Jobs, JobsResponse};

/// Those of agents, in the order of the tool's description.
pub static ALL: &[OperationEntry] = &[
    OperationEntry::for_operation::<preflight::Preflight>(),
    OperationEntry::for_operation::<coracle_prepare::requests::Create>(),
    OperationEntry::for_operation::<commands::Exec>(),
    OperationEntry::for_operation::<commands::ExecInteractiveHint>(),
    OperationEntry::for_operation::<commands::ExecBackground>(),
    OperationEntry::for_operation::<commands::ExecPoll>(),
    OperationEntry::for_operation::<commands::JobWait>(),
    OperationEntry::for_operation::<commands::JobRead>(),
    OperationEntry::for_operation::<commands::ExecCancel>(),
    OperationEntry::for_operation::<commands::Jobs>(),
    OperationEntry::for_operation::<list::List>(),
    OperationEntry::for_operation::<status::StatusOf>(),
    OperationEntry::for_operation::<wait_healthy::WaitHealthy>(),
    OperationEntry::for_process::<forward::Forward>(),
    OperationEntry::for_process::<terminals::ShellOpen>().for_session(),
    OperationEntry::for_process::<terminals::ShellSend>().for_session(),
    OperationEntry::for_process::<terminals::ShellExpect>().for_session(),
    OperationEntry::for_process::<terminals::ShellRead>().for_session(),
    OperationEntry::for_process::<terminals::ShellClose>().for_session(),
    OperationEntry::for_operation::<copy::CopyIn>(),
    OperationEntry::for_operation::<copy::CopyOut>(),
    OperationEntry::for_operation::<crate::snapshot::Snapshot>(),
    OperationEntry::for_operation::<snapshots::Snapshots>(),
    OperationEntry::for_operation::<snapshot_delete::SnapshotDelete>(),
    OperationEntry::for_operation::<snapshot_archive::SnapshotExport>(),
    OperationEntry::for_operation::<snapshot_archive::SnapshotImport>(),
    OperationEntry::for_operation::<restore::Restore>(),
    OperationEntry::for_operation::<crate::fork::Fork>(),
    OperationEntry::for_operation::<crate::race::Race>(),
    OperationEntry::for_operation::<checkpoints::SaveCheckpoint>(),
    OperationEntry::for_operation::<checkpoints::Timeline>(),
    OperationEntry::for_operation::<checkpoints::Rewind>(),
    OperationEntry::for_operation::<checkpoints::CheckpointDiff>(),
    OperationEntry::for_operation::<create_network::CreateNetwork>(),
    OperationEntry::for_operation::<networks::Networks>(),
    OperationEntry::for_operation::<destroy_network::DestroyNetwork>(),
    OperationEntry::for_operation::<network_request::NetworkRequest>().for_session(),
    OperationEntry::for_operation::<images::Images>(),
    OperationEntry::for_operation::<cache_clear::CacheClear>(),
    OperationEntry::for_operation::<prune::PruneAll>(),
    OperationEntry::for_operation::<destroy::Destroy>(),
    OperationEntry::for_operation::<destroy_all::DestroyAll>(),
];

/// Ends what [`Context::keep_network`] began.
pub async fn release_network(cx: &Context) {
    let Ok(store) = cx.store() else { return };
    if let Err(err) = coracle_lifecycle::release_network(cx.engines(), &store).await {
        tracing::warn!("the shared network stays: {err}");
    }
}

/// What a session leaves behind when its connection ends: containers that are to outlive it stay.
pub async fn end_session(cx: &Context) {
    let busy = if cx.config.lifecycle.keep_jobs { busy(cx).await } else { Vec::new() };
    let mine = |it: &coracle_lifecycle::ContainerEntry| {
        it.record.session == cx.call.session.as_str() && !busy.contains(&it.record.record_id)
    };
    let unused = |it: &coracle_lifecycle::OwnNetwork| it.session.as_deref() == Some(cx.call.session.as_str());
    let ended = async {
        let removing = removing(cx, false, false)?;
        let selection = destroy_all::Selection {
            containers: mine,
            networks: unused,
            persistent: false,
            recorded_as: Some("session_end"),
        };
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
