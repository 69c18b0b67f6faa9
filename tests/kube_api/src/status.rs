//! Failures as `Status` objects of the API.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use serde_json::{Value, json};

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    details: Value,
    retry_after: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}), retry_after: None }
    }

    pub(crate) fn not_found(plural: &str, name: &str) -> Self {
        Self {
            details: json!({ "name": name, "kind": plural }),
            ..Self::new(404, "NotFound", format!("{plural} \"{name}\" not found"))
        }
    }

    pub(crate) fn already_exists(plural: &str, name: &str) -> Self {
        Self {
            details: json!({ "name": name, "kind": plural }),
            ..Self::new(409, "AlreadyExists", format!("{plural} \"{name}\" already exists"))
        }
    }

    pub(crate) fn conflict(plural: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {plural} \"{name}\": {why}");
        Self { details: json!({ "name": name, "kind": plural }), ..Self::new(409, "Conflict", message) }
    }

    /// A refusal by admission: a quota, a service account, a webhook, a rule of the cluster.
    pub(crate) fn forbidden(plural: &str, name: &str, why: &str) -> Self {
        let message = format!("{plural} \"{name}\" is forbidden: {why}");
        Self { details: json!({ "name": name, "kind": plural }), ..Self::new(403, "Forbidden", message) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The failure of a list or watch that continues from a dropped version.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!({ "causes": [{ "message": message }] });
        Self { details, ..Self::new(500, "InternalError", format!("Internal error occurred: {message}")) }
    }

    /// As the server answers when it has too much to do.
    pub(crate) fn too_many_requests(seconds: u32) -> Self {
        let message = "Too many requests, please try again later.";
        Self {
            details: json!({ "retryAfterSeconds": seconds }),
            retry_after: Some(seconds),
            ..Self::new(429, "TooManyRequests", message)
        }
    }

    /// An object that does not keep the rules of its kind.
    pub(crate) fn invalid(kind: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<String> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<Value> = causes
            .iter()
            .map(|it| json!({ "reason": "FieldValueInvalid", "message": it.message, "field": it.field }))
            .collect();
        Self {
            details: json!({ "name": name, "kind": kind, "causes": causes }),
            ..Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {list}"))
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": self.details, "code": self.code,
        })
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = json_response(self.code, &self.to_json());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A field that is wrong, and how.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) message: String,
}

pub(crate) fn json_response(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
