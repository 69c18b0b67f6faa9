//! Periodic maintenance of session containers, and their removal at the end of a session.

use std::time::{Duration, Instant};

use coracle_context::audit::automatic_removal;
use coracle_context::container_guest;
use coracle_context::context::{Context, Frontend};
use coracle_context::failure::{Failure, slot_failure};
use coracle_lifecycle::{
    ClockReading, EndOptions, EndReason, EndedSession, GuestProgram, SAVE_TIME, SaveLimits, SavePolicy,
    SessionContainers,
};
use coracle_runtime::Policy;
use serde_json::{Map, Value, json};

/// Time limits for removals.
#[derive(Clone, Copy, Debug)]
pub struct EndLimits {
    /// For all removals together.
    within: Duration,
    /// For saving the work of each container.
    saving: Duration,
}

impl EndLimits {
    /// While a client waits, or after its connection closed and its process exits soon. Late removals happen later.
    pub(crate) const OF_A_CLIENT: Self = Self { within: Duration::from_secs(20), saving: Duration::from_secs(10) };

    /// While no client waits. Saving takes most of it.
    pub(crate) const OF_OTHERS: Self = Self { within: Duration::from_secs(90), saving: SAVE_TIME };
}

/// Removes containers of processes that have ended, and those that are too old. Runs before each creation of a
/// container, and periodically in a server.
pub async fn recover(cx: &Context, slots: &SessionContainers, limits: EndLimits) {
    let until = Instant::now() + limits.within;
    let (observer, reader) = (cx.slot_observer(), volume_reader(cx, slots).await);
    let ending = ending(cx, reader.as_ref(), &*observer, EndReason::LeaseExpired, limits);
    match slots.recover(cx.engines(), &ClockReading::now(), &ending).await {
        Ok(ended) => log_ended(cx, "expire", &ended).await,
        Err(err) => tracing::warn!(%err, "cannot look for containers of ended sessions"),
    }
    let ending = EndOptions { within: until.saturating_duration_since(Instant::now()), ..ending };
    if let Err(err) = slots.expire(cx.engines(), &ClockReading::now(), &ending).await {
        tracing::warn!(%err, "cannot look for expired containers");
    }
}

/// Saves the work of the session's containers, and removes them.
///
/// # Errors
/// If the state directory cannot be read.
pub async fn end(cx: &Context) -> Result<Map<String, Value>, Failure> {
    end_saving(cx, true).await
}

/// Removes the session's containers and their work.
///
/// # Errors
/// As [`end`].
pub async fn end_without_saving(cx: &Context) -> Result<Map<String, Value>, Failure> {
    end_saving(cx, false).await
}

async fn end_saving(cx: &Context, saves: bool) -> Result<Map<String, Value>, Failure> {
    let slots = cx.session_containers()?;
    let (observer, reader) = (cx.slot_observer(), volume_reader(cx, &slots).await);
    let (reason, limits) = match cx.call.frontend {
        Frontend::Mcp | Frontend::Serve => (EndReason::Disconnect, EndLimits::OF_A_CLIENT),
        Frontend::Call | Frontend::Cli | Frontend::Ui => (EndReason::Command, EndLimits::OF_OTHERS),
    };
    let ending = ending(cx, reader.as_ref(), &*observer, reason, limits);
    let ending = if saves { ending } else { EndOptions { saving: SavePolicy::Discard, ..ending } };
    let ended = slots.end(cx.engines(), &cx.call.session, &ending).await.map_err(slot_failure)?;
    log_ended(cx, "session_end", &ended).await;
    let roles: Vec<&str> = ended.ended.iter().map(|it| it.1.as_str()).collect();
    let failed: Vec<Value> =
        ended.failed.iter().map(|(_, role, err)| json!({ "role": role, "why": err.to_string() })).collect();
    let answer = json!({ "success": failed.is_empty(), "ended": roles, "saved": ended.saved, "failed": failed });
    Ok(answer.as_object().cloned().unwrap_or_default())
}

/// Lists the recorded containers of the session.
pub fn show(cx: &Context) -> Result<Map<String, Value>, Failure> {
    let all = cx.session_containers()?.all().map_err(slot_failure)?;
    let mine: Vec<_> = all.into_iter().filter(|it| it.session == cx.call.session).collect();
    let answer = json!({ "success": true, "session": cx.call.session, "containers": mine });
    Ok(answer.as_object().cloned().unwrap_or_default())
}

/// Reads a volume after its container was removed.
pub(crate) type VolumeReader = (GuestProgram, Policy);

/// Returns a reader, or none without an engine or without a volume to read. Contacts an engine only if there is a
/// volume.
pub async fn volume_reader(cx: &Context, slots: &SessionContainers) -> Option<VolumeReader> {
    slots.all().ok().filter(|it| !it.is_empty())?;
    let runtime = cx.runtime().await.ok()?;
    let program = container_guest::of_this_machine(cx, &*runtime).ok().flatten()?;
    Some((program, cx.policy().ok()?))
}

fn ending<'a>(
    cx: &Context,
    reader: Option<&'a VolumeReader>,
    observer: &'a coracle_lifecycle::SlotObserver<'static>,
    reason: EndReason,
    EndLimits { within, saving: time }: EndLimits,
) -> EndOptions<'a> {
    let saving = SavePolicy::Keep(SaveLimits { max_bytes: cx.config.lifecycle.save_max.0, time });
    let reader = reader.map(|(program, policy)| (program, policy));
    EndOptions { saving, reader, grace: cx.config.exec.grace.0, within, observer, reason }
}

async fn log_ended(cx: &Context, op: &str, ended: &EndedSession) {
    for (session, role, err) in &ended.failed {
        tracing::warn!(%session, role = role.as_str(), %err, "cannot remove a session's container");
    }
    for (session, role) in &ended.ended {
        tracing::info!(%session, role = role.as_str(), "removed a session's container");
        automatic_removal(cx, op, &format!("{session}/{}", role.as_str())).await;
    }
}
