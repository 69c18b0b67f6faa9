//! Cancellation of a run, with its reason.

use std::sync::{Arc, OnceLock};

use coracle_sandbox::{Code, Failure};
use tokio_util::sync::CancellationToken;

/// Ends a run when it fires. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignal {
    fired: CancellationToken,
    why: Arc<OnceLock<Failure>>,
}

impl StopSignal {
    /// The first reason counts.
    pub(crate) fn fire(&self, code: Code, message: impl Into<String>) {
        let _ = self.why.set(Failure::new(code, message));
        self.fired.cancel();
    }

    /// The token, for functions that take one.
    pub(crate) fn token(&self) -> CancellationToken {
        self.fired.clone()
    }

    /// `work`, unless it fires first.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        match self.fired.run_until_cancelled(work).await {
            Some(done) => Ok(done),
            None => Err(self.why()),
        }
    }

    /// An error when it has fired.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.fired.is_cancelled() { Err(self.why()) } else { Ok(()) }
    }

    fn why(&self) -> Failure {
        self.why.get().cloned().unwrap_or_else(|| Failure::new(Code::Cancelled, "Cancelled."))
    }
}
