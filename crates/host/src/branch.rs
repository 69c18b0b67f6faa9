//! Names of branches.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a branch that `git check-ref-format --branch` accepts, and never an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

/// The text is not a branch name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a name of a branch", .0.escape_debug())]
pub struct InvalidBranch(String);

impl BranchName {
    /// Longer names do not fit into a file's name.
    const MAX_BYTES: usize = 244;

    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidBranch`], with the beginning of the text.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidBranch> {
        let text = text.into();
        let part = |it: &str| !it.is_empty() && !it.starts_with('.') && !it.ends_with(".lock");
        let special = |it: char| it.is_control() || " ~^:?*[\\".contains(it);
        let fits = (1..=Self::MAX_BYTES).contains(&text.len())
            && !text.starts_with('-')
            && !text.ends_with('.')
            && !matches!(text.as_str(), "@" | "HEAD")
            && !text.contains("..")
            && !text.contains("@{")
            && !text.contains(special)
            && text.split('/').all(part);
        if fits { Ok(Self(text)) } else { Err(InvalidBranch(text.chars().take(Self::MAX_BYTES).collect())) }
    }

    /// The name as an argument of git.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BranchName {
    type Error = InvalidBranch;

    fn try_from(text: String) -> Result<Self, InvalidBranch> {
        Self::parse(text)
    }
}

impl From<BranchName> for String {
    fn from(name: BranchName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::BranchName;
    use crate::find_program::find_program;
    use crate::process::{Invocation, Stdin, run};

    const FINE: &str = "main a feature/x a/b/c v1.2 1 _x a-b a@b @a a.lockx lock b\u{fc}cher #1 a+b a=b a,b a;b a$b a'b \
        a\"b a`b a&b a|b a(b) a{b} !a %61 a.b/c.d x.lock.y head +x";

    const NONE: &str = "- -x --upload-pack=x . .. .a a/.b a..b a. a/ /a a//b a.lock a.lock/b a@{b @{-1} a~1 a^ a:b :a \
        a?b a*b a[b a\\b a\u{7f}b \u{1}";

    #[test]
    fn names_are_accepted_and_refused() {
        for it in FINE.split(' ') {
            assert_eq!(BranchName::parse(it).unwrap().as_str(), it);
        }
        let more = ["", " ", "a b", "a\nb", "a\tb", "a\0b", "@", "HEAD"];
        for it in NONE.split(' ').chain(more) {
            assert!(BranchName::parse(it).is_err(), "{it:?}");
        }
        assert!(BranchName::parse("x".repeat(245)).is_err());
        assert!(BranchName::parse("-\n".repeat(9999)).unwrap_err().to_string().len() < 1000);
    }

    #[tokio::test]
    async fn git_agrees() {
        let git = find_program("git").unwrap();
        for (names, expected) in [(FINE, true), (NONE, false)] {
            for name in names.split(' ') {
                // Run in `/`, not in this repository, where `@{-1}` may be a branch.
                let asks = Invocation::new(&git, ["-C", "/", "check-ref-format", "--branch", name]);
                let judged = run("git", &asks, Stdin::Empty, (Duration::from_secs(10), 1000)).await.unwrap();
                assert_eq!(judged.ok(), expected, "{name:?}: {}", judged.stderr.text());
            }
        }
    }
}
