//! One client's session: its call context, and its running calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle::operations;
use coracle_context::{Context, Progress};
use coracle_prepare::{Process, session_tools};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Time limit for the remaining work of a session after its connection ends.
pub const LEAVING: Duration = Duration::from_secs(30);

/// A client's session. Clones share the state.
#[derive(Clone, Debug)]
pub struct Session {
    process: Process,
    /// Running calls, because the session ends after them.
    calls: TaskTracker,
    used: Arc<Mutex<Instant>>,
    /// Streams on which the client listens.
    streams: Arc<AtomicUsize>,
}

/// Marks a session as used while its client listens on a stream. Unlike a call, it does not delay the session's end.
#[derive(Debug)]
pub struct StreamGuard {
    session: Session,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.session.streams.fetch_sub(1, Ordering::Relaxed);
        self.session.touch();
    }
}

impl Session {
    pub fn new(process: Process) -> Self {
        process.context.keep_network();
        let used = Arc::new(Mutex::new(Instant::now()));
        Self { process, calls: TaskTracker::new(), used, streams: Arc::default() }
    }

    /// Holds the session for a new call: it does not end before this is dropped.
    pub fn held(&self) -> SessionLease {
        self.touch();
        SessionLease { session: self.clone(), _token: self.calls.token() }
    }

    /// Whether the session and its containers end with its connection.
    pub fn is_anonymous(&self) -> bool {
        self.process.context.call.is_anonymous
    }

    fn listen(&self) -> StreamGuard {
        self.streams.fetch_add(1, Ordering::Relaxed);
        StreamGuard { session: self.clone() }
    }

    /// The time of its last use: now, while calls run or the client listens.
    pub fn used(&self) -> Instant {
        if !self.calls.is_empty() || self.streams.load(Ordering::Relaxed) > 0 {
            self.touch();
        }
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Cancels the running calls and waits for them. Then removes the session's containers, unless the session has a name: a
    /// named session persists, and another connection may use it.
    pub async fn end(&self) {
        self.process.context.call.cancel.cancel();
        self.calls.close();
        self.calls.wait().await;
        self.process.end_interactive().await;
        // The session's token has fired, but this work must still be done.
        let cx = self.process.context.for_call(CancellationToken::new(), Progress::none());
        if self.is_anonymous() {
            remove_containers(&cx).await;
        }
        operations::release_network(&cx).await;
    }
}

/// Prevents the end of a session.
#[derive(Clone, Debug)]
pub struct SessionLease {
    session: Session,
    _token: TaskTrackerToken,
}

impl SessionLease {
    pub fn process(&self) -> &Process {
        &self.session.process
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same session, while its client listens on a stream.
    pub fn listen(&self) -> StreamGuard {
        self.session.listen()
    }

    /// Runs as a separate task: a started operation is finished or undone even when the connection breaks.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let session = self.session.clone();
        self.session.calls.spawn(async move {
            let done = work.await;
            session.touch();
            done
        })
    }
}

async fn remove_containers(cx: &Context) {
    let (_, rooms) = tokio::join!(operations::end_session(cx), session_tools::end(cx));
    if let Err(failure) = rooms {
        tracing::warn!(session = %cx.call.session, "the session was not removed completely: {}", failure.message);
    }
}
