//! Names of sandboxes' profiles and of workflows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};

/// The name of a sandbox's settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName(String);

/// The id of a task with its own branch and directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkflowId(String);

impl ProfileName {
    /// # Errors
    /// `invalid_profile`.
    pub fn parse(text: impl Into<String>) -> Result<Self, Failure> {
        let text = text.into();
        let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if starts_plain(&text) && text.len() <= 32 && text.bytes().all(rest) {
            return Ok(Self(text));
        }
        Err(Failure::new(Code::InvalidProfile, refused(&text, "profile", PROFILE)).hint(format!("use {PROFILE}")))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the default profile of calls.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == "default"
    }

    /// The arguments that name a workflow on the command line, including its profile if it is not the default.
    #[must_use]
    pub fn workflow_arguments(&self, id: &WorkflowId) -> String {
        if self.is_default() { id.to_string() } else { format!("{id} --profile {self}") }
    }
}

impl WorkflowId {
    /// # Errors
    /// `invalid_workflow_id`: it becomes the name of a directory and of a branch, so characters with a meaning for git
    /// or in a path are refused.
    pub fn parse(text: impl Into<String>) -> Result<Self, Failure> {
        let text = text.into();
        let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let fits = starts_plain(&text) && text.len() <= 63 && text.bytes().all(rest);
        if fits && !text.contains("..") && !text.ends_with(".lock") && !text.ends_with('.') {
            return Ok(Self(text));
        }
        Err(Failure::new(Code::InvalidWorkflowId, refused(&text, "workflow", WORKFLOW)).hint(format!("use {WORKFLOW}")))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The grammar of a profile's name.
const PROFILE: &str = "1 to 32 of a-z, 0-9 and `-`, beginning with a letter or digit";

/// The grammar of a workflow's id, which is valid for git and in paths.
const WORKFLOW: &str = "1 to 63 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or digit, without `..`, and \
    without `.` or `.lock` at the end";

/// Maximum number of characters of a refused name in a message.
const REPEATED: usize = 80;

fn refused(text: &str, what: &str, grammar: &str) -> String {
    let name: String = text.chars().take(REPEATED).flat_map(char::escape_debug).collect();
    format!("`{name}` is not a {what} name: use {grammar}")
}

fn starts_plain(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

macro_rules! text {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(it: $name) -> Self {
                it.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Failure;

            fn try_from(text: String) -> Result<Self, Failure> {
                Self::parse(text)
            }
        }
    )*};
}

text!(ProfileName WorkflowId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x25_names_with_a_meaning_in_a_path_or_for_git_are_refused() {
        let bad = ["", "../x", "-f", "a..b", "x.lock", ":main", "x.", "a/b", "A", "ä", &"x".repeat(64)];
        for text in bad {
            let refused = WorkflowId::parse(text).unwrap_err();
            assert_eq!(refused.code, Code::InvalidWorkflowId, "{text}");
            assert!(refused.message.contains("1 to 63 of a-z"), "{}", refused.message);
            assert_eq!(ProfileName::parse(text).unwrap_err().code, Code::InvalidProfile, "{text}");
        }
        assert_eq!(WorkflowId::parse("issue-1.2_b").unwrap().as_str(), "issue-1.2_b");
        assert!(WorkflowId::parse("x".repeat(63)).is_ok() && ProfileName::parse("x".repeat(32)).is_ok());
    }
}
