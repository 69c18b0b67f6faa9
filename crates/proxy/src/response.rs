//! Responses of the proxy itself, and the body type of all responses.

use std::convert::Infallible;

use futures_util::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::json;

/// Why a body was cut off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response, complete or streamed.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why the proxy refuses a request, in the order of its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    Token,
    Profile,
    Model,
    Route,
    GitHost,
    GitRepo,
    GitLogin,
    Push(&'static str),
    Unprovided,
    NotFound,
    Length,
    Request(&'static str),
    TooLarge,
    /// Seconds until a request is allowed again.
    Rate(u64),
    Budget,
    NoKey,
    Unreachable,
    Failed,
    Late,
}

impl Rejection {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Token => "token_invalid",
            Self::Profile => "profile_mismatch",
            Self::Model => "model_not_allowed",
            Self::Route => "route_not_allowed",
            Self::GitHost => "git_host_not_allowed",
            Self::GitRepo => "git_repo_not_allowed",
            Self::GitLogin => "git_unauthorized",
            Self::Push(_) => "push_refused",
            Self::Unprovided => "profile_unknown",
            Self::NotFound => "not_found",
            Self::Length => "bad_content_length",
            Self::Request(_) => "bad_request",
            Self::TooLarge => "body_too_large",
            Self::Rate(_) => "rate_limited",
            Self::Budget => "budget_exhausted",
            Self::NoKey => "key_missing",
            Self::Unreachable => "provider_unavailable",
            Self::Failed => "provider_failed",
            Self::Late => "provider_timeout",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            // Clients do not retry after this status.
            Self::Token | Self::NoKey => StatusCode::UNAUTHORIZED,
            Self::Profile
            | Self::Model
            | Self::Route
            | Self::GitHost
            | Self::GitRepo
            | Self::GitLogin
            | Self::Push(_) => StatusCode::FORBIDDEN,
            Self::Unprovided | Self::NotFound => StatusCode::NOT_FOUND,
            Self::Length | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Rate(_) | Self::Budget => StatusCode::TOO_MANY_REQUESTS,
            Self::Unreachable | Self::Failed => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Returns a message that reveals nothing of the network behind the proxy.
    fn message(self) -> &'static str {
        match self {
            Self::Token => "The token is missing, wrong or revoked, or not for this.",
            Self::Profile => "The token belongs to another profile.",
            Self::Model => "This model is not allowed here.",
            Self::Route => "This route is not allowed here.",
            Self::GitHost => "This git host is not allowed here.",
            Self::GitRepo => "This repository is not allowed here.",
            Self::GitLogin => "The git host does not accept the credential, or needs one that there is not.",
            Self::Push(why) | Self::Request(why) => why,
            Self::Unprovided => "The profile has no provider of models.",
            Self::NotFound => "There is nothing here.",
            Self::Length => "The body does not have its declared length.",
            Self::TooLarge => "The body is too large.",
            Self::Rate(_) => "Too many requests in a minute.",
            Self::Budget => "The budget of this sandbox is used up (`sandbox.profiles.NAME.budget_tokens`).",
            Self::NoKey => "This host has no key for the provider of models.",
            Self::Unreachable => "The provider cannot be reached.",
            Self::Failed => "The provider did not answer as it should.",
            Self::Late => "The provider did not answer in time.",
        }
    }

    pub(crate) fn answer(self) -> Response<Body> {
        let error = json!({ "message": self.message(), "type": "coracle_proxy", "code": self.code() });
        let mut answer = json_answer(self.status(), &json!({ "error": error }));
        if let Self::Rate(seconds) = self {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }

    /// Returns the whole response as bytes, for a connection that does not speak HTTP yet.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let error = json!({ "message": self.message(), "type": "coracle_proxy", "code": self.code() });
        bytes(self.status(), &json!({ "error": error }))
    }
}

pub(crate) fn json_answer(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let mut answer = Response::new(whole(value.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn bytes(status: StatusCode, value: &serde_json::Value) -> Vec<u8> {
    let body = value.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// Creates a complete body.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Creates a streamed body.
pub(crate) fn streamed(pieces: impl futures_util::Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Body {
    http_body_util::StreamBody::new(pieces.map(|it| it.map(hyper::body::Frame::data))).boxed_unsync()
}
