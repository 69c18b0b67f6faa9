//! Applies the work of a workflow to a checkout of the user.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::fs::HostPath;
use coracle_host::git::{GitCommand, IsolatedGit, Peer};
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_host::tree::DirHandle;
use coracle_host::tree_backup::TreeBackup;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Excerpt, SandboxWarning, WorkflowId, random_hex};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::export::PatchFormat;
use super::git_in_container::{Sink, Workdir};
use super::{WorktreeManager, git_command};
use crate::checkout_failure::{not_copied, restored_after};
use crate::patch::{Checkout, apply_conflict, check_patch, patched_names};
use crate::repository_source::beneath;
use crate::stray_commits::no_commits;

/// Maximum size of a patch, which is held in memory.
const MAX_PATCH: u64 = 64 << 20;

/// The name of the patch in the repository that git uses.
const PATCH: &str = "it.patch";

/// Maximum size of names and numbers of a patch's files.
const MAX_NAMES: usize = 16 << 20;

/// How long a killed git may take to finish its last write.
const SETTLES: Duration = Duration::from_secs(1);

/// How the work is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyMode {
    /// Files are changed; the repository there is not.
    #[default]
    Files,
    /// The commits become a branch; no file is changed.
    Branch,
}

/// The target of the work.
#[derive(Clone, Debug)]
pub struct ApplyRequest {
    /// A checkout below an allowed directory.
    pub to: PathBuf,
    /// How it is applied.
    pub mode: ApplyMode,
    /// Allows changes to names that control the user's programs. Set only by the user.
    pub protected: bool,
    /// Absolute paths that git on the host runs or reads its configuration from.
    pub programs: Vec<String>,
    /// A container has that checkout mounted, and could write what git on the host reads.
    pub bound: bool,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyReport {
    /// The checkout.
    pub to: PathBuf,
    /// Changed names; none for a branch.
    pub files: Vec<String>,
    /// The branch.
    pub branch: Option<String>,
    /// `other_branch`: commits that are not on that branch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<SandboxWarning>,
}

impl WorktreeManager {
    /// Applies the work of a workflow to a checkout: all of it, or nothing.
    ///
    /// # Errors
    /// `apply_conflict` (`details.files`); `apply_failed` if it cannot be written, with `details.written` and
    /// `details.copies` if the written files cannot be restored; `policy_denied` for a directory that may not be used,
    /// for protected names without permission (`details.files`), and for a branch if a container has the repository
    /// mounted; `no_commits` for a branch if all commits are on another one; `worktree_missing` if that branch does not
    /// exist.
    pub async fn apply(&self, at: &Workdir, id: &WorkflowId, options: &ApplyRequest) -> Result<ApplyReport> {
        let to = HostPath::open(&options.to).map_err(|err| Failure::new(Code::InvalidInput, err.to_string()))?;
        if !to.is_dir() {
            return Err(Failure::new(Code::InvalidInput, "the target of a patch has to be a directory"));
        }
        beneath(to.real(), &self.settings.allow_roots)?;
        match options.mode {
            ApplyMode::Files => self.patch(at, id, &to, options).await,
            ApplyMode::Branch if options.bound => {
                let message = format!("A container can write the repository of `{}`.", to.real().display());
                Err(Failure::new(Code::PolicyDenied, message).detail("rule", "apply.bound"))
            }
            ApplyMode::Branch => self.apply_branch(at, id, to.real()).await,
        }
    }

    async fn patch(&self, at: &Workdir, id: &WorkflowId, to: &HostPath, options: &ApplyRequest) -> Result<ApplyReport> {
        let mut patch = Vec::new();
        let sink = Sink { to: &mut patch, max_bytes: MAX_PATCH, bytes: 0 };
        self.export(at, id, PatchFormat::Diff, sink).await?;
        let done = |files| ApplyReport { to: to.real().to_owned(), files, branch: None, warnings: vec![] };
        if patch.is_empty() {
            return Ok(done(vec![]));
        }
        // So that git does not search for a repository there.
        let empty = self.quarantine(None).await?;
        std::fs::write(empty.path().join(PATCH), &patch).map_err(Failure::internal)?;
        let checkout = DirHandle::from_path(to).map_err(Failure::internal)?;
        let deadline = self.settings.git_timeout;
        let run = PatchRun { git: self.git.clone(), git_dir: empty, to: to.real().to_owned(), deadline };
        let numbers = run.apply(&["--numstat", "-z"]).await?;
        if !numbers.ok() {
            return Err(apply_conflict(&numbers));
        }
        let paths = patched_names(&numbers.stdout)?;
        let files: Vec<String> = paths.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let target = Checkout { to: to.real(), programs: &options.programs, leave: options.protected };
        check_patch(&patch, &files, &target)?;
        let checked = run.apply(&["--check"]).await?;
        if !checked.ok() {
            return Err(apply_conflict(&checked));
        }
        let copies = self.settings.state.join("apply").join(random_hex::<8>());
        // Git removes all of these files first, and leaves the checkout incomplete if it then fails.
        let backup = TreeBackup::create(checkout, paths, copies).map_err(|err| not_copied(&err))?;
        // A separate task, so that a cancelled call leaves no partial patch.
        tokio::spawn(run.write(backup)).await.map_err(Failure::internal)??;
        Ok(done(files))
    }

    async fn apply_branch(&self, at: &Workdir, id: &WorkflowId, to: &Path) -> Result<ApplyReport> {
        let workflow = self.workflow(at, id)?;
        let source = self.source_of(&self.records(at)?)?;
        let out = self.take_out(at, &workflow, &self.mirror_dir(&source)).await?;
        // The branch is fetched even if git cannot read the worktree.
        let stray = Box::pin(self.stray_commits(at, id)).await.ok().flatten();
        if out.oid == workflow.base_commit && stray.is_some() {
            return Err(no_commits(&workflow, &at.workflow_arguments(id), stray.as_ref(), None));
        }
        let spec = format!("{}:refs/heads/{}", out.oid, workflow.branch);
        let from = out.quarantine.path().display().to_string();
        let words =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--"];
        // The user's own repository, found by git itself.
        let fetch = git_command("git fetch", to, words.into_iter().chain([&*from, &*spec]), self.settings.git_timeout);
        let fetched =
            self.git.run(GitCommand { keep_bytes: 64 << 10, ..fetch }, Peer::Dir).await.map_err(super::host)?;
        if !fetched.ok() {
            return Err(apply_conflict(&fetched));
        }
        let warnings = stray.map(|it| it.warning()).into_iter().collect();
        Ok(ApplyReport { to: to.to_owned(), files: vec![], branch: Some(workflow.branch), warnings })
    }
}

/// A patch in its own repository, and the target checkout.
struct PatchRun {
    git: IsolatedGit,
    git_dir: TempDir,
    to: PathBuf,
    deadline: Duration,
}

impl PatchRun {
    /// Runs git with the patch in a file: git outlives this process if that is killed, and would apply the first part
    /// of a patch from a pipe as if it were complete.
    async fn apply(&self, words: &[&str]) -> Result<ProgramOutput> {
        let mut place = OsString::from("--git-dir=");
        place.push(self.git_dir.path());
        let mut all = vec![place, "--work-tree=.".into(), "-c".into(), "core.symlinks=true".into()];
        all.extend(
            ["apply", "--whitespace=nowarn"].into_iter().chain(words.iter().copied()).chain(["-"]).map(Into::into),
        );
        let stdin = Stdin::File(File::open(self.git_dir.path().join(PATCH)).map_err(Failure::internal)?);
        let apply = git_command("git apply", &self.to, all, self.deadline);
        let apply = GitCommand { stdin, keep_bytes: MAX_NAMES, ..apply };
        self.git.run(apply, Peer::None).await.map_err(super::host)
    }

    /// Writes a patch that was checked: git's check does not include whether files can be written.
    async fn write(self, backup: TreeBackup) -> Result<()> {
        let why = match self.apply(&[]).await {
            Ok(written) => {
                let stderr = written.stderr.bytes();
                // Git only warns of a file that it cannot remove.
                let stays = String::from_utf8_lossy(&stderr).contains("warning: unable to unlink");
                if written.ok() && !stays {
                    backup.discard();
                    return Ok(());
                }
                Excerpt::from_bytes(&stderr).to_string()
            }
            Err(failure) => {
                tokio::time::sleep(SETTLES).await;
                failure.message
            }
        };
        Err(restored_after(&backup, &why))
    }
}
