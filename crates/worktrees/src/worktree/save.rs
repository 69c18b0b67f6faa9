//! Saves the unsaved work of a worktree, as a bundle of commits or as its files.

use std::path::Path;

use coracle_host::process::Stdin;
use coracle_lifecycle::{Bundle, SavedItem, SavedKind};
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Excerpt, WorkflowId};
use serde_json::json;

use super::WorktreeManager;
use super::archive::{PackSource, pack, save_failed};
use super::create::link_of;
use super::diff::{PLAIN, with_index};
use super::git_in_container::{Git, Workdir, is_git_error};
use super::item_save::{BundleSave, SavedWork};
use super::parse::{FileChange, changes, gitlinks};
use crate::names::archive_name;
use crate::workflow_records::Workflow;
use crate::worktree::remove_request::RemoveRequest;

/// Maximum number of names in a manifest.
const MAX_NAMES: usize = 1000;

/// A state of a worktree that has to be saved.
struct UnsavedWork {
    head: Option<String>,
    /// The reference that contains all of it.
    reference: String,
    files: Vec<FileChange>,
    /// It contains a nested repository, whose files cannot be committed.
    nested: bool,
}

/// The saved work of a worktree, its files first.
#[derive(Default)]
pub(super) struct WorktreeSave {
    pub(super) works: Vec<SavedWork>,
    /// The branch whose commits git could not save, so that they are only in the repository.
    pub(super) kept_branch: Option<String>,
}

impl WorktreeManager {
    pub(super) async fn save(&self, at: &Workdir, workflow: &Workflow, remove: &RemoveRequest) -> Result<WorktreeSave> {
        let id = &workflow.id;
        if !at.is_dir(&format!("worktrees/{id}")).await? {
            return self.save_commits(at, workflow, remove, None).await;
        }
        let head = at.tree(id).find_commit("HEAD").await?;
        if head.is_some() && has_own_link(at, id).await {
            let saved = match self.commit_all(at, workflow, remove.salvage_ignored).await {
                Ok(None) => return Ok(WorktreeSave::default()),
                Ok(Some(work)) => self.save_work(at, workflow, remove, &work).await,
                Err(failure) => Err(failure),
            };
            match saved {
                // For instance a nested repository without a commit, or damaged commits.
                Err(failure) if is_git_error(&failure) => tracing::info!(%failure, "files are saved without a commit"),
                saved => return saved,
            }
        }
        let mut save = self.save_commits(at, workflow, remove, head.as_deref()).await?;
        save.works.insert(0, self.save_tree(at, workflow, remove).await?);
        Ok(save)
    }

    async fn save_work(
        &self,
        at: &Workdir,
        workflow: &Workflow,
        remove: &RemoveRequest,
        work: &UnsavedWork,
    ) -> Result<WorktreeSave> {
        let saved: Result<Vec<SavedWork>> = async {
            let bundle = self.save_bundle(at, workflow, remove, work).await?;
            let tree = if work.nested { Some(self.save_tree(at, workflow, remove).await?) } else { None };
            Ok(tree.into_iter().chain([bundle]).collect())
        }
        .await;
        if saved.is_err() {
            let _ = at.repo().run(&["update-ref", "-d", &work.reference]).await;
        }
        saved.map(|works| WorktreeSave { works, kept_branch: None })
    }

    /// Saves commits without files: those of the branch, and of the checked-out commit.
    async fn save_commits(
        &self,
        at: &Workdir,
        workflow: &Workflow,
        remove: &RemoveRequest,
        head: Option<&str>,
    ) -> Result<WorktreeSave> {
        match self.save_unpushed(at, workflow, remove, head).await {
            Ok(work) => Ok(WorktreeSave { works: work.into_iter().collect(), kept_branch: None }),
            Err(failure) if is_git_error(&failure) => {
                let branch = unsaved_branch(at, workflow, head).await?.ok_or_else(|| failure.clone())?;
                tracing::warn!(%failure, branch, "not removing a branch whose commits cannot be saved");
                Ok(WorktreeSave { works: Vec::new(), kept_branch: Some(branch) })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn save_unpushed(
        &self,
        at: &Workdir,
        workflow: &Workflow,
        remove: &RemoveRequest,
        head: Option<&str>,
    ) -> Result<Option<SavedWork>> {
        let (repo, branch) = (at.repo(), format!("refs/heads/{}", workflow.branch));
        let tip = repo.commit(&branch).await?;
        if !unpushed(&repo, [tip.as_deref(), head]).await? {
            return Ok(None);
        }
        // A branch that contains the commit needs no further reference, for which a full disk has no room.
        let Some(head) = head.filter(|it| tip.as_deref() != Some(*it)) else {
            let work = UnsavedWork { head: tip, reference: branch, files: vec![], nested: false };
            return self.save_bundle(at, workflow, remove, &work).await.map(Some);
        };
        let reference = salvage_reference(&workflow.id);
        repo.printed(&["update-ref", &reference, head]).await?;
        let work = UnsavedWork { head: Some(head.to_owned()), reference, files: vec![], nested: false };
        Ok(self.save_work(at, workflow, remove, &work).await?.works.pop())
    }

    /// Commits all files, if any work would be lost.
    async fn commit_all(&self, at: &Workdir, workflow: &Workflow, ignored: bool) -> Result<Option<UnsavedWork>> {
        let id = &workflow.id;
        let branch = format!("refs/heads/{}", workflow.branch);
        with_index(at, id, async |git| {
            let lost = || Failure::new(Code::SaveFailed, "The commit that is checked out is gone.");
            let head = git.commit("HEAD").await?.ok_or_else(lost)?;
            if ignored {
                git.printed(&["add", "-A", "--force"]).await?;
            }
            let files = changes(&git.printed(&[PLAIN, &["-z", "--raw", "--numstat", "HEAD", "--"]].concat()).await?)?;
            let mut tip = head.clone();
            if !files.is_empty() {
                let text = |output: Vec<u8>| String::from_utf8_lossy(&output).trim().to_owned();
                let tree = text(git.printed(&["write-tree"]).await?);
                let message = format!("Saved work of {id}");
                tip = text(git.printed(&["commit-tree", "-p", "HEAD", "-m", &message, &tree]).await?);
            }
            let nested = has_nested(at, id, &git.printed(&["ls-files", "-s", "-z"]).await?).await?;
            let of_branch = git.commit(&branch).await?;
            let unpushed = unpushed(git, [Some(tip.as_str()), of_branch.as_deref()]).await?;
            if !nested && !unpushed {
                return Ok(None);
            }
            let reference = salvage_reference(id);
            git.printed(&["update-ref", &reference, &tip]).await?;
            Ok(Some(UnsavedWork { head: Some(head), reference, files, nested }))
        })
        .await
    }

    async fn save_bundle(
        &self,
        at: &Workdir,
        workflow: &Workflow,
        remove: &RemoveRequest,
        work: &UnsavedWork,
    ) -> Result<SavedWork> {
        let branch = format!("refs/heads/{}", workflow.branch);
        let tip = at.repo().commit(&branch).await?;
        let tree = at.repo().printed(&["rev-parse", &format!("{}^{{tree}}", work.reference)]).await?;
        let state = json!([work.head, tip, String::from_utf8_lossy(&tree).trim()]);
        let mut refs = vec![work.reference.as_str()];
        if branch != work.reference && tip.is_some() {
            refs.push(&branch);
        }
        let item = SavedItem {
            branch: Some(workflow.branch.clone()),
            base_commit: Some(workflow.base_commit.clone()).filter(|commit| !commit.is_empty()),
            commit: work.head.clone(),
            salvage: Some(work.reference.clone()),
            state: Some(state),
            changed: Some(work.files.iter().take(MAX_NAMES).map(|it| it.path.clone()).collect()),
            ..SavedItem::new(at.tree_path(&workflow.id), SavedKind::Git)
        };
        let name = format!("{}.bundle", workflow.id);
        let saved = self.save_references(at, BundleSave { to: &remove.save_to, item, refs: &refs, name }).await?;
        Ok(SavedWork { files: work.files.len() as u64, ..saved })
    }

    /// Writes references to a bundle: their commits that are not on the remote, or all commits if that bundle does not
    /// match the mirror, since the repository inside may be wrong about the remote.
    pub(super) async fn bundle_of(&self, at: &Workdir, refs: &[&str], file: &Path) -> Result<Bundle> {
        let max = self.settings.save_max;
        // Without a known source there is no mirror to compare with.
        if let Ok(source) = self.source_of(&self.records(at)?) {
            let new = [refs, &["--not", "--remotes=origin"]].concat();
            let mirror = self.mirror_dir(&source);
            if self.bundle_into(at, &new, file, max).await? && self.is_whole(&mirror, file).await? {
                return Ok(Bundle::New);
            }
        }
        let empty = self.quarantine(None).await?;
        if self.bundle_into(at, refs, file, max).await? && self.is_whole(empty.path(), file).await? {
            return Ok(Bundle::Whole);
        }
        // Missing objects have a separate error.
        let objects = [&["rev-list", "--objects", "--quiet"], refs, &["--not", "--remotes=origin"]].concat();
        at.repo().printed(&objects).await?;
        Err(Failure::new(Code::SaveFailed, "The bundle could not be made, or is not whole."))
    }

    /// Whether a repository has the commits that a bundle builds on.
    async fn is_whole(&self, dir: &Path, bundle: &Path) -> Result<bool> {
        let words = ["bundle", "verify", "--quiet", &bundle.display().to_string()];
        let verified = self.own(dir, &words, Stdin::Empty, self.settings.git_timeout).await?;
        if !verified.ok() {
            tracing::warn!(stderr = %Excerpt::from_bytes(&verified.stderr.bytes()), "a bundle is incomplete");
        }
        Ok(verified.ok())
    }

    /// Saves the files unchanged, including `.git`.
    async fn save_tree(&self, at: &Workdir, workflow: &Workflow, remove: &RemoveRequest) -> Result<SavedWork> {
        let id = workflow.id.as_str();
        self.save_archive(at, PackSource { dir: &format!("worktrees/{id}"), top: id }, remove).await
    }

    /// Saves a directory below the root as an archive.
    pub(super) async fn save_archive(
        &self,
        at: &Workdir,
        source: PackSource<'_>,
        remove: &RemoveRequest,
    ) -> Result<SavedWork> {
        let item = SavedItem::new(at.path(source.dir)?, SavedKind::Tree);
        let mut save = self.begin_save(&remove.save_to, item)?;
        let mut archive = save.writer.archive_named(archive_name(source.top), at.agent).map_err(save_failed)?;
        pack(at, source, &mut archive.tar, &mut save.item.left_out).await?;
        save.writer.keep_archive(&mut save.item, archive).map_err(save_failed)?;
        save.finish()
    }
}

/// Adds to the error of a failed save that nothing was removed.
pub(super) fn not_saved(err: Failure) -> Failure {
    if matches!(err.code, Code::SaveFailed | Code::SandboxLost) {
        return err;
    }
    let message = format!("The work could not be saved, so nothing was removed: {}", err.message);
    Failure { details: err.details, ..Failure::new(Code::SaveFailed, message) }
}

/// Whether the worktree's `.git` is as Coracle or git writes it. Any other one is not read.
async fn has_own_link(at: &Workdir, id: &WorkflowId) -> bool {
    let content = at.link.get(at.file(&format!("worktrees/{id}/.git")), 0, 4096).await;
    let text = content.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let absolute = text.starts_with("gitdir: /") && text.trim_end().ends_with(&format!("/repo.git/worktrees/{id}"));
    text == link_of(id) || absolute
}

/// Whether any of these commits, or one of their ancestors, is on no branch of the remote.
async fn unpushed(git: &Git<'_>, tips: [Option<&str>; 2]) -> Result<bool> {
    let mut words = vec!["rev-list", "--max-count=1"];
    words.extend(tips.into_iter().flatten());
    if words.len() == 2 {
        return Ok(false);
    }
    words.extend(["--not", "--remotes=origin"]);
    Ok(!git.printed(&words).await?.is_empty())
}

/// Returns the branch whose commits git could not save: damaged ones, or any if the disk is full. `None` if a detached
/// HEAD may be the only reference to its commits, which is removed with the worktree.
async fn unsaved_branch(at: &Workdir, workflow: &Workflow, head: Option<&str>) -> Result<Option<String>> {
    let repo = at.repo();
    let Some(head) = head else { return Ok(Some(workflow.branch.clone())) };
    let Some(branch) = branch_with(at, workflow, head).await? else { return Ok(None) };
    let tip = repo.find_commit(&format!("refs/heads/{}", workflow.branch)).await?;
    let is_readable = async |tip: Option<&str>| unpushed(&repo, [tip, None]).await.is_ok();
    let is_other = is_readable(Some(head)).await && !is_readable(tip.as_deref()).await;
    Ok(Some(if is_other { workflow.branch.clone() } else { branch }))
}

/// Returns a branch that contains the checked-out commit, so that the repository retains it without the worktree. Its
/// ancestors may be damaged.
async fn branch_with(at: &Workdir, workflow: &Workflow, head: &str) -> Result<Option<String>> {
    let symbolic = at.tree(&workflow.id).run(&["symbolic-ref", "--quiet", "HEAD"]).await?;
    let reference = String::from_utf8_lossy(&symbolic.stdout);
    if let Some(branch) = reference.trim_end().strip_prefix("refs/heads/").filter(|_| symbolic.ok()) {
        return Ok(Some(branch.to_owned()));
    }
    let (repo, branch) = (at.repo(), format!("refs/heads/{}", workflow.branch));
    let is_tip = repo.find_commit(&branch).await?.as_deref() == Some(head);
    let has = is_tip
        || repo.run(&["merge-base", "--is-ancestor", head, &branch]).await?.ok()
        || unpushed(&repo, [Some(head), None]).await.is_ok_and(|it| !it);
    Ok(has.then(|| workflow.branch.clone()))
}

/// Generates a name for commits that are saved.
fn salvage_reference(id: &WorkflowId) -> String {
    format!("refs/coracle/salvage/{id}/{}", jiff::Timestamp::now().as_millisecond())
}

/// Whether there is a nested repository. A submodule that was not checked out is an empty directory.
async fn has_nested(at: &Workdir, id: &WorkflowId, output: &[u8]) -> Result<bool> {
    for name in gitlinks(output) {
        let place = format!("worktrees/{id}/{name}/.git");
        // A name that cannot be requested may be one.
        if at.root.join(&place).is_err() || at.stat(&place).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
