//! A snippet that was checked.

use std::time::Duration;

use crate::response::{Result, fail};
use crate::{Code, Language, Mode};

/// Between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A snippet that may run.
#[derive(Debug)]
pub(super) struct Snippet {
    pub(super) code: String,
    pub(super) language: Language,
    pub(super) timeout: Duration,
    pub(super) stdin: Option<String>,
    /// Its variables are retained.
    pub(super) is_persistent: bool,
    /// It begins without those of earlier calls.
    pub(super) restart: bool,
}

impl Snippet {
    /// Python in a container retains variables.
    pub(super) fn check_persistent(&self, mode: &Mode) -> Result<()> {
        match self.is_persistent {
            false if self.restart => fail(Code::NotSupported, "`restart` needs `persistent`."),
            true if self.language != Language::Python => {
                fail(Code::NotSupported, "Only Python keeps its variables: `persistent` needs `language` `python`.")
            }
            true if self.stdin.is_some() => {
                fail(Code::NotSupported, "`stdin` does not go with `persistent`; put the text into the code.")
            }
            true if *mode != Mode::Container => {
                fail(Code::NotSupported, "A program of the host keeps no variables: `persistent` needs a container.")
            }
            _ => Ok(()),
        }
    }
}
