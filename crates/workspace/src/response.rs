//! The response of a tool.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Code, Failure, Reason, Replacement};

/// The response of a tool: a message, a value and warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Response<T> {
    /// One line for a model.
    pub message: String,
    /// The result. A failed call may have one, too.
    pub value: Option<T>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// A limit cut the result.
    pub cut: Option<Cut>,
    /// Warnings beside the result.
    pub warnings: Vec<Warning>,
    /// The container that gave it; none if no container was needed.
    pub container: Option<ContainerRef>,
}

/// Results that a limit left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of items.
    pub omitted: u64,
    /// Whether the number is exact, or a lower bound.
    pub exact: bool,
}

/// A warning beside the result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// The code that callers branch on.
    pub code: String,
    /// A sentence.
    pub message: String,
    /// More, by code.
    pub details: Map<String, Value>,
}

/// The container that did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerRef {
    /// The session's name.
    pub session_id: String,
    /// The generation number within its role.
    pub generation: u64,
}

/// The result of a step.
pub(crate) type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

/// A step that failed.
pub(crate) fn fail<T>(code: Code, message: impl Into<String>) -> Result<T> {
    Err(Box::new(Failure::new(code, message)))
}

impl Warning {
    /// A warning without details.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), details: Map::new() }
    }

    /// Reports a replaced container; `volume` is the path of its volume.
    pub(crate) fn recreated(it: &Replacement, volume: &str) -> Self {
        let (code, files) = if it.files_lost {
            ("workspace_files_lost", "its files are gone too".to_owned())
        } else {
            ("workspace_recreated", format!("{volume} is intact"))
        };
        let outside = format!("files outside {volume}");
        let lost = if it.files_lost { "all files" } else { &outside };
        // Sandboxes alone know these two.
        let reason = match it.reason {
            Reason::Restarted | Reason::NotReady => Reason::Crashed.as_str(),
            reason => reason.as_str(),
        };
        let message = match it.reason {
            Reason::Lifetime => LIFETIME.to_owned(),
            _ => format!("The container was replaced ({reason}). Running processes and {lost} are gone; {files}."),
        };
        let mut lost = vec!["processes", "/tmp", &outside];
        let mut left = vec![volume];
        if it.files_lost {
            lost.append(&mut left);
        }
        let details = serde_json::json!({
            "reason": reason,
            "exit_code": it.exit_code,
            "from": it.from,
            "to": it.to,
            "lost": lost,
            "kept": left,
        });
        Self { code: code.to_owned(), message, details: details.as_object().cloned().unwrap_or_default() }
    }
}

const LIFETIME: &str = "The container was replaced (lifetime), and its files went with it. Those that were changed are \
    saved: `coracle saved list` shows them.";

impl<T> Response<T> {
    /// The response of a call that did what was requested.
    pub fn done(message: impl Into<String>, value: T) -> Self {
        Self::new(message.into(), Some(value), None)
    }

    /// The response of a call that failed.
    #[must_use]
    pub fn failed(failure: Failure) -> Self {
        Self::new(failure.message.clone(), None, Some(failure))
    }

    fn new(message: String, value: Option<T>, failure: Option<Failure>) -> Self {
        Self { message, value, failure, cut: None, warnings: Vec::new(), container: None }
    }

    /// Notes the results that a limit left out, if any.
    pub(crate) fn cut(mut self, omitted: u64, exact: bool) -> Self {
        if omitted > 0 || !exact {
            let at_least = if exact { "" } else { "at least " };
            self.message = format!("{} Truncated: {at_least}{omitted} more not shown.", self.message);
            self.cut = Some(Cut { omitted, exact });
        }
        self
    }

    /// Whether it did what was requested.
    #[must_use]
    pub fn success(&self) -> bool {
        self.failure.is_none()
    }
}

impl<T: Serialize> Response<T> {
    /// The envelope of all tools.
    #[must_use]
    pub fn envelope(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("message".into(), self.message.clone().into());
        fields.insert("value".into(), plain(&self.value));
        fields.insert("success".into(), self.success().into());
        fields.insert("exclude_value_from_context".into(), false.into());
        fields.insert("truncated".into(), self.cut.is_some().into());
        fields.insert("omitted".into(), self.cut.map_or(0, |it| it.omitted).into());
        fields.insert("omitted_exact".into(), self.cut.is_none_or(|it| it.exact).into());
        fields.insert("warnings".into(), plain(&self.warnings));
        if let Some(container) = &self.container {
            fields.insert("workspace".into(), plain(container));
        }
        if let Some(failure) = &self.failure {
            fields.insert("error".into(), self.message.clone().into());
            fields.insert("code".into(), plain(failure.code));
            fields.insert("hint".into(), failure.hint.clone().into());
            fields.insert("retryable".into(), failure.retryable.into());
            fields.insert("details".into(), failure.details.clone().into());
        }
        fields
    }
}

/// Coracle's own values, which always serialise.
fn plain(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
