//! Removes sandboxes; their unsaved work is saved first.

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

/// So many at once.
const AT_ONCE: usize = 4;

/// Others are waited for no longer, all of them together. To stop and remove one has as long for itself.
const WITHIN: Duration = Duration::from_secs(30);

/// An agent that was told to stop has so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Somebody else who takes the same one away has so long.
const COURTESY: Duration = Duration::from_secs(20);

/// Why one goes.
#[derive(Clone, Copy, Debug)]
enum TeardownCause<'a> {
    /// A person said so: an agent that works there is told to stop.
    Asked,
    /// Its time was over then, unless work has begun there since.
    Old(&'a ClockReading),
}

/// Takes all sandboxes away: each that is remembered, and each that is proven ours on an engine, whether it runs or not.
///
/// # Errors
/// `teardown_incomplete`, with the whole report, once all of them were tried.
pub async fn teardown_all(all: Sandboxes<'_>) -> Result<TeardownReport, Failure> {
    let known = known(all.cx).await?;
    complete(teardown(all, known).await)
}

/// Takes these away, and goes on after a failure.
pub async fn teardown(all: Sandboxes<'_>, which: Vec<KnownSandbox>) -> TeardownReport {
    let mut ends = stream::iter(which).map(|it| one(all, it, TeardownCause::Asked)).buffer_unordered(AT_ONCE);
    let mut report = TeardownReport::default();
    while let Some(it) = ends.next().await {
        report.removed.extend(it.removed);
        report.saved.extend(it.saved);
        report.errors.extend(it.errors);
    }
    report
}

/// A report without errors, or all of it as a failure.
pub fn complete(report: TeardownReport) -> Result<TeardownReport, Failure> {
    if report.errors.is_empty() {
        return Ok(report);
    }
    let why: Vec<_> = report.errors.iter().map(|it| it.message.trim_end_matches('.')).collect();
    let message = format!("Not all is removed: {}", why.join("; "));
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

/// Nothing longer than that.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = || coracle_sandbox::Failure::new(Code::TeardownIncomplete, format!("{} s passed", limit.as_secs()));
    tokio::time::timeout(limit, Box::pin(work)).await.unwrap_or_else(|_| Err(late().into()))
}

fn busy() -> coracle_sandbox::Failure {
    coracle_sandbox::Failure::new(Code::Busy, "somebody else is at work there")
}

/// Keeps other work out of a sandbox as long as it is held.
struct ExclusiveUse {
    /// Takes it away.
    _mine: WorkflowClaim,
    /// Begins something there, if that was seen to.
    nobody_begins: Option<WorkflowClaim>,
    /// Drives an agent.
    _stopped: Vec<Lock>,
    workflows: Vec<WorkflowId>,
}

/// `None` when work has begun in a sandbox that is old.
async fn alone(cx: &Context, sandbox: &SandboxHandle, why: TeardownCause<'_>) -> Result<Option<ExclusiveUse>, Failure> {
    let (dir, slots, session) = (sandbox.sandbox.dir(), cx.session_containers()?, session_of(&sandbox.key)?);
    let mine = dir.alone(COURTESY).await?.ok_or_else(busy)?;
    let mut nobody_begins = None;
    if let TeardownCause::Old(now) = why {
        // First this: who begins from here on waits, and who began before is found.
        nobody_begins = dir.end_at_once().await?;
        if nobody_begins.is_none() || !slots.is_old_sandbox(cx.engines(), &session, now).await.map_err(slot_failure)? {
            return Ok(None);
        }
    }
    dir.drop_damaged()?;
    sandbox.recall().await?;
    let workflows = sandbox.worktrees.remembered(sandbox.key.as_str())?;
    let stopped = try_join_all(workflows.iter().map(async |id| {
        let runs = RunRecords::new(dir, id);
        match why {
            TeardownCause::Asked => runs.lock_without_agent(&cx.call.cancel, PATIENCE).await,
            TeardownCause::Old(_) => runs.lock(),
        }
    }))
    .await?;
    Ok(Some(ExclusiveUse { _mine: mine, nobody_begins, _stopped: stopped, workflows }))
}

async fn end(
    all: Sandboxes<'_>,
    it: &KnownSandbox,
    why: TeardownCause<'_>,
    report: &mut TeardownReport,
) -> Result<(), Failure> {
    let (cx, key) = (all.cx, &it.key);
    let sandbox = all.of_key(key, &it.profile).await?;
    let Some(alone) = within(WITHIN, alone(cx, &sandbox, why)).await? else { return Ok(()) };
    let save =
        within(SAVE_TIMEOUT, cx.unless_cancelled(Box::pin(save(cx, &sandbox, &alone.workflows, report)))).await?;
    if !report.errors.is_empty() {
        // What could not be saved stays where it is.
        return Ok(());
    }
    cx.call.progress.message(format!("removing sandbox {key}")).await;
    let left = match &alone.nobody_begins {
        // Only who is old is held so.
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

/// Saves the work of workflows, and removes them. What else there is to save is for who has the answer.
async fn save(
    cx: &Context,
    sandbox: &SandboxHandle,
    workflows: &[WorkflowId],
    report: &mut TeardownReport,
) -> Result<Option<FinalSave>, Failure> {
    if workflows.is_empty() && !sandbox.has_files() && sandbox.sandbox.liveness().await? == SandboxLiveness::Absent {
        return Ok(None);
    }
    cx.call.progress.message(format!("saving what only sandbox {} has", sandbox.key)).await;
    let open = match open_to_remove(cx, sandbox).await {
        // That container is gone, and the next one has the same files.
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
            // The others' work is no worse for it.
            Err(err) => report.errors.push(SandboxWarning::new(&err.code.word(), format!("{id}: {}", err.message))),
        }
    }
    Ok(Some(FinalSave { open, request }))
}

fn place(saved: &SavedWork) -> String {
    saved.location.display().to_string()
}

/// Takes away the sandboxes that were there for as long as they may (`sandbox.lifetime`), and in which nobody is. One whose
/// work cannot be saved stays, and is tried again later.
pub async fn expire(all: Sandboxes<'_>) {
    if let Err(failure) = expire_all(all).await {
        tracing::warn!("old sandboxes cannot be looked for: {}", failure.message);
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
        let report = one(sandboxes, it.clone(), TeardownCause::Old(&now)).await;
        if report.errors.is_empty() && report.removed.is_empty() {
            // Somebody is in it again.
            continue;
        }
        if report.errors.is_empty() {
            tracing::info!(sandbox = %it.key, saved = report.saved.join(", "), "the lifetime of a sandbox is over");
            continue;
        }
        for err in &report.errors {
            tracing::warn!(sandbox = %it.key, "its lifetime is over, and it stays: {}", err.message);
        }
        slots.put_off(SlotKey::new(&session, SlotRole::Sandbox), &now).map_err(slot_failure)?;
    }
    Ok(())
}
