//! Retries of requests to a model.

use std::time::Duration;

/// Delays and limits of retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Number of attempts.
    pub attempts: u32,
    /// Delay between the first two; doubled each time.
    pub first: Duration,
    /// Maximum delay between two attempts.
    pub longest: Duration,
    /// Limit of a delay that a provider may request.
    pub retry_after: Duration,
    /// Limit of the time after which no attempt is started.
    pub all: Duration,
    /// Limit of one call with all attempts.
    pub call: Duration,
    /// Limit of the time without a received byte.
    pub silence: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            attempts: 5,
            first: seconds(1),
            longest: seconds(30),
            retry_after: seconds(60),
            all: seconds(300),
            call: seconds(600),
            silence: seconds(120),
        }
    }
}

impl RetryPolicy {
    /// The delay after an attempt, counted from 1. `random` is any number.
    pub(crate) fn after(&self, attempt: u32, retry_after: Option<Duration>, random: u8) -> Duration {
        if let Some(requested) = retry_after {
            return requested.min(self.retry_after);
        }
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.longest);
        // 80 to 120 percent.
        doubled.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
    }
}

/// Whether a retry of the same request may succeed.
pub(super) fn is_worth_it(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 529)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_the_delay_of_a_provider_is_used() {
        let policy = RetryPolicy::default();
        let wait = |attempt, random| policy.after(attempt, None, random).as_millis();
        assert_eq!([wait(1, 0), wait(1, 255), wait(2, 0), wait(4, 255), wait(9, 0)], [800, 1200, 1600, 9600, 24_000]);
        let capped = |seconds| policy.after(1, Some(Duration::from_secs(seconds)), 0).as_secs();
        assert_eq!([capped(0), capped(7), capped(3600)], [0, 7, 60]);
        assert!(is_worth_it(529) && !is_worth_it(400) && !is_worth_it(501));
    }
}
