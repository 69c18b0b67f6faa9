//! Delays attempts after a failed pull.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::millis;
use tokio::time::Instant;

/// Delays between a failed pull and the next attempt. The last one applies to all further failures.
const REST: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];

/// Recent failed pulls of this process.
#[derive(Debug, Default)]
pub(super) struct PullBackoff(Mutex<FailedPulls>);

#[derive(Debug, Default)]
struct FailedPulls {
    times: usize,
    until: Option<Instant>,
}

impl PullBackoff {
    /// Fails if a pull may not be tried yet.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = failed.until.and_then(|it| it.checked_duration_since(Instant::now())) else { return Ok(()) };
        if left.is_zero() {
            return Ok(());
        }
        let ms = millis(left).max(1);
        Err(Failure::new(Code::PullBackoff, "The image could not be fetched a moment ago.")
            .detail("retry_after_ms", ms)
            .hint("retry after `details.retry_after_ms`; `preflight` checks whether a registry answers"))
    }

    /// Records the result of an attempt.
    pub(super) fn note<T>(&self, ended: &Result<T, Failure>) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Err(failure) if matches!(failure.code, Code::PullFailed | Code::PullTimeout) => {
                failed.until = Some(Instant::now() + REST[failed.times.min(REST.len() - 1)]);
                failed.times += 1;
            }
            Err(_) => {}
            Ok(_) => *failed = FailedPulls::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_context::failure::{Code, Failure};

    use super::PullBackoff;

    #[tokio::test(start_paused = true)]
    async fn w03_failed_pulls_are_delayed_and_a_success_resets_the_delay() {
        let backoff = PullBackoff::default();
        let failed = || Err::<(), _>(Failure::new(Code::PullFailed, "no"));
        for seconds in [5, 15, 60, 60] {
            assert!(backoff.check().is_ok());
            backoff.note(&failed());
            let refused = backoff.check().unwrap_err();
            assert_eq!(
                (refused.code, &refused.details["retry_after_ms"]),
                (Code::PullBackoff, &(seconds * 1000).into())
            );
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        backoff.note(&failed());
        backoff.note(&Ok(()));
        assert!(backoff.check().is_ok());
        backoff.note(&Err::<(), _>(Failure::new(Code::Busy, "other")));
        assert!(backoff.check().is_ok());
    }
}
