//! Waits for what happens to a job: the guest looks, so that no caller has to poll.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::answer::{TURN, apart};
use crate::job::Job;
use crate::output::{self, Watch};
use crate::wire::patterns::line_pattern;
use crate::wire::{Fault, FaultCode, From, Match, Part, Reason, Wait, Waited};

/// Between two tries of a port that takes no connection.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// One try.
const TRY: Duration = Duration::from_secs(1);

/// Waits for the first of what was asked for, or the end of the job.
pub(crate) async fn wait(job: Arc<Job>, ask: Wait) -> Result<Waited, Fault> {
    let begun = Instant::now();
    let watch = match &ask.pattern {
        None => None,
        Some(text) => {
            let pattern = line_pattern(text, ask.ignore_case)?;
            let from = job.log(|log| {
                ask.from.map_or(log.total(Part::All), |offset| log.resolve(Part::All, From::Offset(offset)))
            });
            // What is there already counts, however short the limit is; much of it is looked at within the limit.
            let (watch, found, _) = look_once(&job, Watch::new(pattern, from)).await?;
            if found.is_some() {
                return Ok(Waited { reason: Reason::Pattern, found, ms: ms(begun), job: job.seen(), tail: None });
            }
            Some(watch)
        }
    };
    let port = match &ask.port {
        None => None,
        Some(text) => Some(address(text)?),
    };
    let (reason, found) = tokio::select! {
        biased;
        found = matched_or_ended(&job, watch) => {
            let found = found?;
            (if found.is_some() { Reason::Pattern } else { Reason::Exit }, found)
        }
        () = reached(port) => (Reason::Port, None),
        () = idle(&job, ask.idle_ms) => (Reason::Idle, None),
        () = sleep(Duration::from_millis(ask.limit_ms)) => (Reason::Limit, None),
    };
    Ok(Waited { reason, found, ms: ms(begun), job: job.seen(), tail: None })
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A line that matched; none when the job ended without one.
async fn matched_or_ended(job: &Job, mut watch: Option<Watch>) -> Result<Option<Match>, Fault> {
    let mut changes = job.changes();
    loop {
        changes.mark_unchanged();
        let ended = job.ended();
        if let Some(before) = watch.take() {
            let (after, found) = look(job, before).await?;
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

/// Looks at all that came, a slice at a time, while the job goes on.
async fn look(job: &Job, mut watch: Watch) -> Result<(Watch, Option<Match>), Fault> {
    loop {
        let (after, found, all) = look_once(job, watch).await?;
        if found.is_some() || all {
            return Ok((after, found));
        }
        watch = after;
    }
}

/// One slice, and whether nothing was left to look at.
async fn look_once(job: &Job, mut watch: Watch) -> Result<(Watch, Option<Match>, bool), Fault> {
    let at = watch.at();
    let slice = job.log(|log| (log.total(Part::All) > at).then(|| log.slice(Part::All, at, output::GO)));
    let Some(slice) = slice else { return Ok((watch, None, true)) };
    let looking = move || {
        let found = watch.look(&slice, std::time::Instant::now() + TURN);
        (watch, found, false)
    };
    apart(looking).await
}

async fn reached(port: Option<(String, u16)>) {
    let Some((host, port)) = port else { return std::future::pending().await };
    loop {
        if let Ok(Ok(_)) = timeout(TRY, TcpStream::connect((host.as_str(), port))).await {
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

/// A static program has no resolver, so the host is an address, or `localhost`.
pub(crate) fn address(text: &str) -> Result<(String, u16), Fault> {
    let invalid = || Fault::new(FaultCode::Invalid, format!("`{text}` is no port and no `address:port`"));
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = match host.trim_matches(['[', ']']) {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let address: std::net::IpAddr = host.parse().map_err(|_| invalid())?;
    Ok((address.to_string(), port.parse().ok().filter(|it| *it > 0).ok_or_else(invalid)?))
}
