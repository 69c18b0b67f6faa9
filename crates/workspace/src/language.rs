//! The languages of snippets.

use serde::{Deserialize, Serialize};

/// A language that snippets are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// TypeScript. Types are not checked.
    TypeScript,
    /// JavaScript.
    JavaScript,
    /// Python.
    Python,
    /// Bash.
    Bash,
}

impl Language {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::TypeScript, Self::JavaScript, Self::Python, Self::Bash].into_iter().find(|it| it.word() == word)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TypeScript => "typescript",
            Self::JavaScript => "javascript",
            Self::Python => "python",
            Self::Bash => "bash",
        }
    }

    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::TypeScript => "main.ts",
            Self::JavaScript => "main.js",
            Self::Python => "main.py",
            Self::Bash => "main.sh",
        }
    }

    pub(crate) fn command(self, file: String, has_network: bool) -> Vec<String> {
        let words: &[&str] = match (self, has_network) {
            (Self::TypeScript | Self::JavaScript, false) => &["bun", "run", "--no-install"],
            (Self::TypeScript | Self::JavaScript, true) => &["bun", "run"],
            (Self::Python, _) => &["python3"],
            (Self::Bash, _) => &["bash"],
        };
        words.iter().map(|it| (*it).to_owned()).chain([file]).collect()
    }
}
