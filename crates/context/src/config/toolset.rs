//! The toolsets of an agent.

use std::str::FromStr;

use serde::Deserialize;

/// Tools that are provided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    /// A few small tools on one machine; every operation is reachable through one of them.
    Agent,
    /// The tool `containers` with all operations and fields in its schema. Earlier versions called it `containers`.
    #[serde(alias = "containers")]
    Classic,
    /// Files and shell of the session's workspace.
    Workspace,
    /// Snippets.
    Code,
    /// Workflows, each in a sandbox with its own worktree.
    Worktrees,
}

/// Parses the word of configuration and options.
impl FromStr for Toolset {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let unknown =
            || format!("no toolset `{}`; there are agent, classic, workspace, code and worktrees", word.escape_debug());
        serde_json::from_value(word.into()).map_err(|_| unknown())
    }
}
