//! What a workflow changed, committed or not.

use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{WorkflowId, random_hex};
use serde::Serialize;

use super::git_in_container::{Git, Workdir};
use super::parse::{FileChange, changes, whole_files};
use super::{WorktreeManager, no_worktree};
use crate::nested_repository::without_commit;

/// How comparisons are printed: nothing of the repository's decides it.
pub(super) const PLAIN: &[&str] = &[
    "diff-index",
    "--cached",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--ignore-submodules=all",
];

/// What is compared.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// A commit, branch or tag inside; else the commit that the workflow began from.
    pub against: Option<String>,
    /// Bytes of the patch.
    pub max_bytes: usize,
    /// No patch, only names and numbers.
    pub stat_only: bool,
    /// Only this file, or what is beneath this directory, from the root of the worktree.
    pub path: Option<String>,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { against: None, max_bytes: 256 << 10, stat_only: false, path: None }
    }
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The commit that it is compared with.
    pub against: String,
    /// Each file.
    pub files: Vec<FileChange>,
    /// Whole files of it, as many as fit.
    pub patch: String,
    /// Some do not.
    pub truncated: bool,
    /// Which.
    pub omitted_files: Vec<String>,
}

impl WorktreeManager {
    /// Compares all that is in a worktree, ignored files apart, with a commit. Its index stays as it is.
    ///
    /// # Errors
    /// `worktree_missing`, `base_not_found`.
    pub async fn diff(&self, at: &Workdir, id: &WorkflowId, ask: &DiffOptions) -> Result<Diff> {
        let workflow = self.workflow(at, id)?;
        let against = match &ask.against {
            None => workflow.base_commit,
            Some(text) => named(at, id, text).await?,
        };
        with_index(at, id, async |git| {
            let mut words = [PLAIN, &["-z", "--raw", "--numstat", &against, "--"]].concat();
            let mut patch = [PLAIN, &["--patch", "--full-index", &against, "--"]].concat();
            // Our git takes it as it is, without patterns.
            words.extend(ask.path.as_deref());
            patch.extend(ask.path.as_deref());
            let patches =
                async { if ask.stat_only { Ok(None) } else { git.run_keeping(&patch, ask.max_bytes).await.map(Some) } };
            let (files, patch) = tokio::join!(git.printed(&words), patches);
            let (files, patch) = (changes(&files?)?, patch?);
            let against = against.clone();
            let mut diff = Diff { against, files, patch: String::new(), truncated: false, omitted_files: vec![] };
            let Some(patch) = patch else { return Ok(diff) };
            if !patch.ok() {
                return Err(patch.failure());
            }
            // The head and tail that were kept may be more than was asked for.
            diff.truncated = !patch.whole || patch.stdout.len() > ask.max_bytes;
            let (kept, count) = whole_files(&patch.stdout[..patch.stdout.len().min(ask.max_bytes)], diff.truncated);
            if diff.truncated {
                diff.omitted_files = diff.files.iter().skip(count).map(|it| it.path.clone()).collect();
            }
            diff.patch = String::from_utf8_lossy(kept).into_owned();
            Ok(diff)
        })
        .await
    }
}

async fn named(at: &Workdir, id: &WorkflowId, text: &str) -> Result<String> {
    let found = if text.starts_with('-') { None } else { at.tree(id).find_commit(text).await? };
    found.ok_or_else(|| Failure::new(Code::BaseNotFound, format!("There is no commit `{}`.", text.escape_debug())))
}

/// Git with an index of all that is in a worktree, which is gone afterwards.
pub(super) async fn with_index<T>(
    at: &Workdir,
    id: &WorkflowId,
    work: impl AsyncFnOnce(&Git<'_>) -> Result<T>,
) -> Result<T> {
    let name = format!("coracle-index-{}", random_hex::<4>());
    let git = at.tree(id).without_filters().await;
    let mut git = git.map_err(|err| if err.code == Code::WorktreeMissing { no_worktree(id) } else { err })?;
    git.env.insert("GIT_INDEX_FILE".into(), format!("../../repo.git/worktrees/{id}/{name}"));
    let done = async {
        git.printed(&["read-tree", "HEAD"]).await?;
        git.printed(&["add", "-A"]).await.map_err(|err| without_commit(&at.workflow_arguments(id), err))?;
        work(&git).await
    };
    let done = done.await;
    let removed = at.remove(&format!("repo.git/worktrees/{id}/{name}")).await;
    let done = done?;
    removed.map(|()| done)
}
