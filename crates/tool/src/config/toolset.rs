//! Which tools an agent gets.

use std::str::FromStr;

use serde::Deserialize;

/// Tools that are given together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    /// The tool `containers`.
    Containers,
    /// Files and shell of the session's workspace.
    Workspace,
    /// Snippets.
    Code,
    /// Workflows, each in a sandbox with a worktree of its own.
    Worktrees,
}

impl Toolset {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Containers, Self::Workspace, Self::Code, Self::Worktrees];
}

/// Reads the word of configuration and options.
impl FromStr for Toolset {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let unknown =
            || format!("no toolset `{}`; there are containers, workspace, code and worktrees", word.escape_debug());
        serde_json::from_value(word.into()).map_err(|_| unknown())
    }
}
