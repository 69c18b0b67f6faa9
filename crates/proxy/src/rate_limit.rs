//! Closes the proxy for a minute after too many bad tokens.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Number of bad tokens in a [`MINUTE`] that closes the proxy.
const MAX_BAD_TOKENS: usize = 20;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct AuthRateLimiter(Mutex<LimiterState>);

#[derive(Debug, Default)]
struct LimiterState {
    recent: VecDeque<Instant>,
    closed: Option<Instant>,
}

impl AuthRateLimiter {
    /// Counts a bad token. Returns whether it closes the proxy.
    pub(crate) fn count(&self) -> bool {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while state.recent.front().is_some_and(|it| now.duration_since(*it) >= MINUTE) {
            state.recent.pop_front();
        }
        state.recent.push_back(now);
        if state.recent.len() < MAX_BAD_TOKENS {
            return false;
        }
        state.recent.clear();
        state.closed = Some(now + MINUTE);
        true
    }

    /// Whether the proxy is closed.
    pub(crate) fn is_closed(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn twenty_bad_tokens_in_a_minute_close_for_a_minute() {
        let abuse = AuthRateLimiter::default();
        for _ in 0..3 {
            assert!((1..MAX_BAD_TOKENS).all(|_| !abuse.count()));
            assert!(!abuse.is_closed());
            tokio::time::advance(MINUTE).await;
        }
        assert!((1..MAX_BAD_TOKENS).all(|_| !abuse.count()) && abuse.count() && abuse.is_closed());
        tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
        assert!(abuse.is_closed());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!abuse.is_closed() && !abuse.count());
    }
}
