//! Facts about a repository in a host directory before git reads it. Pure, except for its owner and a file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use coracle_runtime::shell_word;
use coracle_types::Excerpt;
use coracle_types::failure::{Code, Failure, Result};

/// A repository that git may read.
#[derive(Debug)]
pub(crate) struct LocalRepository {
    pub(crate) dir: PathBuf,
    pub(crate) git_dir: PathBuf,
    pub(crate) common_dir: PathBuf,
    /// Its own configuration: values by keys, in lower case except for subsections.
    pub(crate) config: Vec<(String, String)>,
}

impl LocalRepository {
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.config.iter().filter(move |it| it.0 == key).map(|it| it.1.as_str())
    }

    /// The URL of its origin.
    pub(crate) fn origin(&self) -> Option<&str> {
        self.values("remote.origin.url").last()
    }

    /// `sha1` or `sha256`.
    pub(crate) fn object_format(&self) -> &'static str {
        let is_sha256 = self.values("extensions.objectformat").last().is_some_and(|it| it == "sha256");
        if is_sha256 { "sha256" } else { "sha1" }
    }

    /// Whether it may lack objects that its server has.
    pub(crate) fn is_partial(&self) -> bool {
        let names = |(key, value): &(String, String)| {
            key == "extensions.partialclone" || (key.ends_with(".promisor") && value != "false")
        };
        self.config.iter().any(names)
    }

    /// Whether its history is truncated.
    pub(crate) fn is_shallow(&self) -> bool {
        self.common_dir.join("shallow").symlink_metadata().is_ok()
    }

    pub(crate) fn extensions(&self) -> String {
        let names = self.config.iter().filter(|it| it.0.starts_with("extensions."));
        let names: Vec<_> = names.map(|(key, value)| format!("`{key} = {value}`")).collect();
        if names.is_empty() { "a newer format".to_owned() } else { names.join(", ") }
    }

    /// Refuses repositories that worktrees do not support: they are transferred in packs of SHA-1 objects with the
    /// whole history.
    ///
    /// # Errors
    /// `unsupported`.
    pub(crate) fn fits_worktrees(&self) -> Result<()> {
        let dir = self.dir.display();
        let clone = format!("use `coracle create --repo {}`", shell_word(&dir.to_string()));
        let (what, hint) = match (self.is_shallow(), self.object_format()) {
            (true, _) => ("is a shallow clone", format!("run `git fetch --unshallow` there, or {clone}")),
            (_, "sha256") => ("has SHA-256 objects", clone),
            _ => return Ok(()),
        };
        Err(Failure::new(Code::Unsupported, format!("`{dir}` {what}: worktrees cannot be made of it")).hint(hint))
    }
}

/// Returns the first reason in git's error output.
pub(crate) fn reason(stderr: &[u8]) -> String {
    let excerpt = Excerpt::from_bytes(stderr);
    let lines = || excerpt.as_str().lines().map(str::trim).filter(|it| !it.is_empty());
    let reason = lines().find_map(|line| line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")));
    reason.or_else(|| lines().next()).unwrap_or("git gave no reason").chars().take(200).collect()
}

pub(crate) fn foreign_owner(dir: &Path, place: &Path) -> Failure {
    let uid = place.metadata().map(|it| it.uid().to_string()).unwrap_or_else(|_| "another user".to_owned());
    let message = format!("`{}` belongs to user {uid}, whom your git does not trust", place.display());
    let hint =
        format!("`git config --global --add safe.directory {}` trusts it", shell_word(&dir.display().to_string()));
    Failure::new(Code::PolicyDenied, message).detail("rule", "repository.owner").hint(hint)
}

/// Whether a value of `safe.directory` matches, as in git.
pub(crate) fn is_named(dir: &Path, value: &str) -> bool {
    let real = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    match value.strip_suffix("/*") {
        _ if value == "*" => true,
        Some(above) => dir != real(above) && dir.starts_with(real(above)),
        None => dir == real(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_trusted_by_name_parent_or_wildcard() {
        let dir = Path::new("/none/a/b");
        for (value, expected) in [("*", true), ("/none/a/b", true), ("/none/a/*", true), ("/none/a", false)] {
            assert_eq!(is_named(dir, value), expected, "{value}");
        }
        assert!(!is_named(dir, "/none/a/b/*"));
    }

    #[test]
    fn the_first_reason_of_git_is_the_cause() {
        let stderr = b"warning: x\nfatal: bad object\nfatal: Could not read from remote repository.\n\nPlease\n";
        assert_eq!(reason(stderr), "bad object");
        assert_eq!((reason(b"only this\n"), reason(b"")), ("only this".into(), "git gave no reason".into()));
    }
}
