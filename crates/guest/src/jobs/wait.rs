//! Waits inside the guest for an event of a job, so that callers need not poll.

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

/// Time between two attempts to connect to a port.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the first of the requested events, or the end of the job.
pub(crate) async fn wait(job: Arc<Job>, request: WaitRequest) -> Result<WaitResult, RpcError> {
    let started = Instant::now();
    let watch = match &request.pattern {
        None => None,
        Some(text) => {
            let pattern = line_pattern(text, request.ignore_case)?;
            let from = job.log(|log| {
                request.from.map_or(log.total(StreamSelector::All), |offset| {
                    log.resolve(StreamSelector::All, Position::Offset(offset))
                })
            });
            // Existing output counts even if the time limit is short, so its first slice is searched before the wait begins.
            let (watch, found, _) = search_slice(&job, Watch::new(pattern, from)).await?;
            if found.is_some() {
                return Ok(WaitResult {
                    reason: WaitOutcome::Pattern,
                    found,
                    ms: ms(started),
                    job: job.info(),
                    tail: None,
                });
            }
            Some(watch)
        }
    };
    let port = match &request.port {
        None => None,
        Some(text) => Some(addresses(text)?),
    };
    let (reason, found) = tokio::select! {
        biased;
        found = matched_or_ended(&job, watch) => {
            let found = found?;
            (if found.is_some() { WaitOutcome::Pattern } else { WaitOutcome::Exit }, found)
        }
        () = port_open(port) => (WaitOutcome::Port, None),
        () = idle(&job, request.idle_ms) => (WaitOutcome::Idle, None),
        () = sleep(Duration::from_millis(request.limit_ms)) => (WaitOutcome::Limit, None),
    };
    Ok(WaitResult { reason, found, ms: ms(started), job: job.info(), tail: None })
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Waits for a matching line. Returns `None` if the job ends without one.
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

/// Searches all new output, one slice at a time.
async fn search_output(job: &Job, mut watch: Watch) -> Result<(Watch, Option<LineMatch>), RpcError> {
    loop {
        let (after, found, all) = search_slice(job, watch).await?;
        if found.is_some() || all {
            return Ok((after, found));
        }
        watch = after;
    }
}

/// Searches one slice; returns whether all output was searched.
async fn search_slice(job: &Job, mut watch: Watch) -> Result<(Watch, Option<LineMatch>, bool), RpcError> {
    let at = watch.at();
    let slice = job.log(|log| {
        (log.total(StreamSelector::All) > at).then(|| log.slice(StreamSelector::All, at, log::SEGMENTS_PER_SLICE))
    });
    let Some(slice) = slice else { return Ok((watch, None, true)) };
    let work = move || {
        let found = watch.search(&slice, std::time::Instant::now() + TIME_SLICE);
        (watch, found, false)
    };
    run_blocking(work).await
}

async fn port_open(port: Option<Vec<SocketAddr>>) {
    let Some(addresses) = port else { return std::future::pending().await };
    loop {
        if let Ok(Ok(_)) = timeout(CONNECT_TIMEOUT, connect(&addresses)).await {
            return;
        }
        sleep(RETRY_INTERVAL).await;
    }
}

async fn idle(job: &Job, idle_ms: Option<u64>) {
    let Some(idle) = idle_ms.map(Duration::from_millis) else { return std::future::pending().await };
    let started = Instant::now();
    loop {
        let silent_at = job.printed().max(started) + idle;
        if silent_at <= Instant::now() {
            return;
        }
        sleep_until(silent_at).await;
    }
}
