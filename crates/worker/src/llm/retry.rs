//! Retries of requests to a model.

use std::time::Duration;

/// How long a model is waited for, and how often.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Number of attempts.
    pub attempts: u32,
    /// Between the first two; doubled each time.
    pub first: Duration,
    /// Between two, at most.
    pub longest: Duration,
    /// Limit of a delay that a provider may request.
    pub retry_after: Duration,
    /// Limit of the time after which no attempt is started.
    pub all: Duration,
    /// Limit of one call with all attempts.
    pub call: Duration,
    /// Without a byte.
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
        if let Some(asked) = retry_after {
            return asked.min(self.retry_after);
        }
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.longest);
        // From 80 to 120 in the hundred.
        doubled.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
    }
}

/// Whether the same question may have an answer later.
pub(super) fn is_worth_it(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 529)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_what_a_provider_asks_for_counts() {
        let patience = RetryPolicy::default();
        let wait = |attempt, random| patience.after(attempt, None, random).as_millis();
        assert_eq!([wait(1, 0), wait(1, 255), wait(2, 0), wait(4, 255), wait(9, 0)], [800, 1200, 1600, 9600, 24_000]);
        let asked = |seconds| patience.after(1, Some(Duration::from_secs(seconds)), 0).as_secs();
        assert_eq!([asked(0), asked(7), asked(3600)], [0, 7, 60]);
        assert!(is_worth_it(529) && !is_worth_it(400) && !is_worth_it(501));
    }
}
