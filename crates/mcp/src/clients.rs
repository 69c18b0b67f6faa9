//! The clients of a server: who they are, and when they are gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle::Process;
use coracle_transport::{LEAVING, Session, SessionLease, StreamGuard};
use futures_util::{Stream, StreamExt as _};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use tokio_util::task::TaskTracker;

/// A client that sends no request and listens on no stream for so long is gone.
const IDLE: Duration = Duration::from_secs(900);

/// Clients at once. Many, since some go without a word and stay until they are idle; their containers have limits of
/// their own.
const MOST: usize = 1000;

/// All clients of a server. Clones are the same ones.
#[derive(Clone, Debug)]
pub(super) struct Clients(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The process, of which each session is one.
    process: Process,
    /// What the protocol needs for a session: its streams.
    streams: LocalSessionManager,
    /// Those of the protocol by their id; those without one share the session of the token.
    sessions: Mutex<HashMap<Option<SessionId>, Session>>,
    /// Ends of sessions that are under way.
    ending: TaskTracker,
}

/// Why a request of a client is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// It was ended, or never was.
    #[error("no such session")]
    Gone,
    /// There are too many, or the server stops.
    #[error("no further session: {MOST} clients are connected, or the server stops")]
    NoRoom,
    #[error(transparent)]
    Protocol(#[from] LocalSessionManagerError),
}

impl Clients {
    pub(super) fn new(process: &Process) -> Self {
        let mut streams = LocalSessionManager::default();
        // Idle clients are noticed here, where it is known which calls run.
        streams.session_config.keep_alive = None;
        let (sessions, ending) = (Mutex::default(), TaskTracker::new());
        Self(Arc::new(Inner { process: process.clone(), streams, sessions, ending }))
    }

    /// The session of all clients that know the token and have no session of the protocol. `None` once the server stops.
    pub(super) fn of_the_token(&self) -> Option<SessionLease> {
        self.held(&None).or_else(|| self.begin(None).ok())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Option<SessionId>, Session>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, id: &Option<SessionId>) -> Option<SessionLease> {
        self.sessions().get(id).map(Session::held)
    }

    fn begin(&self, id: Option<SessionId>) -> Result<SessionLease, SessionError> {
        let mut sessions = self.sessions();
        if sessions.len() >= MOST || self.0.process.context.call.cancel.is_cancelled() {
            return Err(SessionError::NoRoom);
        }
        let session = sessions.entry(id.clone()).or_insert_with(|| Session::new(self.0.process.for_session()));
        let held = session.held();
        drop(sessions);
        tokio::spawn(self.clone().watch(id));
        Ok(held)
    }

    /// Ends a session that is not used, or returns when it was ended otherwise.
    async fn watch(self, id: Option<SessionId>) {
        loop {
            let Some(used) = self.sessions().get(&id).map(Session::used) else { return };
            if used.elapsed() < IDLE {
                tokio::time::sleep_until(used + IDLE).await;
                continue;
            }
            tracing::info!("a client has asked nothing for {} min: its session ends", IDLE.as_secs() / 60);
            match &id {
                // It comes back to us to have the session ended.
                Some(id) => drop(self.close_session(id).await),
                None => self.release(&None),
            }
            return;
        }
    }

    /// Lets a session end in its own time.
    fn release(&self, id: &Option<SessionId>) {
        let Some(session) = self.sessions().remove(id) else { return };
        self.0.ending.spawn(async move {
            if tokio::time::timeout(LEAVING, Box::pin(session.end())).await.is_err() {
                tracing::warn!("the containers of a session were not all removed in time");
            }
        });
    }

    /// Ends all sessions, and waits until they have ended. The process's token has fired.
    pub(super) async fn end(&self) {
        let ids: Vec<Option<SessionId>> = self.sessions().keys().cloned().collect();
        for id in &ids {
            self.release(id);
        }
        self.0.ending.close();
        self.0.ending.wait().await;
    }
}

impl SessionManager for Clients {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let (id, transport) = self.0.streams.create_session().await?;
        if let Err(refused) = self.begin(Some(id.clone())) {
            self.0.streams.close_session(&id).await?;
            return Err(refused);
        }
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.0.streams.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.held(&Some(id.clone())).is_some())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.release(&Some(id.clone()));
        Ok(self.0.streams.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let held = self.held(&Some(id.clone())).ok_or(SessionError::Gone)?;
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(held);
        }
        Ok(self.0.streams.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        Ok(self.0.streams.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let listening = self.held(&Some(id.clone())).ok_or(SessionError::Gone)?.listen();
        let stream = self.0.streams.create_standalone_stream(id).await?;
        Ok(stream.inspect(move |_| drop_with_stream(&listening)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let listening = self.held(&Some(id.clone())).ok_or(SessionError::Gone)?.listen();
        let stream = self.0.streams.resume(id, last_event_id).await?;
        Ok(stream.inspect(move |_| drop_with_stream(&listening)))
    }
}

/// What a closure refers to goes with it, and the closure with its stream.
fn drop_with_stream(_: &StreamGuard) {}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use coracle::{Frontend, Host, Options, Process};
    use coracle_runtime::FakeRuntime;
    use rmcp::transport::streamable_http_server::SessionManager;
    use tokio::time::sleep;

    use super::{Clients, IDLE, MOST};

    const MOMENT: Duration = Duration::from_secs(1);

    fn process(dir: &Path) -> Process {
        let process = Process::open(Host::below(dir), &Options::default(), Frontend::Call).unwrap();
        process.with_fake(FakeRuntime::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_nothing_is_gone_and_none_whose_call_runs() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let (id, _transport) = clients.create_session().await.unwrap();
        let session = clients.held(&Some(id.clone())).unwrap();
        let cancel = session.process().context.call.cancel.clone();
        session.spawn(sleep(IDLE * 3 - MOMENT));
        drop(session);
        sleep(IDLE * 4 - MOMENT * 3).await;
        assert!(clients.has_session(&id).await.unwrap(), "a request, in the last moment after the call's end");
        sleep(IDLE - MOMENT).await;
        assert!(!cancel.is_cancelled());
        sleep(MOMENT * 2).await;
        assert!(cancel.is_cancelled() && !clients.has_session(&id).await.unwrap());
        clients.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_listens_stays() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let (id, _transport) = clients.create_session().await.unwrap();
        let held = clients.held(&Some(id.clone())).unwrap();
        let (cancel, listening) = (held.process().context.call.cancel.clone(), held.listen());
        drop(held);
        sleep(IDLE * 5).await;
        assert!(!cancel.is_cancelled());
        drop(listening);
        sleep(IDLE + MOMENT).await;
        assert!(cancel.is_cancelled());
        clients.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_of_the_token_ends_too_and_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let name = || clients.of_the_token().map(|it| it.process().context.call.session.clone());
        let first = name();
        sleep(IDLE - MOMENT).await;
        assert_eq!(name(), first);
        sleep(IDLE + MOMENT).await;
        let second = name();
        assert!(second.is_some() && second != first);
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_and_for_none_once_the_server_stops() {
        let dir = tempfile::tempdir().unwrap();
        let process = process(dir.path());
        let clients = Clients::new(&process);
        let mut transports = Vec::new();
        for _ in 0..MOST {
            transports.push(clients.create_session().await.unwrap());
        }
        assert!(clients.create_session().await.is_err());
        clients.close_session(&transports[0].0).await.unwrap();
        assert!(clients.create_session().await.is_ok());
        process.context.call.cancel.cancel();
        clients.close_session(&transports[1].0).await.unwrap();
        assert!(clients.create_session().await.is_err() && clients.of_the_token().is_none());
        clients.end().await;
        assert!(clients.sessions().is_empty());
    }
}
