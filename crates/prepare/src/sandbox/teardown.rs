//! Removes sandboxes, after saving their unsaved work.

use std::time::Duration;

use coracle_context::context::Context;
use coracle_context::failure::{Failure, slot_failure};
use coracle_lifecycle::{ClockReading, EndReason, Lock, SlotKey, SlotRole};
use coracle_sandbox::provider::TeardownReport;
use coracle_sandbox::{
    Code, FinalSave, RunRecords, SAVE_TIMEOUT, SandboxHandle, SandboxLiveness, WorkflowClaim, key_of_session,
    session_of,
};
use coracle_types::{SandboxWarning, WorkflowId};
use coracle_worktrees::remove::{RemoveRequest, SavedWork};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _};

use super::inventory::{KnownSandbox, known};
use super::{Sandboxes, open_to_remove};

/// How many sandboxes are removed concurrently.
const MAX_CONCURRENT: usize = 4;

/// Total time to wait for other users of a sandbox. Stopping and removing it have the same time again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an agent may take to stop after a request.
const AGENT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long another removal of the same sandbox may take.
const OTHER_REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a sandbox is removed.
#[derive(Clone, Copy, Debug)]
enum TeardownCause<'a> {
    /// The user requested it: an agent that works there is stopped.
    Requested,
    /// Its lifetime was over at that time, unless work has started in it since.
    Expired(&'a ClockReading),
}

/// Removes all sandboxes: each that has a record, and each that is verified as Coracle's on an engine, whether it
/// runs or not.
///
/// # Errors
/// `teardown_incomplete`, with the complete report, after all removals were tried.
pub async fn teardown_all(all: Sandboxes<'_>) -> Result<TeardownReport, Failure> {
    let known = known(all.cx).await?;
    complete(teardown(all, known).await)
}

/// Removes these sandboxes, and continues after a failure.
pub async fn teardown(all: Sandboxes<'_>, which: Vec<KnownSandbox>) -> TeardownReport {
    let mut ends =
        stream::iter(which).map(|it| one(all, it, TeardownCause::Requested)).buffer_unordered(MAX_CONCURRENT);
    let mut report = TeardownReport::default();
    while let Some(it) = ends.next().await {
        report.removed.extend(it.removed);
        report.saved.extend(it.saved);
        report.errors.extend(it.errors);
    }
    report
}

/// Returns a report without errors; otherwise a failure with the complete report.
pub fn complete(report: TeardownReport) -> Result<TeardownReport, Failure> {
    if report.errors.is_empty() {
        return Ok(report);
    }
    let why: Vec<_> = report.errors.iter().map(|it| it.message.trim_end_matches('.')).collect();
    let message = format!("Not everything was removed: {}", why.join("; "));
    let failure = coracle_sandbox::Failure::new(Code::TeardownIncomplete, message);
    let failure = failure.detail("removed", report.removed).detail("saved", report.saved);
    Err(failure.detail("errors", serde_json::to_value(report.errors).unwrap_or_default()).into())
}

async fn one(all: Sandboxes<'_>, it: KnownSandbox, why: TeardownCause<'_>) -> TeardownReport {
    let mut report = TeardownReport::default();
    if let Err(failure) = Box::pin(end(all, &it, why, &mut report)).await {
        let message = format!("sandbox {}: {}", it.key, failure.message);
        report.errors.push(SandboxWarning::new(&failure.code.word(), message));
    }
    report
}

/// Fails if the work takes longer than the limit.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = || coracle_sandbox::Failure::new(Code::TeardownIncomplete, format!("{} s passed", limit.as_secs()));
    tokio::time::timeout(limit, Box::pin(work)).await.unwrap_or_else(|_| Err(late().into()))
}

fn busy() -> coracle_sandbox::Failure {
    coracle_sandbox::Failure::new(Code::Busy, "another process is working there")
}

/// Excludes other work from a sandbox while it is held.
struct ExclusiveUse {
    /// Excludes other removals.
    _removal_lock: WorkflowClaim,
    /// Excludes new workflows, for an expired sandbox.
    start_lock: Option<WorkflowClaim>,
    /// Excludes drivers of agents.
    _stopped: Vec<Lock>,
    workflows: Vec<WorkflowId>,
}

/// `None` if work has started in an expired sandbox.
async fn lock_exclusively(
    cx: &Context,
    sandbox: &SandboxHandle,
    why: TeardownCause<'_>,
) -> Result<Option<ExclusiveUse>, Failure> {
    let (dir, slots, session) = (sandbox.sandbox.dir(), cx.session_containers()?, session_of(&sandbox.key)?);
    let removal_lock = dir.alone(OTHER_REMOVAL_TIMEOUT).await?.ok_or_else(busy)?;
    let mut start_lock = None;
    if let TeardownCause::Expired(now) = why {
        // Locked before the check: workflows that start later wait, and those that started before are found.
        start_lock = dir.end_at_once().await?;
        if start_lock.is_none() || !slots.is_old_sandbox(cx.engines(), &session, now).await.map_err(slot_failure)? {
            return Ok(None);
        }
    }
    dir.drop_damaged()?;
    sandbox.recall().await?;
    let workflows = sandbox.worktrees.remembered(sandbox.key.as_str())?;
    let stopped = try_join_all(workflows.iter().map(async |id| {
        let runs = RunRecords::new(dir, id);
        match why {
            TeardownCause::Requested => runs.lock_without_agent(&cx.call.cancel, AGENT_STOP_TIMEOUT).await,
            TeardownCause::Expired(_) => runs.lock(),
        }
    }))
    .await?;
    Ok(Some(ExclusiveUse { _removal_lock: removal_lock, start_lock, _stopped: stopped, workflows }))
}

async fn end(
    all: Sandboxes<'_>,
    it: &KnownSandbox,
    why: TeardownCause<'_>,
    report: &mut TeardownReport,
) -> Result<(), Failure> {
    let (cx, key) = (all.cx, &it.key);
    let sandbox = all.of_key(key, &it.profile).await?;
    let locked = within(LOCK_TIMEOUT, lock_exclusively(cx, &sandbox, why)).await?;
    let Some(exclusive) = locked else { return Ok(()) };
    let save =
        within(SAVE_TIMEOUT, cx.unless_cancelled(Box::pin(save(cx, &sandbox, &exclusive.workflows, report)))).await?;
    if !report.errors.is_empty() {
        // Work that could not be saved keeps its sandbox.
        return Ok(());
    }
    cx.call.progress.message(format!("removing sandbox {key}")).await;
    let left = match &exclusive.start_lock {
        // Only expired sandboxes have this lock.
        Some(held) => sandbox.release_claimed(held, save.as_ref(), EndReason::Lifetime).await?,
        None => sandbox.release(save.as_ref()).await?,
    };
    report.saved.extend(left.saved.iter().map(place));
    if !left.removed {
        return Err(busy().into());
    }
    all.registry.forget(key).await;
    report.removed.push(key.to_string());
    Ok(())
}

/// Saves the work of workflows and removes them. The caller saves the rest with the returned value.
async fn save(
    cx: &Context,
    sandbox: &SandboxHandle,
    workflows: &[WorkflowId],
    report: &mut TeardownReport,
) -> Result<Option<FinalSave>, Failure> {
    if workflows.is_empty() && !sandbox.has_files() && sandbox.sandbox.liveness().await? == SandboxLiveness::Absent {
        return Ok(None);
    }
    cx.call.progress.message(format!("saving unsaved work of sandbox {}", sandbox.key)).await;
    let open = match open_to_remove(cx, sandbox).await {
        // The container was removed meanwhile; the next one has the same files.
        Err(failure) if failure.code == coracle_context::failure::Code::SandboxNotReady => {
            open_to_remove(cx, sandbox).await?
        }
        opened => opened?,
    };
    let request = RemoveRequest { save_to: sandbox.save_to()?, discard: false, salvage_ignored: false };
    for id in workflows {
        match sandbox.worktrees.remove(&open.inside, id, &request).await {
            Ok(removed) => {
                report.saved.extend(removed.saved.iter().chain(&removed.also_saved).map(place));
                RunRecords::new(sandbox.sandbox.dir(), id).forget()?;
            }
            // The error of one workflow does not stop the others.
            Err(err) => report.errors.push(SandboxWarning::new(&err.code.word(), format!("{id}: {}", err.message))),
        }
    }
    Ok(Some(FinalSave { open, request }))
}

fn place(saved: &SavedWork) -> String {
    saved.location.display().to_string()
}

/// Removes the sandboxes whose lifetime (`sandbox.lifetime`) is over, and that are not in use. A sandbox whose work
/// cannot be saved is not removed; the removal is tried again later.
pub async fn expire(all: Sandboxes<'_>) {
    if let Err(failure) = expire_all(all).await {
        tracing::warn!("cannot look for expired sandboxes: {}", failure.message);
    }
}

async fn expire_all(sandboxes: Sandboxes<'_>) -> Result<(), Failure> {
    let cx = sandboxes.cx;
    let (slots, now) = (cx.session_containers()?, ClockReading::now());
    let old = slots.old_sandboxes(cx.engines(), &now).await.map_err(slot_failure)?;
    if old.is_empty() {
        return Ok(());
    }
    let all = known(cx).await?;
    for session in old {
        let Some(it) = key_of_session(&session).and_then(|key| all.iter().find(|it| it.key == key)) else { continue };
        let report = one(sandboxes, it.clone(), TeardownCause::Expired(&now)).await;
        if report.errors.is_empty() && report.removed.is_empty() {
            // The sandbox is in use again.
            continue;
        }
        if report.errors.is_empty() {
            tracing::info!(sandbox = %it.key, saved = report.saved.join(", "), "the lifetime of a sandbox is over");
            continue;
        }
        for err in &report.errors {
            tracing::warn!(sandbox = %it.key, "the lifetime of a sandbox is over, but it cannot be removed: {}", err.message);
        }
        slots.put_off(SlotKey::new(&session, SlotRole::Sandbox), &now).map_err(slot_failure)?;
    }
    Ok(())
}
