//! The engine's HTTP API over its unix socket: reads, and changes that may be made twice. Never the only way.
//!
//! Requests are sent only to a server that is root or our own user. After a fault the socket is left alone for a while,
//! and the caller asks the engine's program.

mod connection;
mod error;
mod events;
pub(super) mod paths;
mod socket;
mod storage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tokio::time::Instant;

use self::connection::{ApiConnection, Response};
pub(super) use self::error::{ApiFault, ApiResult};
pub(super) use self::events::EventStream;
pub(super) use self::socket::ApiSocket;
pub(super) use self::storage::StorageProof;

/// Pause after a failure of the socket.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Engines answer this question without any lock.
const PING_WITHIN: Duration = Duration::from_millis(250);

/// Podman answers 500 for a container that is removed at that moment, and 404 a moment later.
const RETRIES: usize = 3;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Idle connections for the next reads.
const MAX_IDLE: usize = 8;

/// Sockets of which this process has reported a fault.
static REPORTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A client of one socket, with connections that stay open.
#[derive(Clone, Debug)]
pub(super) struct ApiClient(Arc<ApiState>);

#[derive(Debug)]
struct ApiState {
    socket: ApiSocket,
    idle: Mutex<Vec<ApiConnection>>,
    paused_until: Mutex<Option<Instant>>,
}

impl ApiClient {
    pub(super) fn new(socket: ApiSocket) -> Self {
        Self(Arc::new(ApiState { socket, idle: Mutex::default(), paused_until: Mutex::default() }))
    }

    pub(super) fn socket(&self) -> &ApiSocket {
        &self.0.socket
    }

    /// Whether the socket may be tried: it did not fail a moment ago.
    pub(super) fn is_usable(&self) -> bool {
        let paused_until = *self.0.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        paused_until.is_none_or(|it| it <= Instant::now())
    }

    /// Logs why the program has to be used, and leaves the socket alone for a while if it is to blame.
    pub(super) fn report(&self, fault: &ApiFault) {
        let socket = self.0.socket.path.display();
        if !fault.is_of_the_socket() {
            tracing::debug!(%socket, "the engine's program is used: {fault}");
            return;
        }
        *self.0.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + RETRY_PAUSE);
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(self.0.socket.path.clone()) {
            tracing::warn!("the engine's API at `{socket}` is not used, its program is used instead: {fault}");
        }
    }

    /// The body of an answer; `None` for what the engine does not have.
    pub(super) async fn get(&self, path: &str) -> ApiResult<Option<Bytes>> {
        let mut response = self.send(Method::GET, path).await?;
        for _ in 0..RETRIES {
            if !response.status.is_server_error() || !is_engine_error(&response.body) {
                break;
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
            response = self.send(Method::GET, path).await?;
        }
        match response.status {
            StatusCode::OK => Ok(Some(response.body)),
            StatusCode::NOT_FOUND if is_engine_error(&response.body) => Ok(None),
            status => Err(ApiFault::Status(status)),
        }
    }

    /// Makes a change that may be made twice. `false` if the engine did not make it.
    pub(super) async fn change(&self, method: Method, path: &str) -> ApiResult<bool> {
        let status = self.send(method, path).await?.status;
        Ok(status.is_success() || status == StatusCode::NOT_MODIFIED)
    }

    /// Events from now on, over a connection of their own.
    pub(super) async fn events(&self, path: &str) -> ApiResult<EventStream> {
        let mut connection = ApiConnection::open(&self.0.socket).await?;
        match connection.stream(Method::GET, path).await? {
            (StatusCode::OK, body) => Ok(EventStream::new(connection, body)),
            (status, _) => Err(ApiFault::Status(status)),
        }
    }

    /// Whether the service answers at all. One that does is slow for the reason that the program is.
    pub(super) async fn is_alive(&self) -> bool {
        let pinged = tokio::time::timeout(PING_WITHIN, self.send(Method::GET, paths::ping())).await;
        matches!(pinged, Ok(Ok(response)) if response.status == StatusCode::OK)
    }

    async fn send(&self, method: Method, path: &str) -> ApiResult<Response> {
        let idle = self.take_idle();
        if let Some(mut connection) = idle
            && let Ok(response) = connection.send(method.clone(), path).await
        {
            self.keep(connection);
            return Ok(response);
        }
        // The engine may have closed an idle connection at that moment, so a new one is tried.
        let mut connection = ApiConnection::open(&self.0.socket).await?;
        let response = connection.send(method, path).await?;
        self.keep(connection);
        Ok(response)
    }

    fn take_idle(&self) -> Option<ApiConnection> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|it| !it.is_closed());
        idle.pop()
    }

    fn keep(&self, connection: ApiConnection) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }
}

/// Both engines explain a 404 of theirs in JSON; a route that does not exist is explained in plain text, or by no engine.
fn is_engine_error(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct EngineError {
        message: String,
    }
    serde_json::from_slice::<EngineError>(body).is_ok_and(|it| it.message != "page not found")
}

#[cfg(test)]
mod tests {
    use super::is_engine_error;

    #[test]
    fn a_missing_object_is_distinguished_from_a_missing_route() {
        for (body, is_object) in [
            (r#"{"message":"No such container: nope"}"#, true),
            (r#"{"cause":"no such container","message":"no container with that name","response":404}"#, true),
            (r#"{"message":"page not found"}"#, false),
            ("Not Found", false),
            ("", false),
        ] {
            assert_eq!(is_engine_error(body.as_bytes()), is_object, "{body}");
        }
    }
}
