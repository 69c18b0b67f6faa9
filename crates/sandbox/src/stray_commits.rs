//! Commits of a worktree that are not on its workflow's branch, which is all that is pushed and fetched.

use crate::{SandboxWarning, WorkflowId};

/// Commits that are checked out and that the workflow's branch lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayCommits {
    /// How many.
    pub commits: u64,
    /// The commit that is checked out.
    pub commit: String,
    /// The branch that has them; none for a detached HEAD.
    pub branch: Option<String>,
    /// The workflow's branch, which is to have them.
    pub expected: String,
    /// The workflow's branch has commits of its own.
    pub expected_has_some: bool,
    /// The workflow.
    pub workflow: WorkflowId,
}

impl StrayCommits {
    /// What is the matter.
    #[must_use]
    pub fn message(&self) -> String {
        let (count, expected) = (self.commits, &self.expected);
        let what = if count == 1 { "a commit".to_owned() } else { format!("{count} commits") };
        match &self.branch {
            Some(branch) => {
                let branch = branch.escape_debug();
                format!("`{branch}` is checked out, with {what} that the workflow's branch `{expected}` lacks")
            }
            None => format!("no branch is checked out, and {what} there are not on the workflow's branch `{expected}`"),
        }
    }

    /// The commands that bring them onto the workflow's branch. None of its own commits is lost by that.
    #[must_use]
    pub fn remedy(&self) -> String {
        let exec = format!("coracle worktree exec {} -- git", self.workflow);
        let from = self.branch.as_ref().unwrap_or(&self.commit).escape_debug();
        format!("`{exec} switch {}`, then `{exec} merge {from}`", self.expected)
    }

    /// A warning that names both branches.
    #[must_use]
    pub fn warning(&self) -> SandboxWarning {
        let message = format!("{}: only that one is pushed and fetched; {}", self.message(), self.remedy());
        SandboxWarning::new("other_branch", message)
    }
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
            expected_has_some: false,
            workflow: WorkflowId::parse("a").unwrap(),
        };
        let SandboxWarning { code, message } = stray.warning();
        assert_eq!(code, "other_branch");
        for part in ["`fix` is checked out, with 2 commits", "`coracle/a` lacks", "-- git merge fix`"] {
            assert!(message.contains(part), "{message}");
        }
        let detached = StrayCommits { commits: 1, branch: None, ..stray };
        assert!(detached.message().starts_with("no branch is checked out, and a commit"), "{detached:?}");
        assert!(detached.remedy().ends_with("-- git merge 0123abc`"), "{detached:?}");
    }
}
