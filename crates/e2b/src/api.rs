//! Errors and answers of the REST interfaces.

use coracle_context::{Code, Failure};
use coracle_transport::HttpResponse;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::rpc::json_response;

/// An error as SDKs read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{what} was not found"))
    }

    pub(crate) fn response(&self) -> HttpResponse {
        json_response(self.status, &json!({ "code": self.status.as_u16(), "message": self.message }))
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            Code::NotFound | Code::FileNotFound | Code::PathNotFound | Code::ImageNotFound => StatusCode::NOT_FOUND,
            Code::InvalidInput | Code::InvalidName | Code::IsADirectory | Code::NotRegular | Code::NotADirectory => {
                StatusCode::BAD_REQUEST
            }
            Code::UserNotFound => StatusCode::UNAUTHORIZED,
            Code::PolicyDenied | Code::PermissionDenied | Code::RootRefused => StatusCode::FORBIDDEN,
            Code::NameTaken | Code::InUse | Code::Busy => StatusCode::CONFLICT,
            Code::LimitReached | Code::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Code::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            // As a gateway answers whose sandbox is gone.
            Code::NotRunning | Code::ContainerRemoved | Code::GuestLost => StatusCode::BAD_GATEWAY,
            Code::EngineUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Unsupported | Code::NotSupported => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let hint = failure.hint.as_deref().map(|it| format!(" ({it})")).unwrap_or_default();
        Self::new(status, format!("{}{hint}", failure.message))
    }
}

impl From<coracle_types::Error> for ApiError {
    fn from(err: coracle_types::Error) -> Self {
        Failure::from(err).into()
    }
}

/// A result without a body.
pub(crate) fn no_content() -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The fields of a request. An empty body is an empty object.
pub(crate) fn fields<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let text: &[u8] = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(text).map_err(|err| ApiError::bad_request(err.to_string()))
}

/// The decoded pairs of a query.
pub(crate) fn query(text: Option<&str>) -> Vec<(String, String)> {
    let pairs = text.unwrap_or_default().split('&').filter(|it| !it.is_empty());
    let pair = |it: &str| {
        let (name, value) = it.split_once('=').unwrap_or((it, ""));
        (decoded(name), decoded(value))
    };
    pairs.map(pair).collect()
}

/// Decodes `%41` and `+`. What is no UTF-8 becomes U+FFFD.
pub(crate) fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The first value of a name.
pub(crate) fn value<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
}

/// An answer with a body.
pub(crate) fn answer(status: StatusCode, body: &Value) -> HttpResponse {
    json_response(status, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let pairs = query(Some("path=%2Fhome%2Fa+b%20c&username=root&empty&bad=%zz%4"));
        assert_eq!(value(&pairs, "path"), Some("/home/a b c"));
        assert_eq!(value(&pairs, "username"), Some("root"));
        assert_eq!(value(&pairs, "empty"), Some(""));
        assert_eq!(value(&pairs, "bad"), Some("%zz%4"));
        assert_eq!(value(&pairs, "other"), None);
        assert!(query(None).is_empty());
    }
}
