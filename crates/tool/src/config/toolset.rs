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

    /// The word in configuration and options.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Workspace => "workspace",
            Self::Code => "code",
            Self::Worktrees => "worktrees",
        }
    }
}

/// No set has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no toolset `{0}`; there are containers, workspace, code and worktrees")]
pub struct NoToolset(String);

impl FromStr for Toolset {
    type Err = NoToolset;

    fn from_str(word: &str) -> Result<Self, NoToolset> {
        Self::ALL.into_iter().find(|it| it.word() == word).ok_or_else(|| NoToolset(word.escape_debug().to_string()))
    }
}
