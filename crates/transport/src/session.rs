//! One client's session: what its calls are given, and those that run.

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

/// What a session still does when its connection ends has this long to end.
pub const LEAVING: Duration = Duration::from_secs(30);

/// A client's session. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Session {
    process: Process,
    /// Calls that run, so that the end of the session comes after theirs.
    calls: TaskTracker,
    used: Arc<Mutex<Instant>>,
    /// Streams on which the client listens.
    streams: Arc<AtomicUsize>,
}

/// Keeps a session in use while its client listens on a stream. Unlike a call, it does not delay the end of the session.
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

    /// The session for a call that begins: it does not end before this is dropped.
    pub fn held(&self) -> SessionLease {
        self.touch();
        SessionLease { session: self.clone(), _token: self.calls.token() }
    }

    /// Whether it ends with its connection, and its containers with it.
    pub fn is_anonymous(&self) -> bool {
        self.process.context.call.is_anonymous
    }

    fn listen(&self) -> StreamGuard {
        self.streams.fetch_add(1, Ordering::Relaxed);
        StreamGuard { session: self.clone() }
    }

    /// When it was last used: now, while calls run or the client listens.
    pub fn used(&self) -> Instant {
        if !self.calls.is_empty() || self.streams.load(Ordering::Relaxed) > 0 {
            self.touch();
        }
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Cancels calls that run and waits for them. Then removes the session's containers, unless the session has a name: that
    /// one lives on, and another connection may be using it.
    pub async fn end(&self) {
        self.process.context.call.cancel.cancel();
        self.calls.close();
        self.calls.wait().await;
        self.process.end_interactive().await;
        // The token of the session has fired, and this work goes on all the same.
        let cx = self.process.context.for_call(CancellationToken::new(), Progress::none());
        if self.is_anonymous() {
            remove_containers(&cx).await;
        }
        operations::release_network(&cx).await;
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

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same session, for as long as its client listens on a stream.
    pub fn listen(&self) -> StreamGuard {
        self.session.listen()
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

async fn remove_containers(cx: &Context) {
    let (_, rooms) = tokio::join!(operations::end_session(cx), session_tools::end(cx));
    if let Err(failure) = rooms {
        tracing::warn!(session = %cx.call.session, "the session left something: {}", failure.message);
    }
}
