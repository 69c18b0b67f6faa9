//! Saves what a sandbox has besides its worktrees, before its volume is removed.

use coracle_host::hardened as git;
use coracle_lifecycle::{SavedItem, SavedKind};
use coracle_protocol::{FileEntry, FileKind};
use coracle_types::WorkflowId;
use coracle_types::failure::{Code, Failure, Result};
use serde_json::json;

use super::WorktreeManager;
use super::archive::PackSource;
use super::git_in_container::Workdir;
use super::init_repository::{MAX_ENTRIES, entries};
use super::item_save::{BundleSave, SavedWork};
use super::save::not_saved;
use crate::shared_dir::ORPHANS;
use crate::worktree::remove_request::RemoveRequest;

/// References that are created inside: branches besides those of workflows, tags, and the stash.
const OWN: [&str; 3] = ["--branches", "--tags", git::STASH];

/// Name prefix of a repository that was moved out of the way.
const OLD: &str = "repo.git.old-";

const WORKTREES: &str = "worktrees";

/// Entries of the root that are read: as many as a guest lists.
const MAX_ROOT: u64 = 100_000;

impl WorktreeManager {
    /// Saves what no worktree contains: branches and tags that no remote has, directories that were moved out of the
    /// way, and old repositories. Called before the sandbox is removed with its last workflow.
    ///
    /// # Errors
    /// `save_failed`: then nothing may be removed. `policy_denied` for `discard` without permission.
    pub async fn save_rest(&self, at: &Workdir, request: &RemoveRequest) -> Result<Vec<SavedWork>> {
        self.may_discard(request)?;
        if request.discard { Ok(Vec::new()) } else { self.rest(at, request).await.map_err(not_saved) }
    }

    async fn rest(&self, at: &Workdir, request: &RemoveRequest) -> Result<Vec<SavedWork>> {
        let mut saved = Vec::new();
        let mut dirs = Vec::new();
        if at.is_dir("repo.git").await? {
            match self.has_own_commits(at).await? {
                Some(true) => saved.push(self.save_refs(at, request).await?),
                Some(false) => {}
                None => dirs.push("repo.git".to_owned()),
            }
        }
        dirs.extend(old_repositories(at).await?);
        let unknown = self.unknown_worktrees(at).await?;
        // The archive of all of them contains these too.
        if unknown != [WORKTREES] && has_entries(at, ORPHANS).await? {
            dirs.push(ORPHANS.to_owned());
        }
        dirs.extend(unknown);
        for dir in dirs {
            saved.push(self.save_dir(at, &dir, request).await?);
        }
        Ok(saved)
    }

    /// Lists directories other than those of workflows: their records are lost, or they were created inside.
    async fn unknown_worktrees(&self, at: &Workdir) -> Result<Vec<String>> {
        // On the host they belong to the user, and are not removed.
        if at.shared.is_some() || !at.is_dir(WORKTREES).await? {
            return Ok(Vec::new());
        }
        let known = self.remembered(&at.key)?;
        let (found, more) =
            at.link.list(at.file(WORKTREES), MAX_ENTRIES).await.map_err(super::git_in_container::lost)?;
        Ok(unknown(&found, more, &known))
    }

    /// Whether there are commits that the remote lacks; `None` if git fails.
    async fn has_own_commits(&self, at: &Workdir) -> Result<Option<bool>> {
        let words = [&["rev-list", "--max-count=1"][..], &OWN, &["--not", "--remotes=origin"]].concat();
        let output = at.repo().run(&words).await?;
        Ok(output.ok().then_some(!output.stdout.is_empty()))
    }

    async fn save_refs(&self, at: &Workdir, request: &RemoveRequest) -> Result<SavedWork> {
        let words = ["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags", "refs/stash"];
        let state = Some(json!(String::from_utf8_lossy(&at.repo().printed(&words).await?)));
        let item = SavedItem { state, ..SavedItem::new(at.path("repo.git")?, SavedKind::Git) };
        let name = "repository.bundle".to_owned();
        self.save_references(at, BundleSave { to: &request.save_to, item, refs: &OWN, name }).await
    }

    async fn save_dir(&self, at: &Workdir, dir: &str, request: &RemoveRequest) -> Result<SavedWork> {
        let top = dir.rsplit('/').next().unwrap_or(dir);
        self.save_archive(at, PackSource { dir, top }, request).await
    }
}

/// Lists repositories that Coracle renamed. Files with such a name are ordinary files of the root.
async fn old_repositories(at: &Workdir) -> Result<Vec<String>> {
    let (entries, more) = entries(at, MAX_ROOT).await?;
    if more {
        let message = format!("there are more than {MAX_ROOT} files in `{}`", at.root);
        return Err(Failure::new(Code::SaveFailed, message));
    }
    let old = entries.into_iter().filter(|it| it.kind == FileKind::Dir && it.name.starts_with(OLD));
    Ok(old.map(|it| it.name).filter(|it| is_plain(it)).collect())
}

/// Lists directories without a workflow: each separately, or their parent if they are too many, or if one has a name
/// that cannot be requested.
fn unknown(found: &[FileEntry], more: bool, known: &[WorkflowId]) -> Vec<String> {
    let dirs = found.iter().filter(|it| it.kind == FileKind::Dir).map(|it| it.name.as_str());
    let of_workflow = |name: &str| known.iter().any(|id| id.as_str() == name);
    let names: Vec<_> = dirs.filter(|it| format!("{WORKTREES}/{it}") != ORPHANS && !of_workflow(it)).collect();
    if more || names.iter().any(|it| !is_plain(it)) {
        return vec![WORKTREES.to_owned()];
    }
    names.into_iter().map(|it| format!("{WORKTREES}/{it}")).collect()
}

/// Whether a name can be written unchanged. Bytes that are not UTF-8 are replaced by a mark.
fn is_plain(name: &str) -> bool {
    !name.contains(|it: char| it.is_control() || it == '\u{fffd}')
}

async fn has_entries(at: &Workdir, dir: &str) -> Result<bool> {
    if !at.is_dir(dir).await? {
        return Ok(false);
    }
    let (entries, more) = at.link.list(at.file(dir), 1).await.map_err(super::git_in_container::lost)?;
    Ok(more || !entries.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: FileKind) -> FileEntry {
        let (name, link) = (name.to_owned(), None);
        FileEntry { name, kind, size: 0, mode: 0o755, uid: 10_002, gid: 10_002, changed_ns: 0, link }
    }

    #[test]
    fn directories_without_a_workflow_are_saved_whatever_their_names() {
        let known = [WorkflowId::parse("w-1").unwrap()];
        let dirs = |names: &[&str]| names.iter().map(|it| entry(it, FileKind::Dir)).collect::<Vec<_>>();
        let mut found = dirs(&[".orphans", "mine", "w-1"]);
        found.push(entry("a\nfile", FileKind::File));
        assert_eq!(unknown(&found, false, &known), ["worktrees/mine"]);
        assert_eq!(unknown(&[], false, &known), Vec::<String>::new());
        for odd in ["a\nb", "\u{85}", "a\u{fffd}"] {
            assert_eq!(unknown(&dirs(&["mine", odd]), false, &known), ["worktrees"], "{odd:?}");
        }
        assert_eq!(unknown(&found, true, &known), ["worktrees"], "there may be others");
    }
}
