//! Waits for what happens to a job: the guest looks, so that no caller has to poll.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::job::Job;
use crate::output::{self, Watch};
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
            let pattern = output::pattern(text, ask.ignore_case)?;
            let from = job.log(|log| {
                ask.from.map_or(log.total(Part::All), |offset| log.resolve(Part::All, From::Offset(offset)))
            });
            Some(Watch::new(pattern, from))
        }
    };
    let port = match &ask.port {
        None => None,
        Some(text) => Some(address(text)?),
    };
    let (reason, found) = tokio::select! {
        biased;
        found = matched_or_ended(&job, watch) => (if found.is_some() { Reason::Pattern } else { Reason::Exit }, found),
        () = reached(port) => (Reason::Port, None),
        () = idle(&job, ask.idle_ms) => (Reason::Idle, None),
        () = sleep(Duration::from_millis(ask.limit_ms)) => (Reason::Limit, None),
    };
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Waited { reason, found, job: job.seen(), ms })
}

/// A line that matched; none when the job ended without one.
async fn matched_or_ended(job: &Job, mut watch: Option<Watch>) -> Option<Match> {
    let mut changes = job.changes();
    loop {
        changes.mark_unchanged();
        let ended = job.ended();
        let found = watch.as_mut().and_then(|watch| job.log(|log| watch.look(log)));
        if found.is_some() || ended || changes.changed().await.is_err() {
            return found;
        }
    }
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
fn address(text: &str) -> Result<(String, u16), Fault> {
    let invalid = || Fault::new(FaultCode::Invalid, format!("`{text}` is no port and no `address:port`"));
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = match host.trim_matches(['[', ']']) {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let address: std::net::IpAddr = host.parse().map_err(|_| invalid())?;
    Ok((address.to_string(), port.parse().ok().filter(|it| *it > 0).ok_or_else(invalid)?))
}
