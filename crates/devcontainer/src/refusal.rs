//! Refusals, and errors of parsing a file.

use coracle_types::SandboxWarning;
use coracle_types::failure::{Code, Failure};
use serde::Serialize;

/// A refused property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeniedProperty {
    /// The name of the property.
    pub property: String,
    /// The rule that refuses it.
    pub rule: &'static str,
    /// The setting that the user could change.
    pub setting: Option<&'static str>,
    /// The reason.
    pub message: String,
}

impl DeniedProperty {
    /// A refusal that no setting lifts.
    pub fn new(property: impl Into<String>, rule: &'static str, message: impl Into<String>) -> Self {
        Self { property: property.into(), rule, setting: None, message: message.into() }
    }

    /// Adds the setting that lifts it.
    #[must_use]
    pub fn unless(self, setting: &'static str) -> Self {
        Self { setting: Some(setting), ..self }
    }
}

/// Combines refusals into one failure, with all of them in its details.
#[must_use]
pub fn refused(all: &[DeniedProperty]) -> Failure {
    let messages: Vec<_> =
        all.iter().map(|it| format!("`{}` is not granted ({}): {}", it.property, it.rule, it.message)).collect();
    let failure =
        Failure::new(Code::DevcontainerRefused, format!("The devcontainer.json is refused: {}.", messages.join("; ")));
    let first = all.first();
    failure
        .detail("property", first.map(|it| it.property.clone()))
        .detail("rule", first.map(|it| it.rule))
        .detail("setting", first.and_then(|it| it.setting))
        .detail("problems", serde_json::to_value(all).unwrap_or_default())
}

/// The warning about a property without effect.
pub(crate) fn ignored(message: impl Into<String>) -> SandboxWarning {
    SandboxWarning::new("devcontainer_ignored", message)
}

/// The file cannot be read.
pub(super) fn invalid(at: Option<(usize, usize)>, why: &str) -> Failure {
    let place = at.map_or_else(String::new, |(line, column)| format!(", line {line}, column {column}"));
    let failure =
        Failure::new(Code::DevcontainerInvalid, format!("The devcontainer.json cannot be read{place}: {why}."));
    match at {
        Some((line, column)) => failure.detail("line", line).detail("column", column),
        None => failure,
    }
}
