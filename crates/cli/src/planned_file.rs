//! A file of the user that is shown before it is written.
//!
//! **Invariant:** nothing is written without a yes.

use coracle_context::planned_file::PlannedFile;
use coracle_context::{Code, Failure, Host};

use super::consent;
use crate::render;

/// The user's answers.
#[derive(Clone, Copy)]
pub(super) struct FileConsent<'a> {
    pub(super) host: &'a Host,
    /// Only print it.
    pub(super) print: bool,
    /// Do not ask.
    pub(super) yes: bool,
    /// The hint without a terminal.
    pub(super) hint: &'static str,
}

impl FileConsent<'_> {
    /// Shows a file, asks, and writes it. Returns whether it was written.
    pub(super) fn put(self, what: &str, file: &PlannedFile<'_>) -> Result<bool, Failure> {
        render::note(&format!("{}: {what}", file.path.display()));
        render::print(&file.diff());
        if self.print {
            return Ok(false);
        }
        if !self.yes && !self.host.stdin_is_terminal {
            return Err(Failure::new(Code::ConfirmRequired, "there is no terminal to confirm it").hint(self.hint));
        }
        if !self.yes && !consent::is_confirmed("Write it? [y/N] ") {
            render::note("not written");
            return Ok(false);
        }
        let backup = file.write()?;
        let backup = backup.map(|it| format!("; before it was: {}", it.display())).unwrap_or_default();
        render::note(&format!("wrote {}{backup}", file.path.display()));
        Ok(true)
    }
}
