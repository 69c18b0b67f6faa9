//! Work of a workflow onto a checkout of the person's.

use std::fs::File;
use std::path::{Path, PathBuf};

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::host::git::{GitCommand, Peer};
use coracle_runtime::host::process::{ProgramOutput, Stdin};
use coracle_runtime::is_trusted_by_tools;
use serde::{Deserialize, Serialize};

use super::export::PatchFormat;
use super::git_in_container::{Sink, Workdir};
use super::{WorktreeManager, git_command, parse};
use crate::repository_source::beneath;
use crate::{Code, Failure, Result, WorkflowId};

/// A patch that is held in memory.
const MAX_PATCH: u64 = 64 << 20;

/// The name of the patch in the repository that git uses.
const PATCH: &str = "it.patch";

/// How it is put there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyMode {
    /// Files change; nothing of the repository there does.
    #[default]
    Files,
    /// The commits become a branch; no file changes.
    Branch,
}

/// Where it goes.
#[derive(Clone, Debug)]
pub struct ApplyRequest {
    /// A checkout beneath an allow-root.
    pub to: PathBuf,
    /// How.
    pub mode: ApplyMode,
    /// Names that decide what the person's programs run may change, too: the person says so.
    pub protected: bool,
    /// A container of ours has that checkout bound, and could write what git on the host reads.
    pub bound: bool,
}

/// What was put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyReport {
    /// The checkout.
    pub to: PathBuf,
    /// Names that changed; none for a branch.
    pub files: Vec<String>,
    /// The branch.
    pub branch: Option<String>,
}

impl WorktreeManager {
    /// Puts the work of a workflow onto a checkout: all of it, or nothing.
    ///
    /// # Errors
    /// `apply_conflict` (`details.files`); `policy_denied` for a directory that may not be used, for protected names
    /// without leave (`details.files`), and for a branch where a container has the repository bound.
    pub async fn apply(&self, at: &Workdir, id: &WorkflowId, ask: &ApplyRequest) -> Result<ApplyReport> {
        let to = HostPath::open(&ask.to).map_err(|err| Failure::new(Code::InvalidInput, err.to_string()))?;
        if !to.is_dir() {
            return Err(Failure::new(Code::InvalidInput, "what a patch goes to is a directory"));
        }
        beneath(to.real(), &self.settings.allow_roots)?;
        match ask.mode {
            ApplyMode::Files => self.apply_files(at, id, to.real(), ask.protected).await,
            ApplyMode::Branch if ask.bound => {
                let message = format!("A container can write the repository of `{}`.", to.real().display());
                Err(Failure::new(Code::PolicyDenied, message).detail("rule", "apply.bound"))
            }
            ApplyMode::Branch => self.apply_branch(at, id, to.real()).await,
        }
    }

    async fn apply_files(&self, at: &Workdir, id: &WorkflowId, to: &Path, leave: bool) -> Result<ApplyReport> {
        let mut patch = Vec::new();
        let sink = Sink { to: &mut patch, max_bytes: MAX_PATCH, bytes: 0 };
        self.export(at, id, PatchFormat::Diff, sink).await?;
        let done = |files| ApplyReport { to: to.to_owned(), files, branch: None };
        if patch.is_empty() {
            return Ok(done(vec![]));
        }
        // So that git opens none that lies there.
        let empty = self.quarantine(None).await?;
        std::fs::write(empty.path().join(PATCH), &patch).map_err(Failure::internal)?;
        let numbers = self.patch(empty.path(), to, &["--numstat", "-z"]).await?;
        if !numbers.ok() {
            return Err(conflict(&numbers));
        }
        let files: Vec<String> = names(&numbers.stdout.bytes());
        let patch_effects = parse::patch_effects(&patch);
        if patch_effects.renames {
            return Err(Failure::new(Code::ApplyConflict, "The patch renames files, which ours never do."));
        }
        let guarded: Vec<&String> = files.iter().filter(|it| is_trusted_by_tools(it)).collect();
        if !leave && (patch_effects.links || !guarded.is_empty()) {
            let what = if guarded.is_empty() { "makes links or submodules" } else { "changes protected names" };
            let failure = Failure::new(Code::PolicyDenied, format!("The patch {what}."));
            let failure = failure
                .detail("rule", "apply.protected")
                .detail("files", guarded.into_iter().cloned().collect::<Vec<_>>());
            return Err(failure.hint("look at the diff, then apply it with `protected: true` if it is meant"));
        }
        for words in [&["--check"][..], &[]] {
            let tried = self.patch(empty.path(), to, words).await?;
            if !tried.ok() {
                return Err(conflict(&tried));
            }
        }
        Ok(done(files))
    }

    /// Git reads the patch from a file: it outlives this process if that is killed, and would take the part of a patch that
    /// came by a pipe for all of it.
    async fn patch(&self, git_dir: &Path, to: &Path, words: &[&str]) -> Result<ProgramOutput> {
        let mut place = std::ffi::OsString::from("--git-dir=");
        place.push(git_dir);
        let mut all = vec![place, "--work-tree=.".into(), "-c".into(), "core.symlinks=true".into()];
        all.extend(
            ["apply", "--whitespace=nowarn"].into_iter().chain(words.iter().copied()).chain(["-"]).map(Into::into),
        );
        let stdin = Stdin::File(File::open(git_dir.join(PATCH)).map_err(Failure::internal)?);
        let apply = git_command("git apply", to, all);
        self.git.run(GitCommand { stdin, keep_bytes: 16 << 20, ..apply }, Peer::Nobody).await.map_err(super::host)
    }

    async fn apply_branch(&self, at: &Workdir, id: &WorkflowId, to: &Path) -> Result<ApplyReport> {
        let workflow = self.workflow(at, id)?;
        let source = self.source_of(&self.records(at)?)?;
        let out = self.take_out(at, &workflow, &self.mirror_dir(&source)).await?;
        let spec = format!("{}:refs/heads/{}", out.oid, workflow.branch);
        let from = out.quarantine.path().display().to_string();
        let words =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--"];
        // The person's own repository, found as git finds it there.
        let fetch = git_command("git fetch", to, words.into_iter().chain([&*from, &*spec]));
        let fetched =
            self.git.run(GitCommand { keep_bytes: 64 << 10, ..fetch }, Peer::Dir).await.map_err(super::host)?;
        if !fetched.ok() {
            return Err(conflict(&fetched));
        }
        Ok(ApplyReport { to: to.to_owned(), files: vec![], branch: Some(workflow.branch) })
    }
}

/// `added\tdeleted\tname` each.
fn names(told: &[u8]) -> Vec<String> {
    let parts = told.split(|it| *it == 0).filter(|it| !it.is_empty());
    parts
        .filter_map(|it| it.splitn(3, |it| *it == b'\t').nth(2))
        .map(|it| String::from_utf8_lossy(it).into_owned())
        .collect()
}

fn conflict(tried: &ProgramOutput) -> Failure {
    let said = coracle_runtime::Excerpt::from_bytes(&tried.stderr.bytes()).to_string();
    let mut files: Vec<String> = said
        .lines()
        .filter_map(|it| it.strip_prefix("error: "))
        .filter_map(|it| match it.strip_prefix("patch failed: ") {
            Some(rest) => rest.rsplit_once(':').map(|(name, _)| name.to_owned()),
            None => it.split_once(": ").map(|(name, _)| name.to_owned()),
        })
        .collect();
    files.dedup();
    Failure::new(Code::ApplyConflict, format!("It does not apply, and nothing was changed: {said}"))
        .detail("files", files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_patch_are_read() {
        assert_eq!(names(b"1\t0\ta b\0-\t-\tx\ty\0"), ["a b", "x\ty"]);
    }
}
