//! Why an item of a step failed.

use std::fmt;

use coracle_protocol::ErrorCode;
use coracle_types::Error;

use crate::ReportItem;

/// A reason for the report. The container is usable all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepError {
    /// An error code, as in the reference.
    pub(crate) code: Option<&'static str>,
    pub(crate) error: String,
}

impl StepError {
    pub(crate) fn new(code: &'static str, error: impl Into<String>) -> Self {
        Self { code: Some(code), error: error.into() }
    }

    /// A reason without a code.
    pub(crate) fn plain(error: impl Into<String>) -> Self {
        Self { code: None, error: error.into() }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new("cancelled", "the call was cancelled")
    }

    pub(crate) fn no_time() -> Self {
        Self::plain("no time was left for it")
    }

    /// Builds an item that failed for this reason.
    pub(crate) fn into_item(self, name: impl Into<String>) -> ReportItem {
        let item = ReportItem::failed(name, self.error);
        ReportItem { code: self.code.map(Into::into), ..item }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl From<Error> for StepError {
    fn from(err: Error) -> Self {
        let code = match &err {
            Error::Refused(fault) => of_fault(fault.code),
            Error::NoSuchPath(_) => Some("path_not_found"),
            Error::NoShell => Some("no_shell"),
            Error::NotRunning { .. } => Some("not_running"),
            Error::GuestLost { .. } => Some("guest_lost"),
            Error::FilesRemoved { .. } => Some("files_removed"),
            Error::Unsupported { .. } => Some("unsupported"),
            _ => None,
        };
        Self { code, error: err.to_string() }
    }
}

fn of_fault(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::Invalid | ErrorCode::TooLong => Some("invalid_input"),
        ErrorCode::NotFound | ErrorCode::NoDirectory | ErrorCode::NoProgram => Some("path_not_found"),
        ErrorCode::Exists | ErrorCode::WrongKind => Some("path_exists"),
        ErrorCode::NoShell => Some("no_shell"),
        _ => None,
    }
}
