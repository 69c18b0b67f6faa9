//! What a sandbox holds beside its worktrees, and would lose with its volume.

use coracle_runtime::git;
use serde_json::json;

use super::WorktreeManager;
use super::inside::Inside;
use super::remove::{RemoveAsk, Save, SavedWork, not_saved};
use super::setup::entries;
use super::shared::ORPHANS;
use crate::Result;

/// References that somebody inside makes: branches beside those of workflows, tags, and what was put aside.
const OWN: [&str; 3] = ["--branches", "--tags", git::STASH];

/// A repository that was moved out of the way.
const OLD: &str = "repo.git.old-";

impl WorktreeManager {
    /// Saves what no worktree holds: branches and tags that no remote has, directories that were in the way of worktrees,
    /// and repositories that were. For when the sandbox goes, and its last workflow with it.
    ///
    /// # Errors
    /// `save_failed`: then nothing may be removed. `policy_denied` for `discard` without leave.
    pub async fn save_rest(&self, at: &Inside, ask: &RemoveAsk) -> Result<Vec<SavedWork>> {
        self.may_discard(ask)?;
        if ask.discard { Ok(Vec::new()) } else { self.rest(at, ask).await.map_err(not_saved) }
    }

    async fn rest(&self, at: &Inside, ask: &RemoveAsk) -> Result<Vec<SavedWork>> {
        let mut saved = Vec::new();
        let mut dirs = Vec::new();
        if at.is_dir("repo.git").await? {
            match self.has_own_commits(at).await? {
                Some(true) => saved.push(self.save_refs(at, ask).await?),
                Some(false) => {}
                None => dirs.push("repo.git".to_owned()),
            }
        }
        dirs.extend(entries(at).await?.into_iter().map(|it| it.name).filter(|it| it.starts_with(OLD)));
        if has_entries(at, ORPHANS).await? {
            dirs.push(ORPHANS.to_owned());
        }
        for dir in dirs {
            saved.push(self.save_dir(at, &dir, ask).await?);
        }
        Ok(saved)
    }

    /// Whether there are commits that the remote has not; `None` where git cannot tell.
    async fn has_own_commits(&self, at: &Inside) -> Result<Option<bool>> {
        let words = [&["rev-list", "--max-count=1"][..], &OWN, &["--not", "--remotes=origin"]].concat();
        let told = at.repo().run(&words).await?;
        Ok(told.ok().then_some(!told.stdout.is_empty()))
    }

    async fn save_refs(&self, at: &Inside, ask: &RemoveAsk) -> Result<SavedWork> {
        let mut save = Save::begin(&ask.save_to, &self.mirrors, "repository.bundle")?;
        let kind = self.bundle_of(at, &OWN, &save.file).await?;
        save.item = json!({ "head": null, "bundle": kind });
        save.finish(&at.path("repo.git"), ("git", 0), self.settings.save_max)
    }

    async fn save_dir(&self, at: &Inside, dir: &str, ask: &RemoveAsk) -> Result<SavedWork> {
        let top = dir.rsplit('/').next().unwrap_or(dir);
        self.save_archive(at, (dir, top), ask).await
    }
}

async fn has_entries(at: &Inside, dir: &str) -> Result<bool> {
    if !at.is_dir(dir).await? {
        return Ok(false);
    }
    let (entries, more) = at.link.list(at.file(dir), 1).await.map_err(super::inside::lost)?;
    Ok(more || !entries.is_empty())
}
