//! Waits for what happens to a job: the guest looks, so that no caller has to poll.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::jobs::job::Job;
use crate::jobs::log::{self, Watch};
use crate::net::address::{addresses, connect};
use crate::os::blocking::{TIME_SLICE, run_blocking};
use crate::protocol::patterns::line_pattern;
use crate::protocol::{LineMatch, Position, RpcError, StreamSelector, WaitOutcome, WaitRequest, WaitResult};

/// Between two tries of a port that takes no connection.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the first of what was asked for, or the end of the job.
pub(crate) async fn wait(job: Arc<Job>, ask: WaitRequest) -> Result<WaitResult, RpcError> {
    let begun = Instant::now();
    let watch = match &ask.pattern {
        None => None,
        Some(text) => {
            let pattern = line_pattern(text, ask.ignore_case)?;
            let from = job.log(|log| {
                ask.from.map_or(log.total(StreamSelector::All), |offset| {
                    log.resolve(StreamSelector::All, Position::Offset(offset))
                })
            });
            // What is there already counts, however short the limit is; much of it is looked at within the limit.
            let (watch, found, _) = look_once(&job, Watch::new(pattern, from)).await?;
            if found.is_some() {
                return Ok(WaitResult {
                    reason: WaitOutcome::Pattern,
                    found,
                    ms: ms(begun),
                    job: job.seen(),
                    tail: None,
                });
            }
            Some(watch)
        }
    };
    let port = match &ask.port {
        None => None,
        Some(text) => Some(addresses(text)?),
    };
    let (reason, found) = tokio::select! {
        biased;
        found = matched_or_ended(&job, watch) => {
            let found = found?;
            (if found.is_some() { WaitOutcome::Pattern } else { WaitOutcome::Exit }, found)
        }
        () = reached(port) => (WaitOutcome::Port, None),
        () = idle(&job, ask.idle_ms) => (WaitOutcome::Idle, None),
        () = sleep(Duration::from_millis(ask.limit_ms)) => (WaitOutcome::Limit, None),
    };
    Ok(WaitResult { reason, found, ms: ms(begun), job: job.seen(), tail: None })
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A line that matched; none when the job ended without one.
async fn matched_or_ended(job: &Job, mut watch: Option<Watch>) -> Result<Option<LineMatch>, RpcError> {
    let mut changes = job.changes();
    loop {
        changes.mark_unchanged();
        let ended = job.ended();
        if let Some(before) = watch.take() {
            let (after, found) = search_output(job, before).await?;
            watch = Some(after);
            if found.is_some() {
                return Ok(found);
            }
        }
        if ended || changes.changed().await.is_err() {
            return Ok(None);
        }
    }
}

/// Searches all new output, a slice at a time, while the job runs.
async fn search_output(job: &Job, mut watch: Watch) -> Result<(Watch, Option<LineMatch>), RpcError> {
    loop {
        let (after, found, all) = look_once(job, watch).await?;
        if found.is_some() || all {
            return Ok((after, found));
        }
        watch = after;
    }
}

/// Searches one slice; returns whether nothing was left to search.
async fn look_once(job: &Job, mut watch: Watch) -> Result<(Watch, Option<LineMatch>, bool), RpcError> {
    let at = watch.at();
    let slice =
        job.log(|log| (log.total(StreamSelector::All) > at).then(|| log.slice(StreamSelector::All, at, log::GO)));
    let Some(slice) = slice else { return Ok((watch, None, true)) };
    let looking = move || {
        let found = watch.search(&slice, std::time::Instant::now() + TIME_SLICE);
        (watch, found, false)
    };
    run_blocking(looking).await
}

async fn reached(port: Option<Vec<SocketAddr>>) {
    let Some(addresses) = port else { return std::future::pending().await };
    loop {
        if let Ok(Ok(_)) = timeout(CONNECT_TIMEOUT, connect(&addresses)).await {
            return;
        }
        sleep(BETWEEN_TRIES).await;
    }
}

async fn idle(job: &Job, idle_ms: Option<u64>) {
    let Some(idle) = idle_ms.map(Duration::from_millis) else { return std::future::pending().await };
    let begun = Instant::now();
    loop {
        let silent_at = job.printed().max(begun) + idle;
        if silent_at <= Instant::now() {
            return;
        }
        sleep_until(silent_at).await;
    }
}
