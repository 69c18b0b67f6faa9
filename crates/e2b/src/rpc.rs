//! The Connect protocol with JSON, as its specification describes it: unary calls, and streams of enveloped messages.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use coracle_context::Failure;
use coracle_transport::HttpResponse;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The flag of the last message of a stream.
const END: u8 = 2;

/// Length of the head of an envelope: flags, and the length of the message.
const HEAD: usize = 5;

/// Codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcCode {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl RpcCode {
    fn word(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// An error of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: RpcCode,
    pub(crate) message: String,
}

impl RpcError {
    pub(crate) fn new(code: RpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(RpcCode::InvalidArgument, message)
    }

    fn json(&self) -> Value {
        json!({ "code": self.code.word(), "message": self.message })
    }

    pub(crate) fn response(&self) -> HttpResponse {
        json_response(self.code.status(), &self.json())
    }
}

impl From<Failure> for RpcError {
    fn from(failure: Failure) -> Self {
        use coracle_context::Code;
        let code = match failure.code {
            Code::NotFound | Code::PathNotFound | Code::FileNotFound | Code::DirectoryNotFound | Code::JobNotFound => {
                RpcCode::NotFound
            }
            Code::NameTaken | Code::PathExists | Code::FileExists => RpcCode::AlreadyExists,
            Code::InvalidInput
            | Code::InvalidName
            | Code::InvalidCwd
            | Code::CwdNotFound
            | Code::NotADirectory
            | Code::IsADirectory
            | Code::CwdNotDirectory
            | Code::NotRegular => RpcCode::InvalidArgument,
            Code::UserNotFound => RpcCode::Unauthenticated,
            Code::PolicyDenied | Code::PermissionDenied | Code::RootRefused => RpcCode::PermissionDenied,
            Code::LimitReached | Code::DiskFull | Code::QuotaExceeded => RpcCode::ResourceExhausted,
            Code::NotRunning | Code::ContainerRemoved | Code::EngineUnavailable | Code::GuestLost => {
                RpcCode::Unavailable
            }
            Code::Unsupported | Code::NotSupported => RpcCode::Unimplemented,
            _ => RpcCode::Internal,
        };
        let hint = failure.hint.as_deref().map(|it| format!(" ({it})")).unwrap_or_default();
        Self::new(code, format!("{}{hint}", failure.message))
    }
}

impl From<coracle_types::Error> for RpcError {
    fn from(err: coracle_types::Error) -> Self {
        Failure::from(err).into()
    }
}

pub(crate) fn json_response(status: StatusCode, body: &Value) -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response of a unary procedure.
pub(crate) fn unary(result: Result<Value, impl Into<RpcError>>) -> HttpResponse {
    match result {
        Ok(body) => json_response(StatusCode::OK, &body),
        Err(err) => err.into().response(),
    }
}

/// A message in its envelope.
pub(crate) fn message(body: &Value) -> Bytes {
    envelope(0, body)
}

/// The end of a stream.
pub(crate) fn end(result: Result<(), RpcError>) -> Bytes {
    let body = match result {
        Ok(()) => json!({}),
        Err(err) => json!({ "error": err.json() }),
    };
    envelope(END, &body)
}

fn envelope(flags: u8, body: &Value) -> Bytes {
    let text = body.to_string();
    let mut bytes = Vec::with_capacity(HEAD + text.len());
    bytes.push(flags);
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes.into()
}

/// The messages of a streaming request.
pub(crate) fn messages(body: &[u8]) -> Result<Vec<Value>, RpcError> {
    let (mut rest, mut found) = (body, Vec::new());
    while !rest.is_empty() {
        let (Some(head), Some(tail)) = (rest.get(..HEAD), rest.get(HEAD..)) else {
            return Err(RpcError::invalid("an envelope is cut off"));
        };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(text) = tail.get(..length) else { return Err(RpcError::invalid("a message is cut off")) };
        rest = &tail[length..];
        match head[0] {
            0 => found.push(serde_json::from_slice(text).map_err(|err| RpcError::invalid(err.to_string()))?),
            END => {}
            flags => return Err(RpcError::new(RpcCode::Unimplemented, format!("envelopes with the flags {flags}"))),
        }
    }
    Ok(found)
}

/// The response of a procedure that streams. Its messages arrive by `messages`, the last one from [`end`].
pub(crate) fn stream(messages: mpsc::Receiver<Bytes>) -> HttpResponse {
    let mut response = Response::new(Pieces(messages).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/connect+json"));
    response
}

/// The response of a procedure that would stream, and failed.
pub(crate) fn failed_stream(err: RpcError) -> HttpResponse {
    let (sender, messages) = mpsc::channel(1);
    let _ = sender.try_send(end(Err(err)));
    stream(messages)
}

/// A body whose pieces arrive in a channel.
pub(crate) struct Pieces(pub(crate) mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|it| Ok(Frame::data(it))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_of_their_envelopes_as_they_went_in() {
        let (one, two) = (json!({ "a": 1 }), json!({ "b": "text" }));
        let body = [message(&one), message(&two), end(Ok(()))].concat();
        assert_eq!(messages(&body).unwrap(), [one, two]);
        assert_eq!(messages(b"").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn an_envelope_that_is_cut_off_or_compressed_is_refused() {
        let whole = message(&json!({ "a": 1 }));
        for length in 1..whole.len() {
            assert_eq!(messages(&whole[..length]).unwrap_err().code, RpcCode::InvalidArgument, "{length}");
        }
        assert_eq!(messages(&[1, 0, 0, 0, 0]).unwrap_err().code, RpcCode::Unimplemented);
        assert_eq!(messages(&[0, 0xff, 0xff, 0xff, 0xff]).unwrap_err().code, RpcCode::InvalidArgument);
        assert_eq!(messages(&[0, 0, 0, 0, 1, b'{']).unwrap_err().code, RpcCode::InvalidArgument);
    }

    #[test]
    fn the_end_of_a_stream_has_the_error() {
        let end = end(Err(RpcError::new(RpcCode::NotFound, "no process 7")));
        assert_eq!(end[0], END);
        let body: Value = serde_json::from_slice(&end[HEAD..]).unwrap();
        assert_eq!(body, json!({ "error": { "code": "not_found", "message": "no process 7" } }));
    }
}
