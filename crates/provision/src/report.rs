//! The report: what was done, and what was verified.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Done, and verified by the probe.
    Success,
    /// Not requested, or nothing to do.
    Skipped,
    /// Some items failed.
    Partial,
    /// All items failed, or the probe did.
    Failed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Skipped => "skipped",
            Self::Partial => "partial",
            Self::Failed => "failed",
        })
    }
}

/// One entry of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its name, by which consumers find it.
    pub name: Cow<'static, str>,
    /// How it ended.
    pub status: Status,
    /// One sentence.
    pub detail: String,
    /// What failed.
    pub error: Option<String>,
    /// The error's code, if it has one.
    pub code: Option<Cow<'static, str>>,
    /// What was verified.
    pub probe: Option<Cow<'static, str>>,
    /// The items of a step that has several.
    #[serde(default)]
    pub items: Vec<ReportItem>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
}

/// One item of a step: a command, a file, a repository.
///
/// Fields that only items of one kind have are in `about`, which is flattened in an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportItem {
    /// What it is.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// The error's code, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// The error's code, where it has one.
    pub code: Option<Cow<'static, str>>,
    /// What failed.
    pub error: Option<String>,
    /// Fields of its kind: `command`, `exit_code`, `output`, `hint` and `instead_of` of a command; `path`, `commit` and
    /// `install` of a repository.
    #[serde(flatten)]
    pub about: BTreeMap<Cow<'static, str>, Value>,
}

impl ReportItem {
    /// An item that was done and verified.
    #[must_use]
    pub fn success(name: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Success, code: None, error: None, about: BTreeMap::new() }
    }

    /// An item with nothing to do.
    #[must_use]
    pub fn skipped(name: impl Into<String>) -> Self {
        Self { status: Status::Skipped, ..Self::success(name) }
    }

    /// An item that failed.
    #[must_use]
    pub fn failed(name: impl Into<String>, error: impl Into<String>) -> Self {
        Self { status: Status::Failed, error: Some(error.into()), ..Self::success(name) }
    }

    /// Adds a field of its kind.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.about.insert(field.into(), value.into());
        self
    }

    /// Adds the code of its error.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code.into());
        self
    }
}

impl StepReport {
    /// A step that was done and verified.
    #[must_use]
    pub fn success(
        name: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
        probe: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { probe: Some(probe.into()), ..Self::new(name, Status::Success, detail.into()) }
    }

    /// A step that was not requested, or had nothing to do.
    #[must_use]
    pub fn skipped(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Skipped, detail.into())
    }

    /// A step that failed, completely or in part.
    #[must_use]
    pub fn flawed(
        name: impl Into<Cow<'static, str>>,
        status: Status,
        detail: impl Into<String>,
        error: impl Into<String>,
    ) -> Self {
        Self { error: Some(error.into()), ..Self::new(name, status, detail.into()) }
    }

    /// A step of several items: `success` if all succeeded, `failed` if none did, else `partial`. Reports the first
    /// error.
    #[must_use]
    pub fn of_items(
        name: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
        probe: impl Into<Cow<'static, str>>,
        items: Vec<ReportItem>,
    ) -> Self {
        let failed = items.iter().filter(|it| it.status == Status::Failed).count();
        let first = items.iter().find_map(|it| Some(format!("`{}`: {}", it.name, it.error.as_ref()?)));
        let mut step = match first {
            None => Self::success(name, detail, probe),
            Some(error) if failed < items.len() => Self::flawed(name, Status::Partial, detail, error),
            Some(error) => Self::flawed(name, Status::Failed, detail, error),
        };
        step.items = items;
        step
    }

    /// Adds an item before the others.
    #[must_use]
    pub fn with_first(self, item: ReportItem) -> Self {
        let items = [item].into_iter().chain(self.items).collect();
        Self { items, ..self }.with_updated_status()
    }

    /// Merges this step with a later one of the same kind.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let items = self.items.into_iter().chain(later.items).collect();
        let duration_ms = self.duration_ms + later.duration_ms;
        let probe = self.probe.or(later.probe);
        Self { items, duration_ms, probe, ..self }.with_updated_status()
    }

    /// Updates status, count and first error from its items.
    fn with_updated_status(self) -> Self {
        let good = self.items.iter().filter(|it| it.error.is_none()).count();
        let what = self.detail.split_once(' ').filter(|it| it.0.contains('/')).map_or("parts succeeded", |it| it.1);
        let detail = format!("{good}/{} {what}", self.items.len());
        let step =
            Self::of_items(self.name, detail, self.probe.unwrap_or(Cow::Borrowed("each was seen to work")), self.items);
        step.with_duration(Duration::from_millis(self.duration_ms))
    }

    /// Adds the code of its error.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds its duration.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self
    }

    fn new(name: impl Into<Cow<'static, str>>, status: Status, detail: String) -> Self {
        Self {
            name: name.into(),
            status,
            detail,
            error: None,
            code: None,
            probe: None,
            items: Vec::new(),
            duration_ms: 0,
        }
    }
}

/// All steps, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report(pub Vec<StepReport>);

impl Report {
    /// Whether no step is failed or partial.
    #[must_use]
    pub fn ok(&self) -> bool {
        !self.0.iter().any(|it| matches!(it.status, Status::Failed | Status::Partial))
    }
}
