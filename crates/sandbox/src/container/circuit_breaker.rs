//! After one container upon the other that did not become ready, none is made for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Code, Failure, Result};

/// Failures in a row that are no accident.
const MOST: u32 = 3;

/// Then nothing is tried for so long.
const OPEN_FOR: Duration = Duration::from_secs(30);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    failed: u32,
    until: Option<Instant>,
}

impl CircuitBreaker {
    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `sandbox_unavailable` while nothing is tried.
    pub(super) fn check(&self) -> Result<()> {
        let left = self.state().until.and_then(|it| it.checked_duration_since(Instant::now()));
        let Some(left) = left.filter(|it| !it.is_zero()) else { return Ok(()) };
        let message = format!("{MOST} containers in a row did not become ready; the next is made in a while.");
        let after = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Err(Failure::new(Code::SandboxUnavailable, message).detail("retry_after_ms", after))
    }

    pub(super) fn note<T>(&self, outcome: &Result<T>) {
        let mut state = self.state();
        match outcome {
            Ok(_) => *state = BreakerState::default(),
            Err(_) => {
                state.failed += 1;
                if state.failed >= MOST {
                    *state = BreakerState { failed: 0, until: Some(Instant::now() + OPEN_FOR) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_failures_in_a_row_are_followed_by_half_a_minute_without_a_try() {
        let (breaker, failed) = (CircuitBreaker::default(), Err::<(), _>(Failure::internal("x")));
        for outcome in [&failed, &failed, &Ok(()), &failed, &failed] {
            breaker.note(outcome);
            assert!(breaker.check().is_ok());
        }
        breaker.note(&failed);
        assert_eq!(breaker.check().unwrap_err().code, Code::SandboxUnavailable);
        tokio::time::advance(OPEN_FOR).await;
        assert!(breaker.check().is_ok());
    }
}
