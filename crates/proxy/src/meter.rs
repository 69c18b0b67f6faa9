//! Counts a container's usage of models outside of the container, and applies its budget.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::policy::Budget;
use crate::usage::Usage;

/// The proxy's own totals. Budgets use them, not what a worker reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageTotals {
    /// Number of requests sent to a provider.
    pub requests: u64,
    /// Input tokens, cached or not.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens that were read from a cache.
    pub cache_read_tokens: u64,
    /// Input tokens that were written to a cache.
    pub cache_creation_tokens: u64,
    /// The costs that the provider reported; none if it reported no costs.
    pub cost_usd: Option<f64>,
    /// Number of requests without usage from the provider, or with an incomplete response: they count one token per
    /// four bytes.
    pub estimated: u64,
}

impl UsageTotals {
    /// Input and output tokens together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Whether a budget is used up.
    #[must_use]
    pub fn exhausts(&self, budget: &Budget) -> bool {
        budget.tokens.is_some_and(|it| self.tokens() >= it)
            || budget.cost_usd.is_some_and(|it| self.cost_usd.unwrap_or(0.0) >= it)
    }
}

/// Maximum number of concurrent requests to models; more wait.
const MAX_CONCURRENT: usize = 16;

/// Maximum number of requests to models in a [`MINUTE`].
const PER_MINUTE: usize = 600;

const MINUTE: Duration = Duration::from_secs(60);

/// Estimated bytes per token, if the provider reports no tokens.
const BYTES_PER_TOKEN: u64 = 4;

#[derive(Debug)]
pub(crate) struct Meter {
    total: Mutex<UsageTotals>,
    recent: Mutex<VecDeque<Instant>>,
    places: Arc<Semaphore>,
}

impl Meter {
    /// Starts with the totals of an earlier process.
    pub(crate) fn new(already: UsageTotals) -> Self {
        Self { total: Mutex::new(already), recent: Mutex::default(), places: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }

    fn total(&self) -> MutexGuard<'_, UsageTotals> {
        self.total.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn metered(&self) -> UsageTotals {
        *self.total()
    }

    /// Counts a request, or returns after how many seconds it may be sent again.
    pub(crate) fn admit(&self) -> Result<(), u64> {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while recent.front().is_some_and(|it| now.duration_since(*it) >= MINUTE) {
            recent.pop_front();
        }
        if let Some(first) = recent.front().filter(|_| recent.len() >= PER_MINUTE) {
            return Err((MINUTE - now.duration_since(*first)).as_secs() + 1);
        }
        recent.push_back(now);
        Ok(())
    }

    /// Waits until one more request may run.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Adds a request that was sent to a provider, and returns the tokens that it counts as. `whole`: its response was
    /// received completely.
    pub(crate) fn add(&self, usage: &Usage, bytes_in: u64, bytes_out: u64, whole: bool) -> u64 {
        let guess = |bytes: u64| bytes.div_ceil(BYTES_PER_TOKEN);
        let output = match usage.output {
            Some(reported) if whole => reported,
            // A client that disconnects before the usage arrives is charged for what was sent until then.
            reported => reported.unwrap_or(0).max(guess(bytes_out)),
        };
        let input = usage.input.unwrap_or_else(|| guess(bytes_in));
        let mut total = self.total();
        total.requests += 1;
        total.estimated += u64::from(usage.input.is_none() || usage.output.is_none() || !whole);
        let plus = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        plus(&mut total.input_tokens, input);
        plus(&mut total.output_tokens, output);
        plus(&mut total.cache_read_tokens, usage.cache_read.unwrap_or(0));
        plus(&mut total.cache_creation_tokens, usage.cache_creation.unwrap_or(0));
        if let Some(cost) = usage.cost_usd {
            total.cost_usd = Some(total.cost_usd.unwrap_or(0.0) + cost);
        }
        input.saturating_add(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x69_missing_or_incomplete_usage_is_estimated_and_never_free() {
        let meter = Meter::new(UsageTotals { input_tokens: 100, ..UsageTotals::default() });
        let reported = Usage { input: Some(10), output: Some(5), ..Usage::default() };
        assert_eq!(meter.add(&reported, 4000, 4000, true), 15);
        assert_eq!(meter.add(&Usage::default(), 400, 80, true), 120);
        assert_eq!(meter.add(&Usage { output: Some(1), ..reported }, 400, 80, false), 30);
        let total = meter.metered();
        assert_eq!((total.requests, total.input_tokens, total.output_tokens, total.estimated), (3, 220, 45, 2));
        let budget = |tokens| Budget { tokens: Some(tokens), cost_usd: None };
        assert!(total.exhausts(&budget(265)) && !total.exhausts(&budget(266)) && !total.exhausts(&Budget::default()));
        let priced = UsageTotals { cost_usd: Some(1.5), ..total };
        assert!(priced.exhausts(&Budget { tokens: None, cost_usd: Some(1.5) }));
        assert!(total.exhausts(&Budget { tokens: None, cost_usd: Some(0.0) }), "the budget is zero");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_per_minute_are_limited() {
        let meter = Meter::new(UsageTotals::default());
        assert!((0..PER_MINUTE).all(|_| meter.admit().is_ok()));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(meter.admit(), Err(41));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(meter.admit(), Ok(()));
    }
}
