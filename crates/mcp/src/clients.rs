//! The clients of a server: how they are identified, and when they are considered gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_prepare::Process;
use coracle_transport::{LEAVING, Session, SessionLease, StreamGuard};
use coracle_types::ContainerName;
use futures_util::{Stream, StreamExt as _};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use tokio_util::task::TaskTracker;

tokio::task_local! {
    /// The session that the client of a request names.
    pub(super) static NAMED_SESSION: Option<ContainerName>;
}

/// Maximum number of clients. It is high because some leave without closing their session, which stays until it is idle;
/// their containers have separate limits.
const MOST: usize = 1000;

/// All clients of a server. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Clients(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The process to which all sessions belong.
    process: Process,
    /// The protocol's state of each session: its streams.
    streams: LocalSessionManager,
    sessions: Mutex<HashMap<SessionKey, Session>>,
    /// A client that sends no request and listens on no stream for this long is considered gone.
    idle: Duration,
    /// Running session shutdowns.
    ending: TaskTracker,
}

/// The key of a client's session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SessionKey {
    /// A session of the protocol. A client that names a session has that one under its id, too.
    Protocol(SessionId),
    /// The session of all clients that name it.
    Named(ContainerName),
    /// The session of all clients that name none and have none of the protocol.
    Token,
}

/// Why a request of a client is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// The session has ended, or never existed.
    #[error("no such session")]
    Gone,
    /// There are too many clients, or the server stops.
    #[error("no further session: {MOST} clients are connected, or the server stops")]
    NoRoom,
    #[error(transparent)]
    Protocol(#[from] LocalSessionManagerError),
}

impl Clients {
    pub(super) fn new(process: &Process) -> Self {
        let mut streams = LocalSessionManager::default();
        // Idle clients are detected here because the running calls are known here.
        streams.session_config.keep_alive = None;
        let (sessions, ending) = (Mutex::default(), TaskTracker::new());
        let idle = process.context.config.mcp.idle.0;
        Self(Arc::new(Inner { process: process.clone(), streams, sessions, idle, ending }))
    }

    /// The session of all clients that have no session of the protocol, by the name they give or without one. `None` once
    /// the server stops.
    pub(super) fn without_protocol(&self, name: Option<ContainerName>) -> Option<SessionLease> {
        let key = name.map_or(SessionKey::Token, SessionKey::Named);
        self.held(&key).or_else(|| self.begin(key).ok())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Session>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, key: &SessionKey) -> Option<SessionLease> {
        self.sessions().get(key).map(Session::held)
    }

    fn held_by_id(&self, id: &SessionId) -> Option<SessionLease> {
        self.held(&SessionKey::Protocol(id.clone()))
    }

    fn begin(&self, key: SessionKey) -> Result<SessionLease, SessionError> {
        let session = match &key {
            SessionKey::Named(name) => {
                let process = self.0.process.for_session();
                let context = process.context.in_session(name.clone());
                Session::new(process.with_context(context))
            }
            SessionKey::Protocol(_) | SessionKey::Token => Session::new(self.0.process.for_session()),
        };
        self.begin_as(key, session)
    }

    fn begin_as(&self, key: SessionKey, session: Session) -> Result<SessionLease, SessionError> {
        let mut sessions = self.sessions();
        if sessions.len() >= MOST || self.0.process.context.call.cancel.is_cancelled() {
            return Err(SessionError::NoRoom);
        }
        let held = sessions.entry(key.clone()).or_insert(session).held();
        drop(sessions);
        tokio::spawn(self.clone().watch(key));
        Ok(held)
    }

    /// Ends a session when it has been idle long enough; returns if it was ended otherwise.
    async fn watch(self, key: SessionKey) {
        loop {
            let Some(used) = self.sessions().get(&key).map(Session::used) else { return };
            if used.elapsed() < self.0.idle {
                tokio::time::sleep_until(used + self.0.idle).await;
                continue;
            }
            tracing::info!("a client has sent no request for {} min: its session ends", self.0.idle.as_secs() / 60);
            match &key {
                // The protocol's library calls back to end the session.
                SessionKey::Protocol(id) => drop(self.close_session(id).await),
                SessionKey::Named(_) | SessionKey::Token => self.release(&key),
            }
            return;
        }
    }

    /// Ends a session in the background. A named session remains for its next client.
    fn release(&self, key: &SessionKey) {
        let Some(session) = self.sessions().remove(key) else { return };
        if matches!(key, SessionKey::Protocol(_)) && !session.is_anonymous() {
            return;
        }
        self.0.ending.spawn(async move {
            if tokio::time::timeout(LEAVING, Box::pin(session.end())).await.is_err() {
                tracing::warn!("the containers of a session were not all removed in time");
            }
        });
    }

    /// Ends all sessions and waits for their end. The process's token has fired.
    pub(super) async fn end(&self) {
        let keys: Vec<SessionKey> = self.sessions().keys().cloned().collect();
        for key in &keys {
            self.release(key);
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
        let key = SessionKey::Protocol(id.clone());
        let begun = match NAMED_SESSION.try_with(Clone::clone).ok().flatten() {
            None => self.begin(key),
            Some(name) => match self.without_protocol(Some(name)) {
                Some(named) => self.begin_as(key, named.session().clone()),
                None => Err(SessionError::NoRoom),
            },
        };
        if let Err(refused) = begun {
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
        Ok(self.held_by_id(id).is_some())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.release(&SessionKey::Protocol(id.clone()));
        Ok(self.0.streams.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let held = self.held_by_id(id).ok_or(SessionError::Gone)?;
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
        let listening = self.held_by_id(id).ok_or(SessionError::Gone)?.listen();
        let stream = self.0.streams.create_standalone_stream(id).await?;
        Ok(stream.inspect(move |_| drop_with_stream(&listening)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let listening = self.held_by_id(id).ok_or(SessionError::Gone)?.listen();
        let stream = self.0.streams.resume(id, last_event_id).await?;
        Ok(stream.inspect(move |_| drop_with_stream(&listening)))
    }
}

/// Moves the guard into the closure, so that it is dropped with the stream.
fn drop_with_stream(_: &StreamGuard) {}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use coracle_context::{Frontend, Host, Options};
    use coracle_prepare::Process;
    use coracle_runtime::FakeRuntime;
    use coracle_types::ContainerName;
    use rmcp::transport::streamable_http_server::SessionManager;
    use tokio::time::sleep;

    use super::{Clients, MOST, NAMED_SESSION};

    /// That of the configuration.
    const IDLE: Duration = Duration::from_secs(7200);
    const MOMENT: Duration = Duration::from_secs(1);

    fn process(dir: &Path) -> Process {
        let process = Process::open(Host::below(dir), &Options::default(), Frontend::Call).unwrap();
        process.with_fake(FakeRuntime::new())
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_client_is_removed_but_not_while_its_call_runs() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let (id, _transport) = clients.create_session().await.unwrap();
        let session = clients.held_by_id(&id).unwrap();
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
    async fn a_client_that_listens_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let (id, _transport) = clients.create_session().await.unwrap();
        let held = clients.held_by_id(&id).unwrap();
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
    async fn the_session_of_the_token_ends_when_idle_and_can_start_again() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let name = || clients.without_protocol(None).map(|it| it.process().context.call.session.clone());
        let first = name();
        sleep(IDLE - MOMENT).await;
        assert_eq!(name(), first);
        sleep(IDLE + MOMENT).await;
        let second = name();
        assert!(second.is_some() && second != first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_named_session_outlives_each_of_its_clients() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&process(dir.path()));
        let begun = async |name: Option<&str>| {
            let name = name.map(|name| ContainerName::parse(name).unwrap());
            let (id, _) = NAMED_SESSION.scope(name, clients.create_session()).await.unwrap();
            let context = clients.held_by_id(&id).unwrap().process().context.clone();
            (id, context)
        };
        let ((first, cx), (second, other)) = (begun(Some("agent")).await, begun(None).await);
        assert!(cx.call.session.as_str() == "agent" && !cx.call.is_anonymous && other.call.is_anonymous);
        clients.close_session(&first).await.unwrap();
        clients.close_session(&second).await.unwrap();
        assert!(!cx.call.cancel.is_cancelled() && !clients.has_session(&first).await.unwrap());
        let (third, cx) = begun(Some("agent")).await;
        let without_protocol = clients.without_protocol(Some(cx.call.session.clone())).unwrap();
        assert_eq!(without_protocol.process().context.call.session.as_str(), "agent");
        drop(without_protocol);
        sleep(IDLE + MOMENT).await;
        assert!(cx.call.cancel.is_cancelled() && !clients.has_session(&third).await.unwrap());
        clients.end().await;
    }

    #[tokio::test]
    async fn the_number_of_clients_is_limited_and_a_stopping_server_accepts_none() {
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
        assert!(clients.create_session().await.is_err() && clients.without_protocol(None).is_none());
        clients.end().await;
        assert!(clients.sessions().is_empty());
    }
}
