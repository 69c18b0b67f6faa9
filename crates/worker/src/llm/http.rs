//! A request over plain HTTP to the one allowed address.

use std::time::Duration;

use coracle_types::Secret;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::reply::Reply;
use super::sse::Events;
use crate::ProxyUrl;

/// Maximum size of a reply, in bytes.
const MAX_REPLY: usize = 32 << 20;

/// Maximum size of an error, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// The loopback accepts or refuses a connection at once.
const CONNECT: Duration = Duration::from_secs(10);

/// A request without a reply.
#[derive(Debug)]
pub(super) enum HttpError {
    /// The connection was refused, or closed before the reply began.
    Unanswered(String),
    /// The reply was interrupted.
    Broken(String),
    /// The reply is not valid.
    Status { status: u16, retry_after: Option<Duration>, body: Vec<u8> },
}

/// Sends one request.
pub(super) async fn post(
    url: &ProxyUrl,
    token: Option<&Secret>,
    body: Vec<u8>,
    silence: Duration,
) -> Result<Reply, HttpError> {
    let unanswered = |err: &dyn std::fmt::Display| HttpError::Unanswered(err.to_string());
    let stream = timeout(CONNECT, TcpStream::connect(url.at)).await.map_err(|err| unanswered(&err))?;
    let stream = TokioIo::new(stream.map_err(|err| unanswered(&err))?);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.map_err(|err| unanswered(&err))?;
    // Closed with this request: a connection in an unknown state must not be reused.
    let connection = AbortOnDrop(tokio::spawn(connection));
    let request = request(url, token, body).map_err(|err| unanswered(&err))?;
    let response = timeout(silence, sender.send_request(request)).await;
    let response =
        response.map_err(|_| HttpError::Unanswered("no reply arrived".into()))?.map_err(|err| unanswered(&err))?;
    let reply = read(response, silence).await;
    drop(connection);
    reply
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn request(url: &ProxyUrl, token: Option<&Secret>, body: Vec<u8>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}/chat/completions", url.path))
        .header(HOST, url.at.to_string())
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "text/event-stream, application/json");
    if let Some(token) = token {
        let mut value = HeaderValue::from_bytes(token.reveal())?;
        value.set_sensitive(true);
        request = request.header("x-coracle-token", value);
    }
    request.body(Full::new(body.into()))
}

async fn read(response: Response<Incoming>, silence: Duration) -> Result<Reply, HttpError> {
    let status = response.status().as_u16();
    let header = |name| response.headers().get(name).and_then(|it: &HeaderValue| it.to_str().ok());
    let retry_after = header(RETRY_AFTER).and_then(|it| it.trim().parse().ok()).map(Duration::from_secs);
    let is_stream = header(CONTENT_TYPE).is_some_and(|it| it.starts_with("text/event-stream"));
    let mut body = response.into_body();
    if status != 200 {
        // Enough for the error message. An interrupted reply is still an error.
        let mut bytes = Vec::new();
        while let Ok(Some(piece)) = piece(&mut body, silence).await
            && bytes.len() < MAX_ERROR
        {
            bytes.extend_from_slice(&piece);
        }
        return Err(HttpError::Status { status, retry_after, body: bytes });
    }
    if is_stream { streamed(&mut body, silence).await } else { whole(&mut body, silence).await }
}

async fn streamed(body: &mut Incoming, silence: Duration) -> Result<Reply, HttpError> {
    let (mut reply, mut events, mut read) = (Reply::default(), Events::default(), 0);
    while let Some(piece) = piece(body, silence).await? {
        read += piece.len();
        let events = events.push(&piece).ok().filter(|_| read <= MAX_REPLY);
        for event in events.ok_or_else(|| HttpError::Broken("the reply is too long".into()))? {
            if event == "[DONE]" {
                return Ok(reply);
            }
            let part: Value = serde_json::from_str(&event).map_err(|err| HttpError::Broken(err.to_string()))?;
            reply.take(&part).map_err(HttpError::Broken)?;
        }
    }
    // Some providers send the reason of the end, and no end marker.
    if reply.finish.is_some() {
        Ok(reply)
    } else {
        Err(HttpError::Broken("the stream ended before the reply was complete".into()))
    }
}

async fn whole(body: &mut Incoming, silence: Duration) -> Result<Reply, HttpError> {
    let mut bytes = Vec::new();
    while let Some(piece) = piece(body, silence).await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_REPLY {
            return Err(HttpError::Broken("the reply is too long".into()));
        }
    }
    let mut reply = Reply::default();
    let value: Value = serde_json::from_slice(&bytes).map_err(|err| HttpError::Broken(err.to_string()))?;
    reply.take(&value).map_err(HttpError::Broken)?;
    Ok(reply)
}

async fn piece(body: &mut Incoming, silence: Duration) -> Result<Option<Bytes>, HttpError> {
    loop {
        let frame = timeout(silence, body.frame()).await.map_err(|_| HttpError::Broken("the reply stalled".into()))?;
        match frame {
            None => return Ok(None),
            Some(Err(err)) => return Err(HttpError::Broken(err.to_string())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
