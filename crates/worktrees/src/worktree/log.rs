//! Lists commits of a workflow, newest first, and those that its branch lacks.

use coracle_types::WorkflowId;
use coracle_types::failure::{Failure, Result};
use serde::Serialize;

use super::git_in_container::Workdir;
use super::{WorktreeManager, parse};
use crate::stray_commits::StrayCommits;

/// Maximum number of commits.
const MAX_COMMITS: &str = "--max-count=1000";

/// Fields of a commit, each terminated by a NUL, which no field contains.
const FORMAT: &str = "--format=tformat:%H%x00%aN%x00%aE%x00%at%x00%s%x00";

/// A commit that a workflow made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// Its id.
    pub commit: String,
    /// Its author's name.
    pub author: String,
    /// Its author's mail address.
    pub email: String,
    /// When it was written, in seconds since 1970.
    pub at: i64,
    /// The first line of its message.
    pub subject: String,
}

impl WorktreeManager {
    /// Lists the commits of a worktree since its base, newest first; 1,000 at most.
    ///
    /// # Errors
    /// `worktree_missing`, `git_missing`, `sandbox_lost`.
    pub async fn log(&self, at: &Workdir, id: &WorkflowId) -> Result<Vec<Commit>> {
        let range = format!("{}..HEAD", self.workflow(at, id)?.base_commit);
        let words = ["log", MAX_COMMITS, "--no-show-signature", "--no-color", FORMAT, "--end-of-options", &range];
        Ok(commits(&at.tree(id).printed(&words).await?))
    }

    /// Compares what is checked out with the workflow's branch. Ignores commits of the remote.
    ///
    /// # Errors
    /// `worktree_missing`, `sandbox_lost`.
    pub async fn stray_commits(&self, at: &Workdir, id: &WorkflowId) -> Result<Option<StrayCommits>> {
        let workflow = self.workflow(at, id)?;
        let tree = at.tree(id);
        let head = tree.run(&["symbolic-ref", "--quiet", "HEAD"]).await?;
        let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        let reference = format!("refs/heads/{}", workflow.branch);
        if head == reference {
            return Ok(None);
        }
        let tip = at.repo().commit(&reference).await?;
        let Some(commit) = tree.commit("HEAD").await? else { return Ok(None) };
        let mut words = vec!["rev-list", "--count", &commit, "--not", "--remotes=origin", &workflow.base_commit];
        words.extend(tip.as_deref());
        let count: u64 =
            String::from_utf8_lossy(&tree.printed(&words).await?).trim().parse().map_err(Failure::internal)?;
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(StrayCommits {
            commits: count,
            commit,
            branch: head.strip_prefix("refs/heads/").map(str::to_owned),
            expected_exists: tip.is_some(),
            expected_has_some: tip.is_some_and(|it| it != workflow.base_commit),
            expected: workflow.branch,
            workflow: at.workflow_arguments(id),
        }))
    }
}

/// Parses git's output for [`FORMAT`]; leaves out invalid lines.
fn commits(output: &[u8]) -> Vec<Commit> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let read = |fields: &[&[u8]]| {
        let &[commit, author, email, at, subject] = fields else { return None };
        Some(Commit {
            // The previous line ends with a line feed after the last NUL.
            commit: parse::oid(text(commit).trim())?.to_owned(),
            author: text(author),
            email: text(email),
            at: text(at).parse().ok()?,
            subject: text(subject),
        })
    };
    let fields: Vec<_> = output.split(|it| *it == 0).collect();
    fields.chunks(5).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_parsed_as_git_prints_them() {
        let (first, second) = ("a".repeat(40), "b".repeat(40));
        let output = format!("{first}\0Ada\0ada@example.com\x0017\0One\0\n{second}\0Bob\0b@example.com\0soon\0Two\0\n");
        let read = commits(output.as_bytes());
        let ada = Commit {
            commit: first,
            author: "Ada".into(),
            email: "ada@example.com".into(),
            at: 17,
            subject: "One".into(),
        };
        assert_eq!(read, [ada], "the second one has no time");
        assert_eq!(commits(b""), []);
    }
}
