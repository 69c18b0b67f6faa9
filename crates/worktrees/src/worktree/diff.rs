//! Shows the changes of a workflow, committed or not.

use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{WorkflowId, random_hex};
use serde::Serialize;

use super::git_in_container::{Git, Workdir};
use super::parse::{FileChange, changes, whole_files};
use super::{WorktreeManager, no_worktree};
use crate::nested_repository::without_commit;

/// Options that make the output independent of the repository's configuration.
pub(super) const PLAIN: &[&str] = &[
    "diff-index",
    "--cached",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--ignore-submodules=all",
];

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// A commit, branch or tag inside; default: the workflow's base commit.
    pub against: Option<String>,
    /// Maximum size of the patch.
    pub max_bytes: usize,
    /// Only names and numbers.
    pub stat_only: bool,
    /// Only this file, or the content of this directory, relative to the root of the worktree.
    pub path: Option<String>,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { against: None, max_bytes: 256 << 10, stat_only: false, path: None }
    }
}

/// The changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The commit that the worktree is compared with.
    pub against: String,
    /// All changed files.
    pub files: Vec<FileChange>,
    /// The patch of as many complete files as fit.
    pub patch: String,
    /// Whether some files do not fit.
    pub truncated: bool,
    /// Files that do not fit.
    pub omitted_files: Vec<String>,
}

impl WorktreeManager {
    /// Compares the worktree, except for ignored files, with a commit. Does not change its index.
    ///
    /// # Errors
    /// `worktree_missing`, `base_not_found`.
    pub async fn diff(&self, at: &Workdir, id: &WorkflowId, options: &DiffOptions) -> Result<Diff> {
        let workflow = self.workflow(at, id)?;
        let against = match &options.against {
            None => workflow.base_commit,
            Some(text) => named(at, id, text).await?,
        };
        with_index(at, id, async |git| {
            let mut words = [PLAIN, &["-z", "--raw", "--numstat", &against, "--"]].concat();
            let mut patch = [PLAIN, &["--patch", "--full-index", &against, "--"]].concat();
            // Literal: Coracle's git does not interpret patterns.
            words.extend(options.path.as_deref());
            patch.extend(options.path.as_deref());
            let patches = async {
                if options.stat_only { Ok(None) } else { git.run_keeping(&patch, options.max_bytes).await.map(Some) }
            };
            let (files, patch) = tokio::join!(git.printed(&words), patches);
            let (files, patch) = (changes(&files?)?, patch?);
            let against = against.clone();
            let mut diff = Diff { against, files, patch: String::new(), truncated: false, omitted_files: vec![] };
            let Some(patch) = patch else { return Ok(diff) };
            if !patch.ok() {
                return Err(patch.failure());
            }
            // The captured head and tail may be longer than requested.
            diff.truncated = !patch.whole || patch.stdout.len() > options.max_bytes;
            let captured = &patch.stdout[..patch.stdout.len().min(options.max_bytes)];
            let (complete, count) = whole_files(captured, diff.truncated);
            if diff.truncated {
                diff.omitted_files = diff.files.iter().skip(count).map(|it| it.path.clone()).collect();
            }
            diff.patch = String::from_utf8_lossy(complete).into_owned();
            Ok(diff)
        })
        .await
    }
}

async fn named(at: &Workdir, id: &WorkflowId, text: &str) -> Result<String> {
    let found = if text.starts_with('-') { None } else { at.tree(id).find_commit(text).await? };
    found.ok_or_else(|| Failure::new(Code::BaseNotFound, format!("There is no commit `{}`.", text.escape_debug())))
}

/// Runs git with a temporary index of the whole worktree.
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
