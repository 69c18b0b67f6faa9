//! The report: what was done, and what was seen to work (containers.md 5.2, 5.3).

use std::time::Duration;

use serde::Serialize;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Done, and the probe held.
    Success,
    /// Not asked for, or nothing to do.
    Skipped,
    /// Some items failed.
    Partial,
    /// Nothing worked, or the probe did not hold.
    Failed,
}

/// One entry of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its name, by which consumers find it.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// One sentence.
    pub detail: String,
    /// What went wrong.
    pub error: Option<String>,
    /// The error's code, where it has one.
    pub code: Option<&'static str>,
    /// What was checked to hold.
    pub probe: Option<&'static str>,
    /// The parts of a step that has several.
    pub items: Vec<Item>,
    /// How long it took.
    pub duration_ms: u64,
}

/// One part of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// What it is: a command, a file, a repository.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What went wrong.
    pub error: Option<String>,
    /// For commands: the words as given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<serde_json::Value>,
    /// For commands: the exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// For commands: the last 4 KiB printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// For commands: it came from a hint of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<bool>,
}

impl Step {
    /// A step that was done and seen to work.
    #[must_use]
    pub fn success(name: &'static str, detail: impl Into<String>, probe: &'static str) -> Self {
        Self { probe: Some(probe), ..Self::new(name, Status::Success, detail.into()) }
    }

    /// A step that was not asked for, or had nothing to do.
    #[must_use]
    pub fn skipped(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Skipped, detail.into())
    }

    /// A step that worked in part or not at all.
    #[must_use]
    pub fn flawed(name: &'static str, status: Status, detail: impl Into<String>, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::new(name, status, detail.into()) }
    }

    /// The same step with the time it took.
    #[must_use]
    pub fn took(mut self, duration: Duration) -> Self {
        self.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self
    }

    fn new(name: &'static str, status: Status, detail: String) -> Self {
        Self { name, status, detail, error: None, code: None, probe: None, items: Vec::new(), duration_ms: 0 }
    }
}

/// All steps, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Report(pub Vec<Step>);

impl Report {
    /// Whether nothing is failed or partial.
    #[must_use]
    pub fn ok(&self) -> bool {
        !self.0.iter().any(|it| matches!(it.status, Status::Failed | Status::Partial))
    }
}
