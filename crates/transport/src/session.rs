//! One client's session: what its calls are given, and those that run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle::{Context, Process, Progress, operations, session_tools};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What a session still does when its connection ends has this long to end.
pub const LEAVING: Duration = Duration::from_secs(30);

/// A client's session. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Session {
    process: Process,
    /// Calls that run, so that the end of the session comes after theirs.
    calls: TaskTracker,
    used: Arc<Mutex<Instant>>,
}

impl Session {
    pub fn new(process: Process) -> Self {
        Self { process, calls: TaskTracker::new(), used: Arc::new(Mutex::new(Instant::now())) }
    }

    /// The session for a call that begins: it does not end before this is dropped.
    pub fn held(&self) -> SessionLease {
        self.touch();
        SessionLease { session: self.clone(), _token: self.calls.token() }
    }

    /// When it was last used: now, while calls run.
    pub fn used(&self) -> Instant {
        if !self.calls.is_empty() {
            self.touch();
        }
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Withdraws what runs, waits for it, and then lets go of the session's containers.
    pub async fn end(&self) {
        self.process.context.call.cancel.cancel();
        self.calls.close();
        self.calls.wait().await;
        self.process.end_interactive().await;
        on_session_end(&self.process.context).await;
    }
}

/// A session that cannot end yet.
#[derive(Clone, Debug)]
pub struct SessionLease {
    session: Session,
    _token: TaskTrackerToken,
}

impl SessionLease {
    pub fn process(&self) -> &Process {
        &self.session.process
    }

    /// A task of its own: an act that has begun is finished or undone, even when the connection breaks.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let session = self.session.clone();
        self.session.calls.spawn(async move {
            let done = work.await;
            session.touch();
            done
        })
    }
}

/// What is done with the session's containers (containers.md 14.9).
async fn on_session_end(cx: &Context) {
    // The token of the session has fired, and this work goes on all the same.
    let cx = cx.for_call(CancellationToken::new(), Progress::none());
    let (_, rooms) = tokio::join!(operations::end_session(&cx), session_tools::end(&cx));
    if let Err(failure) = rooms {
        tracing::warn!(session = %cx.call.session, "the session left something: {}", failure.message);
    }
}
