//! Injected faults.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::status::Refusal;

/// A fault for matching requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429 with `Retry-After` in seconds.
    TooManyRequests(u32),
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
    /// Delays the answer.
    Slow(Duration),
    /// A refusal by an admission webhook, with its message.
    Webhook(String),
    /// The stream of an exec or an attach is cut after so many bytes of output, without a status.
    CutStream(usize),
}

/// A fault, and which requests meet it.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Method of the requests; all if empty.
    pub method: String,
    /// Part of their path and query; all if empty.
    pub path: String,
    /// The number of requests that meet it.
    pub times: usize,
}

impl FaultRule {
    /// A fault for the next request of that method whose path contains the text.
    #[must_use]
    pub fn once(fault: Fault, method: &str, path: &str) -> Self {
        Self { fault, method: method.to_owned(), path: path.to_owned(), times: 1 }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<FaultRule>>);

impl Faults {
    pub(crate) fn add(&self, rule: FaultRule) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The faults of a request, each counted.
    pub(crate) fn meet(&self, method: &str, uri: &str) -> Vec<Fault> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut met = Vec::new();
        for rule in rules.iter_mut().filter(|it| it.times > 0) {
            if (rule.method.is_empty() || rule.method == method) && uri.contains(&rule.path) {
                rule.times -= 1;
                met.push(rule.fault.clone());
            }
        }
        rules.retain(|it| it.times > 0);
        met
    }
}

impl Fault {
    /// The refusal that a fault is.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::TooManyRequests(seconds) => Some(Refusal::too_many_requests(*seconds)),
            Self::InternalError => Some(Refusal::internal("etcdserver: request timed out")),
            Self::Unavailable => {
                let message = "the server is currently unable to handle the request";
                Some(Refusal::new(503, "ServiceUnavailable", message))
            }
            Self::Webhook(message) => {
                let denied = format!("admission webhook \"rules.example.com\" denied the request: {message}");
                Some(Refusal::new(403, "Forbidden", denied))
            }
            Self::Slow(_) | Self::CutStream(_) => None,
        }
    }
}
