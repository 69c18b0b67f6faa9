//! Retries requests while a server is busy.

use std::time::Duration;

use coracle_types::{Error, Result, random_hex};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::is_transient;

/// Timeout of a request that reads.
pub(crate) const READ: Duration = Duration::from_secs(30);

/// Timeout of a request that changes something.
pub(crate) const WRITE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sends a request until the answer is not "later", or the time is up. The request has to be idempotent.
///
/// # Errors
/// [`Error::TimedOut`]; the caller handles the inner error.
pub(crate) async fn retry<T, F>(
    verb: &'static str,
    within: Duration,
    mut request: impl FnMut() -> F,
) -> Result<Result<T, kube::Error>>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        let Ok(answer) = timeout_at(deadline, request()).await else {
            return Err(Error::TimedOut { verb, after: within });
        };
        match answer {
            Err(err) if is_transient(&err) && Instant::now() + pause < deadline && !is_refused_connection(&err) => {
                tracing::debug!(%err, verb, "retrying a request to the API server");
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => return Ok(answer),
        }
    }
}

/// No server listens there, which is reported at once.
fn is_refused_connection(err: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(err);
    while let Some(it) = cause {
        if let Some(io) = it.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound | std::io::ErrorKind::TimedOut
            );
        }
        cause = it.source();
    }
    false
}

/// Returns between half and all of the pause, so that many callers do not retry at the same time.
fn jittered(pause: Duration) -> Duration {
    let share = u32::from_str_radix(&random_hex::<1>(), 16).unwrap_or(0);
    pause / 2 + pause / 2 * share / 255
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_retried_and_a_refusal_is_final() {
        let requests = Cell::new(0);
        let count = || {
            requests.set(requests.get() + 1);
            requests.get()
        };
        let busy_twice = retry("list", READ, || {
            let time = count();
            async move { if time < 3 { Err(answered(429)) } else { Ok(time) } }
        });
        assert_eq!(busy_twice.await.unwrap().unwrap(), 3);
        requests.set(0);
        let refused = retry("list", READ, || {
            count();
            async { Err::<(), _>(answered(403)) }
        });
        assert!(refused.await.unwrap().is_err());
        assert_eq!(requests.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_a_busy_server_end_before_the_deadline() {
        let begun = Instant::now();
        let busy = retry("list", READ, || async { Err::<(), _>(answered(503)) }).await;
        assert!(matches!(busy, Ok(Err(_))) && begun.elapsed() <= READ, "{busy:?}");
        let silent = retry::<(), _>("list", READ, std::future::pending).await;
        assert!(matches!(silent, Err(Error::TimedOut { .. })));
    }
}
