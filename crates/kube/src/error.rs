//! Converts answers of an API server to errors.

use std::error::Error as _;

use coracle_types::{EngineKind, Error, Excerpt};
use kube::core::Status;

const ENGINE: EngineKind = EngineKind::Kubernetes;

/// Converts an error of a request that concerns no single object.
pub(crate) fn api_error(verb: &'static str, err: kube::Error) -> Error {
    match err {
        kube::Error::Api(status) => of_status(verb, &status),
        kube::Error::SerdeError(err) => Error::Unreadable { verb, detail: err.to_string() },
        other => Error::Unavailable { engine: ENGINE, denied: false, excerpt: chain(&other) },
    }
}

/// Kubernetes has one code for everything that is forbidden; only the message distinguishes the reasons.
fn of_status(verb: &'static str, status: &Status) -> Error {
    let excerpt = Excerpt::from_bytes(status.message.as_bytes());
    match status.code {
        401 => Error::Unavailable { engine: ENGINE, denied: true, excerpt },
        403 if status.message.contains("exceeded quota") => Error::QuotaExceeded { engine: ENGINE, excerpt },
        403 if is_missing_right(&status.message) => Error::Forbidden { engine: ENGINE, verb, excerpt },
        403 => Error::AdmissionDenied { engine: ENGINE, excerpt },
        _ if status.message.starts_with("admission webhook") => Error::AdmissionDenied { engine: ENGINE, excerpt },
        500 if status.message.contains("error dialing backend") => {
            Error::NodeLost { node: "unknown".into(), reason: excerpt.to_string() }
        }
        429 | 503 | 504 => Error::Unavailable { engine: ENGINE, denied: false, excerpt },
        code => Error::Engine { verb, exit: i32::from(code), excerpt },
    }
}

/// `pods is forbidden: User "x" cannot create resource "pods" …`
fn is_missing_right(message: &str) -> bool {
    message.contains("cannot ") && (message.contains("User \"") || message.contains("user \""))
}

/// A refusal by Coracle of something that other engines refuse.
pub(crate) fn refusal(verb: &'static str, why: &str) -> Error {
    Error::Engine { verb, exit: 1, excerpt: Excerpt::from_bytes(why.as_bytes()) }
}

/// Whether the object of a request is missing.
pub(crate) fn is_not_found(err: &kube::Error) -> bool {
    matches!(err, kube::Error::Api(status) if status.code == 404)
}

/// Whether an object of that name exists, or was changed meanwhile.
pub(crate) fn is_conflict(err: &kube::Error) -> bool {
    matches!(err, kube::Error::Api(status) if status.code == 409)
}

/// Whether the same request may succeed in a moment.
pub(crate) fn is_transient(err: &kube::Error) -> bool {
    match err {
        kube::Error::Api(status) => {
            matches!(status.code, 429 | 502..=504) || (status.code == 500 && status.reason == "InternalError")
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Formats all causes, since the last one is the most helpful.
fn chain(err: &kube::Error) -> Excerpt {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(it) = cause {
        let more = it.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = it.source();
    }
    Excerpt::from_bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        let status = Status { code, message: message.into(), ..Status::default() };
        api_error("create", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn each_refusal_has_its_own_error() {
        let quota = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
        assert!(matches!(refused(403, quota), Error::QuotaExceeded { .. }));
        let right = "pods is forbidden: User \"me\" cannot create resource \"pods\" in API group \"\"";
        assert!(matches!(refused(403, right), Error::Forbidden { verb: "create", .. }));
        let policy = "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"";
        assert!(matches!(refused(403, policy), Error::AdmissionDenied { .. }));
        let webhook = "admission webhook \"x\" denied the request: no";
        assert!(matches!(refused(400, webhook), Error::AdmissionDenied { .. }));
        let dialing = "error dialing backend: dial tcp 10.0.0.2:10250: connect: connection refused";
        assert!(matches!(refused(500, dialing), Error::NodeLost { .. }));
        assert!(matches!(refused(401, "Unauthorized"), Error::Unavailable { denied: true, .. }));
        assert!(matches!(refused(422, "Pod is invalid"), Error::Engine { exit: 422, .. }));
    }
}
