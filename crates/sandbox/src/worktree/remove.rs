//! The end of a worktree: what only it holds is saved and checked first.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use coracle_runtime::host::process::Stdin;
use coracle_runtime::{ContainerPath, Excerpt};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::create::link_of;
use super::diff::{PLAIN, with_index};
use super::inside::Inside;
use super::read::{FileChange, changes, gitlinks};
use super::state::Workflow;
use super::{LONG, WorktreeManager};
use crate::{Code, Failure, Result, WorkflowId};

/// Names in a manifest.
const MAX_NAMES: usize = 1000;

/// Characters of an archive's name: no workflow's id is longer, and with its ending it is a name on every file system.
const MAX_NAME: usize = 100;

/// Where work is saved: a directory of its own for each save, below this one.
#[derive(Clone, Debug)]
pub struct SaveTo {
    /// `$STATE/saved/<container>`.
    pub dir: PathBuf,
    /// What the manifest says of the container, but for `at` and `items`, as `lifecycle` writes it.
    pub manifest: Map<String, Value>,
}

/// How a worktree goes.
#[derive(Clone, Debug)]
pub struct RemoveAsk {
    /// Where its work goes.
    pub save_to: SaveTo,
    /// Its work is thrown away (`security.allow_discard`).
    pub discard: bool,
    /// Ignored files are saved, too.
    pub salvage_ignored: bool,
}

/// Work that was saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedWork {
    /// Its directory on the host.
    pub location: PathBuf,
    /// `git`: a bundle; `tree`: an archive of the files as they lay there.
    pub kind: &'static str,
    /// Bytes of it.
    pub bytes: u64,
    /// Files that were not committed, or all of an archive's directory.
    pub files: u64,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Removed {
    /// Which workflow.
    pub id: WorkflowId,
    /// It was there.
    pub removed: bool,
    /// What was saved of it.
    pub saved: Option<SavedWork>,
}

/// A state of a worktree that is worth saving.
struct Work {
    head: Option<String>,
    /// The reference that holds all of it.
    reference: String,
    files: Vec<FileChange>,
    /// A repository lies within, of which a commit holds nothing.
    nested: bool,
}

impl WorktreeManager {
    /// Saves what only a worktree holds, then removes it with its branch, and frees its ports. One that is missing is
    /// no failure.
    ///
    /// # Errors
    /// `save_failed`: nothing was removed; `policy_denied` for `discard` without leave.
    pub async fn remove(&self, at: &Inside, id: &WorkflowId, ask: &RemoveAsk) -> Result<Removed> {
        self.may_discard(ask)?;
        let records = self.records(at)?;
        let _lock = records.lock(&format!("workflow-{id}")).await?;
        let Some(workflow) = records.workflow(id)? else {
            return Ok(Removed { id: id.clone(), removed: false, saved: None });
        };
        let saved = if ask.discard { None } else { self.save(at, &workflow, ask).await.map_err(not_saved)? };
        let listing = records.lock("worktrees").await?;
        self.take_away(at, &workflow).await?;
        drop(listing);
        records.forget(id)?;
        Ok(Removed { id: id.clone(), removed: true, saved })
    }

    pub(super) fn may_discard(&self, ask: &RemoveAsk) -> Result<()> {
        if ask.discard && !self.settings.allow_discard {
            let failure = Failure::new(Code::PolicyDenied, "Work is not thrown away here.");
            return Err(failure.detail("rule", "discard").detail("setting", "security.allow_discard"));
        }
        Ok(())
    }

    async fn save(&self, at: &Inside, workflow: &Workflow, ask: &RemoveAsk) -> Result<Option<SavedWork>> {
        let id = &workflow.id;
        if !at.is_dir(&format!("worktrees/{id}")).await? {
            return self.save_branch(at, workflow, ask).await;
        }
        if !self.is_readable(at, id).await? {
            return self.save_tree(at, workflow, ask).await.map(Some);
        }
        let Some(work) = self.commit_all(at, workflow, ask.salvage_ignored).await? else { return Ok(None) };
        let mut saved = self.save_bundle(at, workflow, ask, &work).await;
        if saved.is_ok() && work.nested {
            saved = self.save_tree(at, workflow, ask).await;
        }
        if saved.is_err() {
            let _ = at.repo().run(&["update-ref", "-d", &work.reference]).await;
        }
        saved.map(Some)
    }

    /// The directory is gone, and commits may be there.
    async fn save_branch(&self, at: &Inside, workflow: &Workflow, ask: &RemoveAsk) -> Result<Option<SavedWork>> {
        let reference = format!("refs/heads/{}", workflow.branch);
        let repo = at.repo();
        let Some(head) = repo.commit(&reference).await? else { return Ok(None) };
        let told = repo.printed(&["rev-list", "--max-count=1", &reference, "--not", "--remotes=origin"]).await?;
        if told.is_empty() {
            return Ok(None);
        }
        let work = Work { head: Some(head), reference: reference.clone(), files: vec![], nested: false };
        self.save_bundle(at, workflow, ask, &work).await.map(Some)
    }

    /// Its link is as we wrote it, or as git does, and git finds its commit. Anything else is not looked into.
    async fn is_readable(&self, at: &Inside, id: &WorkflowId) -> Result<bool> {
        let content = at.link.get(at.file(&format!("worktrees/{id}/.git")), 0, 4096).await;
        let text = content.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let absolute = text.starts_with("gitdir: /") && text.trim_end().ends_with(&format!("/repo.git/worktrees/{id}"));
        Ok((text == link_of(id) || absolute) && at.tree(id).commit("HEAD").await?.is_some())
    }

    /// A commit of all that is there, if any of it would be lost.
    async fn commit_all(&self, at: &Inside, workflow: &Workflow, ignored: bool) -> Result<Option<Work>> {
        let id = &workflow.id;
        let branch = format!("refs/heads/{}", workflow.branch);
        with_index(at, id, async |git| {
            let Some(head) = git.commit("HEAD").await? else { return Ok(None) };
            if ignored {
                git.printed(&["add", "-A", "--force"]).await?;
            }
            let files = changes(&git.printed(&[PLAIN, &["-z", "--raw", "--numstat", "HEAD", "--"]].concat()).await?)?;
            let mut tip = head.clone();
            if !files.is_empty() {
                let text = |told: Vec<u8>| String::from_utf8_lossy(&told).trim().to_owned();
                let tree = text(git.printed(&["write-tree"]).await?);
                let message = format!("Saved work of {id}");
                tip = text(git.printed(&["commit-tree", "-p", "HEAD", "-m", &message, &tree]).await?);
            }
            let nested = has_nested(at, id, &git.printed(&["ls-files", "-s", "-z"]).await?).await?;
            let unpushed = git.run(&["rev-list", "--max-count=1", &tip, &branch, "--not", "--remotes=origin"]).await?;
            if !nested && unpushed.ok() && unpushed.stdout.is_empty() {
                return Ok(None);
            }
            let at = jiff::Timestamp::now().as_millisecond();
            let reference = format!("refs/coracle/salvage/{id}/{at}");
            git.printed(&["update-ref", &reference, &tip]).await?;
            Ok(Some(Work { head: Some(head), reference, files, nested }))
        })
        .await
    }

    async fn save_bundle(&self, at: &Inside, workflow: &Workflow, ask: &RemoveAsk, work: &Work) -> Result<SavedWork> {
        let branch = format!("refs/heads/{}", workflow.branch);
        let tip = at.repo().commit(&branch).await?;
        let tree = at.repo().printed(&["rev-parse", &format!("{}^{{tree}}", work.reference)]).await?;
        let state = json!([work.head, tip, String::from_utf8_lossy(&tree).trim()]);
        let path = at.tree_path(&workflow.id);
        if let Some(saved) = saved_before(&ask.save_to, &path, |item| item["state"] == state) {
            // Whoever saved it was cut short before it was removed.
            return Ok(SavedWork { files: work.files.len() as u64, ..saved });
        }
        let mut save = Save::begin(&ask.save_to, &self.mirrors, &format!("{}.bundle", workflow.id))?;
        let mut refs = vec![work.reference.as_str()];
        if branch != work.reference && tip.is_some() {
            refs.push(&branch);
        }
        let kind = self.bundle_of(at, &refs, &save.file).await?;
        save.item = json!({ "head": null, "branch": workflow.branch, "bundle": kind, "base_commit": workflow.base_commit,
            "commit": work.head, "salvage": work.reference, "state": state,
            "changed": work.files.iter().take(MAX_NAMES).map(|it| &it.path).collect::<Vec<_>>() });
        save.finish(&path, ("git", work.files.len() as u64), self.settings.save_max)
    }

    /// Writes references to a bundle: what the remote has not of them (`new`), or all of it (`whole`), since what the
    /// repository inside says that the remote has may be wrong.
    pub(super) async fn bundle_of(&self, at: &Inside, refs: &[&str], file: &Path) -> Result<&'static str> {
        let max = self.settings.save_max;
        // Where it is not known any more, nothing is known of what the remote has.
        if let Ok(source) = self.source_of(&self.records(at)?) {
            let new = [refs, &["--not", "--remotes=origin"]].concat();
            let mirror = self.mirror_dir(&source);
            if self.bundle_into(at, &new, (file, max)).await? && self.is_whole(&mirror, file).await? {
                return Ok("new");
            }
        }
        let empty = self.quarantine(None).await?;
        if self.bundle_into(at, refs, (file, max)).await? && self.is_whole(empty.path(), file).await? {
            return Ok("whole");
        }
        Err(Failure::new(Code::SaveFailed, "The bundle could not be made, or is not whole."))
    }

    /// The mirror has what it builds on.
    async fn is_whole(&self, dir: &Path, bundle: &Path) -> Result<bool> {
        let words = ["bundle", "verify", "--quiet", &bundle.display().to_string()];
        let verified = self.own(dir, &words, Stdin::Empty, LONG).await?;
        if !verified.ok() {
            tracing::warn!(said = %Excerpt::of(&verified.stderr.bytes()), "a bundle is not whole");
        }
        Ok(verified.ok())
    }

    /// The files as they lie there, with whatever `.git` is.
    async fn save_tree(&self, at: &Inside, workflow: &Workflow, ask: &RemoveAsk) -> Result<SavedWork> {
        let id = workflow.id.as_str();
        self.save_archive(at, (&format!("worktrees/{id}"), id), ask).await
    }

    /// A directory below the root as an archive, under the name `top`.
    pub(super) async fn save_archive(
        &self,
        at: &Inside,
        (dir, top): (&str, &str),
        ask: &RemoveAsk,
    ) -> Result<SavedWork> {
        let path = at.path(dir)?;
        let name = archive_name(top);
        let mut save = Save::begin(&ask.save_to, &self.mirrors, &name)?;
        let max = self.settings.save_max;
        let packed = super::archive::pack(at, (dir, top), &save.file, max).await?;
        let reason = "it is no file, or leads out of the tree";
        let entries: Vec<_> =
            packed.left_out.iter().take(MAX_NAMES).map(|it| json!({ "path": it, "reason": reason })).collect();
        if !entries.is_empty() {
            save.item = json!({ "left_out": { "entries": entries, "count": packed.left_out.len() } });
        }
        save.finish(&path, ("tree", packed.files), max)
    }

    async fn take_away(&self, at: &Inside, workflow: &Workflow) -> Result<()> {
        let id = &workflow.id;
        // As the guest removes files, which needs nothing of what git thinks of them.
        at.remove(&format!("worktrees/{id}")).await?;
        at.remove(&format!("repo.git/worktrees/{id}")).await?;
        let deletes = format!("refs/heads/{}", workflow.branch);
        at.repo().run(&["update-ref", "-d", &deletes]).await.map(drop)
    }
}

/// A submodule that nobody filled is an empty directory.
async fn has_nested(at: &Inside, id: &WorkflowId, told: &[u8]) -> Result<bool> {
    for name in gitlinks(told) {
        let place = format!("worktrees/{id}/{name}/.git");
        // What cannot be asked for by its name may be one.
        if at.root.join(&place).is_err() || at.stat(&place).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A name on this host for the archive of a directory: short and plain, whatever somebody inside called that.
fn archive_name(top: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '_' };
    let name: String = top.trim_start_matches('.').chars().map(plain).take(MAX_NAME).collect();
    format!("{}.tar", if name.is_empty() { "directory" } else { &name })
}

pub(super) fn not_saved(err: Failure) -> Failure {
    if matches!(err.code, Code::SaveFailed | Code::SandboxLost) {
        return err;
    }
    let message = format!("The work could not be saved, so nothing was removed: {}", err.message);
    Failure { details: err.details, ..Failure::new(Code::SaveFailed, message) }
}

/// A save on its way, in a temporary directory: where it belongs there are only finished ones.
pub(super) struct Save<'a> {
    to: &'a SaveTo,
    temp: TempDir,
    pub(super) file: PathBuf,
    /// What the manifest says more of it.
    pub(super) item: Value,
}

impl<'a> Save<'a> {
    pub(super) fn begin(to: &'a SaveTo, temp: &Path, name: &str) -> Result<Self> {
        let temp = tempfile::Builder::new().prefix("save-").tempdir_in(temp).map_err(no_place)?;
        let file = temp.path().join(name);
        Ok(Self { to, temp, file, item: json!({}) })
    }

    /// In the directory that its time names; the next millisecond's when that is taken.
    fn place(self, mut manifest: Map<String, Value>) -> Result<PathBuf> {
        crate::files::own_directory(&self.to.dir).map_err(no_place)?;
        let mut at = jiff::Timestamp::now();
        for _ in 0..1000 {
            manifest.insert("at".into(), json!(at.to_string()));
            crate::files::write(&self.temp.path().join("manifest.json"), &manifest)?;
            let dir = self.to.dir.join(at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string());
            match std::fs::rename(self.temp.path(), &dir) {
                Ok(()) => return Ok(dir),
                Err(err) if matches!(err.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                    at += jiff::SignedDuration::from_millis(1);
                }
                Err(err) => return Err(no_place(err)),
            }
        }
        Err(no_place("there are too many"))
    }

    pub(super) fn finish(
        self,
        path: &ContainerPath,
        (kind, files): (&'static str, u64),
        max_bytes: u64,
    ) -> Result<SavedWork> {
        let (bytes, sha256) = sum(&self.file).map_err(Failure::internal)?;
        if bytes > max_bytes {
            return Err(Failure::new(Code::SaveFailed, format!("There are more than {max_bytes} bytes to save.")));
        }
        if let Some(saved) = saved_before(self.to, path, |item| item["parts"][0]["sha256"] == sha256.as_str()) {
            return Ok(SavedWork { files, ..saved });
        }
        let what = if kind == "git" { "bundle" } else { "archive" };
        let name = self.file.file_name().map(|it| it.to_string_lossy().into_owned());
        let part = json!({ "file": name, "what": what, "bytes": bytes, "sha256": sha256 });
        // What the archive has is its own; a bundle's files are in its commits.
        let in_archive = if kind == "git" { 0 } else { files };
        let mut item = json!({ "path": path, "kind": kind, "parts": [part], "files": in_archive, "bytes": bytes });
        if let (Some(item), Some(more)) = (item.as_object_mut(), self.item.as_object()) {
            item.extend(
                more.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        let mut manifest = self.to.manifest.clone();
        manifest.insert("items".into(), json!([item]));
        Ok(SavedWork { location: self.place(manifest)?, kind, bytes, files })
    }
}

/// A finished save of a place, if it is the one that is meant and all of it is there.
pub(super) fn saved_before(to: &SaveTo, path: &ContainerPath, is_it: impl Fn(&Value) -> bool) -> Option<SavedWork> {
    std::fs::read_dir(&to.dir).ok()?.flatten().find_map(|entry| {
        let manifest: Value = crate::files::read(&entry.path().join("manifest.json")).ok()??;
        let item = manifest["items"].as_array()?.iter().find(|it| it["path"] == json!(path) && is_it(it))?;
        let part = &item["parts"][0];
        let (file, bytes) = (entry.path().join(part["file"].as_str()?), part["bytes"].as_u64()?);
        let kind = if item["kind"] == "git" { "git" } else { "tree" };
        let whole = sum(&file).is_ok_and(|(_, sha256)| part["sha256"] == sha256.as_str());
        whole.then(|| SavedWork { location: entry.path(), kind, bytes, files: item["files"].as_u64().unwrap_or(0) })
    })
}

fn no_place(err: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SaveFailed, format!("There is no place to save it: {err}"))
}

fn sum(file: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut digest, mut bytes) = (std::fs::File::open(file)?, Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hex::encode(digest.finalize()))),
            read => {
                digest.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_short_and_plain_name_whatever_its_directory_is_called() {
        assert_eq!(archive_name("w-1"), "w-1.tar");
        assert_eq!(archive_name(".orphans"), "orphans.tar");
        assert_eq!(archive_name("a\nb c"), "a_b_c.tar");
        assert_eq!(archive_name("..."), "directory.tar");
        for long in ["x".repeat(255), "\u{e4}".repeat(127)] {
            assert!(archive_name(&long).len() < 200, "{long}");
        }
    }
}
