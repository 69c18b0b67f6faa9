//! Spaces checks for a missing engine.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::response::Result;
use crate::{Code, Failure};

/// The pause between two checks.
const REST: Duration = Duration::from_secs(5);

/// The last failure for want of an engine.
#[derive(Debug, Default)]
pub(super) struct EngineBackoff(Mutex<Option<(Instant, Failure)>>);

impl EngineBackoff {
    /// Fails while the pause lasts.
    pub(super) fn check(&self) -> Result<()> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((until, failure)) = &*last else { return Ok(()) };
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => {
                let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
                Err(failure.clone().detail("retry_after_ms", ms).into())
            }
            _ => Ok(()),
        }
    }

    /// Starts the pause if the failure is for want of an engine.
    pub(super) fn note(&self, failure: Failure) -> Box<Failure> {
        let failure = engine_unavailable(failure);
        if failure.code == Code::EngineUnavailable {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now() + REST, failure.clone()));
        }
        failure.into()
    }
}

/// The failure of a preflight as the tools report it: without any engine, `engine_unavailable` in place of `not_ready`.
#[must_use]
pub fn engine_unavailable(mut failure: Failure) -> Failure {
    let engine = failure.details.get("preflight").map(|it| &it["runtime"]);
    if failure.code == Code::NotReady && engine == Some(&Value::Null) {
        failure.code = Code::EngineUnavailable;
        failure.retryable = failure.code.is_retryable();
    }
    failure
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::EngineBackoff;
    use crate::{Code, Failure};

    #[tokio::test(start_paused = true)]
    async fn w42_an_engine_that_is_missing_is_looked_for_every_five_seconds() {
        let without = EngineBackoff::default();
        let noted = without.note(Failure::new(Code::NotReady, "no").detail("preflight", json!({ "runtime": null })));
        assert_eq!(noted.code, Code::EngineUnavailable);
        let again = without.check().unwrap_err();
        assert_eq!((again.code, &again.details["retry_after_ms"]), (Code::EngineUnavailable, &5000.into()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(without.check().is_ok());
        let other = Failure::new(Code::NotReady, "disk").detail("preflight", json!({ "runtime": "docker" }));
        assert_eq!(without.note(other).code, Code::NotReady);
        assert!(without.check().is_ok());
    }
}
