//! What is done for session containers now and then, and at the end of a session (workspace.md 1.6, 1.7).

use std::time::Duration;

use coracle_lifecycle::{EndReason, EndedRooms, Ending, GuestProgram, Moment, Rooms, SAVE_TIME, SaveLimits, Saving};
use coracle_runtime::{Policy, ProcessId};
use serde_json::{Map, Value, json};

use crate::context::{Context, Mouth};
use crate::failure::{Failure, room_failure};
use crate::{event_log, guest};

/// How often a server says that it lives, and every second time looks for what nobody uses.
const EVERY: Duration = Duration::from_secs(30);

/// An end takes no longer; the next process goes on with it.
const WITHIN: Duration = Duration::from_secs(20);

/// Ends what dead processes left. Whoever makes a container does this first, and a server at its start.
pub(super) async fn recover(cx: &Context, rooms: &Rooms) {
    let (tell, reader) = (event_log::teller(cx), reader(cx, rooms).await);
    let ending = ending(cx, reader.as_ref(), (&*tell, EndReason::LeaseExpired));
    match rooms.recover(cx, jiff::Timestamp::now(), &ending).await {
        Ok(ended) => told(&ended),
        Err(err) => tracing::warn!(%err, "containers of sessions that ended cannot be looked for"),
    }
    if let Err(err) = rooms.expire(cx, &Moment::now(), &ending).await {
        tracing::warn!(%err, "containers that are old cannot be looked for");
    }
}

/// Keeps the session's containers for as long as a server runs.
pub(crate) async fn keep_up(cx: Context) {
    let Ok(rooms) = cx.rooms() else { return };
    let owner = ProcessId::current();
    recover(&cx, &rooms).await;
    let mut turns = tokio::time::interval(EVERY);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut turn = 0_u64;
    while cx.cancel.run_until_cancelled(turns.tick()).await.is_some() {
        if let Err(err) = rooms.renew(&owner) {
            tracing::warn!(%err, "that the session is used cannot be written down");
        }
        if turn.is_multiple_of(2) {
            let (tell, reader) = (event_log::teller(&cx), reader(&cx, &rooms).await);
            let ending = ending(&cx, reader.as_ref(), (&*tell, EndReason::Lifetime));
            if let Err(err) = rooms.expire(&cx, &Moment::now(), &ending).await {
                tracing::warn!(%err, "containers that are old cannot be looked for");
            }
            // Rare and large: what is in a sandbox is looked at, and saved.
            Box::pin(crate::sandbox::expire(&cx)).await;
            if let Err(err) = rooms.sweep(&cx, &Moment::now(), &*tell).await {
                tracing::warn!(%err, "containers that nobody uses cannot be looked for");
            }
        }
        turn += 1;
    }
}

/// Removes the session's containers, with what only they have saved.
///
/// # Errors
/// When the state directory cannot be read.
pub async fn end(cx: &Context) -> Result<Map<String, Value>, Failure> {
    let rooms = cx.rooms()?;
    let (tell, reader) = (event_log::teller(cx), reader(cx, &rooms).await);
    let reason = if cx.mouth == Mouth::Mcp { EndReason::Disconnect } else { EndReason::Command };
    let ending = ending(cx, reader.as_ref(), (&*tell, reason));
    let ended = rooms.end(cx, &cx.session, &ending).await.map_err(room_failure)?;
    told(&ended);
    let roles: Vec<&str> = ended.ended.iter().map(|it| it.1.as_str()).collect();
    let failed: Vec<Value> =
        ended.failed.iter().map(|(_, role, err)| json!({ "role": role, "why": err.to_string() })).collect();
    let answer = json!({ "success": failed.is_empty(), "ended": roles, "saved": ended.saved, "failed": failed });
    Ok(answer.as_object().cloned().unwrap_or_default())
}

/// The session's containers as they are remembered.
pub(crate) fn show(cx: &Context) -> Result<Map<String, Value>, Failure> {
    let all = cx.rooms()?.all().map_err(room_failure)?;
    let mine: Vec<_> = all.into_iter().filter(|it| it.session == cx.session).collect();
    let answer = json!({ "success": true, "session": cx.session, "containers": mine });
    Ok(answer.as_object().cloned().unwrap_or_default())
}

/// What reads a volume whose container is gone.
type Reader = (GuestProgram, Policy);

/// Nothing where there is no engine, or no volume that could be read. An engine is asked for only then.
async fn reader(cx: &Context, rooms: &Rooms) -> Option<Reader> {
    rooms.all().ok().filter(|it| !it.is_empty())?;
    let runtime = cx.runtime().await.ok()?;
    let program = guest::of_this_machine(cx, &*runtime).ok().flatten()?;
    Some((program, cx.policy().ok()?))
}

fn ending<'a>(
    cx: &Context,
    reader: Option<&'a Reader>,
    (tell, reason): (&'a coracle_lifecycle::Tell<'static>, EndReason),
) -> Ending<'a> {
    let limits = SaveLimits { max_bytes: cx.config.lifecycle.save_max.0, time: SAVE_TIME.min(WITHIN / 2) };
    let reader = reader.map(|(program, policy)| (program, policy));
    Ending { saving: Saving::Keep(limits), reader, grace: cx.config.exec.grace.0, within: WITHIN, tell, reason }
}

fn told(ended: &EndedRooms) {
    for (session, role, err) in &ended.failed {
        tracing::warn!(%session, role = role.as_str(), %err, "a session's container stays");
    }
    for (session, role) in &ended.ended {
        tracing::info!(%session, role = role.as_str(), "a session's container is gone");
    }
}
