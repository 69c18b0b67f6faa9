//! What is done now and then for all containers of this person.

use std::time::Duration;

use coracle_context::audit::automatic_removal;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::recorded;
use coracle_context::removal::removing;
use coracle_lifecycle::{reap, reconcile};

/// How often a server does it.
const EVERY: Duration = Duration::from_secs(600);

/// Cleans up after dead processes, and removes expired containers.
///
/// # Errors
/// If records cannot be read. An engine that does not respond is no error, since a later call repeats this.
pub(crate) async fn upkeep(cx: &Context) -> Result<(), Failure> {
    let (store, terms) = (cx.store()?, cx.config.lifecycle.terms());
    for name in reconcile(cx.engines(), &store, terms.gone_for).await? {
        automatic_removal(cx, "reconcile", &name).await;
    }
    let goes_on = |name: &str| {
        cx.call.progress.note(&format!("saving and removing `{name}`, whose time is over"));
        !cx.call.cancel.is_cancelled()
    };
    match Box::pin(reap(cx.engines(), &store, &removing(cx, false, false)?, &terms, &goes_on)).await {
        // Looking through a thousand saves takes longer than a container: it has the same pace.
        Ok(None) => return Ok(()),
        Ok(Some(reaped)) => {
            for name in &reaped {
                tracing::info!(container = name, "removed: its time is over");
                automatic_removal(cx, "expire", name).await;
            }
        }
        Err(err) => tracing::warn!(%err, "containers could not be looked at"),
    }
    let keep = jiff::SignedDuration::try_from(cx.config.lifecycle.save_keep.0).unwrap_or(jiff::SignedDuration::MAX);
    if let Ok(before) = jiff::Timestamp::now().checked_sub(keep) {
        store.forget_saved(before).map_err(coracle_lifecycle::Error::from)?;
        // Records of requests are no reason to refuse a container.
        match recorded::unused_before(cx, before) {
            Ok(unused) => drop(recorded::remove(unused)),
            Err(failure) => tracing::warn!("records of requests are not removed: {}", failure.message),
        }
    }
    Ok(())
}

/// The same for as long as a server runs, from its start.
pub async fn run_maintenance(cx: Context) {
    let mut turns = tokio::time::interval(EVERY);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while cx.call.cancel.run_until_cancelled(turns.tick()).await.is_some() {
        // An act that has begun is finished: the process waits for it at its end.
        if let Err(failure) = upkeep(&cx).await {
            tracing::warn!("upkeep: {}", failure.message);
        }
    }
}
