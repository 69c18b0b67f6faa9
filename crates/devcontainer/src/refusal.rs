//! What a file asks for and does not get, and what is no file of that kind.

use coracle_types::SandboxWarning;
use coracle_types::failure::{Code, Failure};
use serde::Serialize;

/// Something that is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeniedProperty {
    /// The property that asks for it.
    pub property: String,
    /// The rule that refuses it.
    pub rule: &'static str,
    /// The setting that the person could change.
    pub setting: Option<&'static str>,
    /// Why.
    pub message: String,
}

impl DeniedProperty {
    /// One that no setting lifts.
    pub fn new(property: impl Into<String>, rule: &'static str, message: impl Into<String>) -> Self {
        Self { property: property.into(), rule, setting: None, message: message.into() }
    }

    /// Names the setting that lifts it.
    #[must_use]
    pub fn unless(self, setting: &'static str) -> Self {
        Self { setting: Some(setting), ..self }
    }
}

/// All of them as one failure. Its details name the first one, and hold them all.
#[must_use]
pub fn refused(all: &[DeniedProperty]) -> Failure {
    let told: Vec<_> =
        all.iter().map(|it| format!("`{}` is not granted ({}): {}", it.property, it.rule, it.message)).collect();
    let failure =
        Failure::new(Code::DevcontainerRefused, format!("The devcontainer.json is refused: {}.", told.join("; ")));
    let first = all.first();
    failure
        .detail("property", first.map(|it| it.property.clone()))
        .detail("rule", first.map(|it| it.rule))
        .detail("setting", first.and_then(|it| it.setting))
        .detail("problems", serde_json::to_value(all).unwrap_or_default())
}

/// Something of a file that has no effect here.
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
