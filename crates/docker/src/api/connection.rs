//! A connection of HTTP/1.1 over a unix socket.

use std::io::ErrorKind;

use coracle_engine_program::ANSWER_BYTES;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{ApiFault, ApiResult, ApiSocket};

#[derive(Debug)]
pub(super) struct ApiConnection(SendRequest<Empty<Bytes>>);

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl ApiConnection {
    /// Connects, and sends nothing to a peer that is not trusted.
    pub(super) async fn open(socket: &ApiSocket) -> ApiResult<Self> {
        socket.check_file()?;
        let stream = UnixStream::connect(&socket.path).await.map_err(|err| match err.kind() {
            ErrorKind::NotFound => ApiFault::Missing,
            _ => ApiFault::Refused(err),
        })?;
        socket.check_peer(stream.peer_cred().map_err(ApiFault::Refused)?.uid())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(err) = connection.await {
                tracing::debug!(%err, "a connection to the engine's API ended");
            }
        });
        Ok(Self(sender))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The head of an answer, and its body as it comes.
    pub(super) async fn stream(&mut self, method: Method, path: &str) -> ApiResult<(StatusCode, Incoming)> {
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost").body(Empty::new());
        self.0.ready().await?;
        let response = self.0.send_request(request.map_err(|_| ApiFault::Unencodable)?).await?;
        Ok((response.status(), response.into_body()))
    }

    pub(super) async fn send(&mut self, method: Method, path: &str) -> ApiResult<Response> {
        let (status, mut incoming) = self.stream(method, path).await?;
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if body.len() + data.len() > ANSWER_BYTES {
                return Err(ApiFault::TooLarge);
            }
            body.extend_from_slice(&data);
        }
        Ok(Response { status, body: body.into() })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_to_a_service_of_another_user() {
        let dir = tempfile::tempdir().unwrap();
        let (path, me) = (dir.path().join("s"), rustix::process::geteuid().as_raw());
        let listener = UnixListener::bind(&path).unwrap();
        let stranger = ApiSocket { path, owners: vec![me + 1], needs_storage_proof: false };
        let refused = ApiConnection::open(&stranger).await.unwrap_err();
        assert!(matches!(refused, ApiFault::ForeignOwner(uid) if uid == me), "{refused}");
        assert!(stranger.check_file().is_err());
        let mine = ApiSocket { owners: vec![me], ..stranger };
        let (mut connection, mut peer) = {
            let (connection, accepted) = tokio::join!(ApiConnection::open(&mine), listener.accept());
            (connection.unwrap(), accepted.unwrap().0)
        };
        let (response, sent) = tokio::join!(connection.send(Method::GET, "/a"), async {
            let mut sent = vec![0; 16];
            peer.read_exact(&mut sent).await.unwrap();
            drop(peer);
            String::from_utf8(sent).unwrap()
        });
        assert!(response.is_err() && sent.starts_with("GET /a HTTP/1.1"), "{sent}");
    }
}
