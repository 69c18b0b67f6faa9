//! Cancellation of a run, with its reason.

use std::sync::{Arc, OnceLock};

use coracle_sandbox::{Code, Failure};
use tokio_util::sync::CancellationToken;

/// Stops a run when it fires. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignal {
    fired: CancellationToken,
    why: Arc<OnceLock<Failure>>,
}

impl StopSignal {
    /// Fires; the first reason is used.
    pub(crate) fn fire(&self, code: Code, message: impl Into<String>) {
        let _ = self.why.set(Failure::new(code, message));
        self.fired.cancel();
    }

    /// The cancellation token, for functions that need one.
    pub(crate) fn token(&self) -> CancellationToken {
        self.fired.clone()
    }

    /// Awaits `work`, unless the signal fires first.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        match self.fired.run_until_cancelled(work).await {
            Some(done) => Ok(done),
            None => Err(self.why()),
        }
    }

    /// Fails if the signal has fired.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.fired.is_cancelled() { Err(self.why()) } else { Ok(()) }
    }

    fn why(&self) -> Failure {
        self.why.get().cloned().unwrap_or_else(|| Failure::new(Code::Cancelled, "Cancelled."))
    }
}
