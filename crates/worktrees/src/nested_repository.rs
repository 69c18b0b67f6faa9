//! A repository in a worktree that has no commit: git can add neither it nor its files.

use coracle_types::failure::Failure;
use serde_json::Value;

use crate::names::is_plain_word;

/// How git ends the line that names a repository within.
const NO_COMMIT: &str = "' does not have a commit checked out";

/// Names such a repository, if that is what git failed at. `workflow` names the workflow on the command line.
pub(crate) fn without_commit(workflow: &str, failure: Failure) -> Failure {
    let stderr = failure.details.get("stderr").and_then(Value::as_str).unwrap_or_default();
    let named = stderr.lines().find_map(|line| line.strip_prefix("error: '")?.strip_suffix(NO_COMMIT));
    let Some(name) = named.map(|it| it.trim_end_matches('/')) else { return failure };
    let shown = name.escape_debug();
    let message =
        format!("`{shown}` in the worktree is a git repository without a commit, so its files cannot be read.");
    // Code inside chooses the name; the command is copied to a shell of the host.
    let hint = if is_plain_word(name) {
        let remedy = format!("coracle worktree exec {workflow} -- rm -r {name}/.git");
        format!("commit in `{name}`, or make it a plain directory: `{remedy}`")
    } else {
        "commit in it, or make it a plain directory by removing its `.git`".to_owned()
    };
    Failure { message, ..failure }.hint(hint)
}

#[cfg(test)]
mod tests {
    use coracle_types::failure::Code;

    use super::*;

    #[test]
    fn a_repository_without_a_commit_is_named() {
        let stderr = "error: 'a/b/' does not have a commit checked out\nfatal: adding files failed";
        let failed = |stderr: &str| {
            let failure = Failure::new(Code::CommandFailed, "git inside failed").detail("stderr", stderr);
            without_commit("w --profile claude", failure)
        };
        let explained = failed(stderr);
        assert!(explained.message.starts_with("`a/b` in the worktree"), "{explained:?}");
        assert!(explained.hint.unwrap().contains("exec w --profile claude -- rm -r a/b/.git"));
        for name in ["a b", "-f", "a;b", "$(b)"] {
            let explained = failed(&format!("error: '{name}/' does not have a commit checked out"));
            assert!(explained.message.contains(name) && !explained.hint.unwrap().contains("rm -r"), "{name}");
        }
        assert_eq!(failed("fatal: no space left").message, "git inside failed");
    }
}
