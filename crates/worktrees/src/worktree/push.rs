//! Pushes commits of a sandbox: into a quarantine repository on the host, and from there to the remote.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use coracle_host::branch::BranchName;
use coracle_host::process::Stdin;
use coracle_runtime::shell_word;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Excerpt, SandboxWarning, WorkflowId};
use serde::Serialize;
use tempfile::TempDir;

use super::git_in_container::{Sink, Workdir};
use super::mirror::ORIGIN;
use super::{SOON, WorktreeManager, parse};
use crate::stray_commits::no_commits;
use crate::workflow_records::Workflow;

/// Maximum size of a bundle's header, which names each commit that it builds on.
const MAX_HEAD: u64 = 16 << 20;

/// The options of a push.
#[derive(Clone, Debug, Default)]
pub struct PushRequest {
    /// Must be the workflow's own branch, which is the default.
    pub branch: Option<String>,
    /// Whether the last known commit of the remote's branch may be overwritten. Set only by the user.
    pub force_with_lease: bool,
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushReport {
    /// The remote's reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its previous commit, as far as it was known.
    pub old: Option<String>,
    /// Its new commit.
    pub new: String,
    /// The URL of the remote.
    pub url: String,
    /// The worktree has changes that were not pushed.
    pub uncommitted: bool,
    /// `other_branch`: commits that were not pushed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<SandboxWarning>,
}

/// Commits of a workflow in a quarantine repository.
#[derive(Debug)]
pub(super) struct TakenOut {
    pub(super) quarantine: TempDir,
    pub(super) oid: String,
}

impl WorktreeManager {
    /// Pushes the branch of a workflow to the source of its repository.
    ///
    /// # Errors
    /// `no_commits` if there is nothing to push; `push_refused` (`details.rule`) if it is not allowed; `push_rejected`
    /// with the remote's reason;
    /// `worktree_missing`.
    pub async fn push(&self, at: &Workdir, id: &WorkflowId, request: &PushRequest) -> Result<PushReport> {
        let workflow = self.workflow(at, id)?;
        let branch = self.may_push(&workflow, request)?;
        let source = self.source_of(&self.records(at)?)?;
        let _lock = self.mirror_lock(&source).await?;
        let dir = self.mirror_dir(&source);
        let (out, status, mirror) = tokio::join!(
            self.take_out(at, &workflow, &dir),
            self.status(at, id),
            self.read_mirror(dir.clone(), vec![])
        );
        let (out, old) = (out?, mirror?.branches.get(branch.as_str()).cloned());
        let stray = Box::pin(self.stray_commits(at, id)).await.ok().flatten();
        if out.oid == workflow.base_commit && old.is_none() {
            return Err(no_commits(&workflow, &at.workflow_arguments(id), stray.as_ref(), status.ok().as_ref()));
        }
        let url = source.text();
        let reference = format!("refs/heads/{branch}");
        let spec = format!("{}:{reference}", out.oid);
        let lease = format!("--force-with-lease={reference}:{}", old.as_deref().unwrap_or_default());
        let mut words = vec!["push", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no"];
        words.extend(request.force_with_lease.then_some(&*lease));
        words.extend(["--", &url, &spec]);
        let pushed =
            self.own_with(out.quarantine.path(), &words, Stdin::Empty, source.peer(), self.settings.git_timeout).await;
        let pushed = pushed.map_err(super::host)?;
        let result = parse::pushed(&pushed.stdout.bytes());
        if !pushed.ok() || result.as_ref().is_none_or(|(flag, _)| *flag == '!') {
            let stderr = Excerpt::from_bytes(&pushed.stderr.bytes()).to_string();
            let why = result.map_or_else(|| stderr.clone(), |(_, summary)| summary);
            return Err(Failure::new(Code::PushRejected, format!("The remote refused the push: {why}"))
                .detail("remote", stderr));
        }
        self.remember_pushed(at, &out, &dir, branch.as_str()).await?;
        // An unknown status may hide some.
        let uncommitted = status.map_or(true, |it| it.uncommitted() > 0);
        let warnings = stray.map(|it| it.warning()).into_iter().collect();
        Ok(PushReport { reference, old, new: out.oid, url, uncommitted, warnings })
    }

    fn may_push(&self, workflow: &Workflow, request: &PushRequest) -> Result<BranchName> {
        let refuse = |rule: &str, message: String| Err(Failure::new(Code::PushRefused, message).detail("rule", rule));
        let named = request.branch.as_deref().unwrap_or(&workflow.branch);
        if named.starts_with(':') {
            return refuse("push.deletion", "A push does not delete a branch.".into());
        }
        if named != workflow.branch {
            return refuse("push.branch", format!("Only `{}` is pushed from here.", workflow.branch));
        }
        match crate::repository_source::branch_of(&self.settings.branch_prefix, &workflow.id, Some(named)) {
            Ok(branch) => Ok(branch),
            Err(err) => refuse("push.prefix", err.message),
        }
    }

    /// Exports the commits of a workflow's branch, and checks each object.
    pub(super) async fn take_out(&self, at: &Workdir, workflow: &Workflow, mirror: &Path) -> Result<TakenOut> {
        let reference = format!("refs/heads/{}", workflow.branch);
        let repo = at.repo();
        let (tip, quarantine) = tokio::join!(repo.commit(&reference), self.quarantine(Some(mirror)));
        let (tip, quarantine) = (tip?, quarantine?);
        let Some(mut oid) = tip else {
            return Err(Box::pin(self.no_branch(at, workflow)).await);
        };
        let file = quarantine.path().join("it.bundle");
        let has_bundle =
            self.bundle_into(at, &[&reference, "--not", "--remotes=origin"], &file, self.settings.bundle_max).await?;
        if has_bundle {
            let bundle = bundle(&file)?;
            if bundle.name != reference {
                return Err(refused("push.refs", "Something else came out of the container than its branch."));
            }
            // The exported commit is pushed, even if the branch inside has changed meanwhile.
            oid = bundle.oid;
            self.unpack(quarantine.path(), bundle.pack).await?;
        }
        // Without a bundle the branch has no new objects, and the mirror has all of them.
        let words = ["rev-list", "--objects", "--quiet", &oid, "--not", "--alternate-refs"];
        let known = self.own(quarantine.path(), &words, Stdin::Empty, self.settings.git_timeout).await?;
        if !known.ok() {
            let stderr = Excerpt::from_bytes(&known.stderr.bytes());
            return Err(refused("push.objects", &format!("What came out of the container is not whole: {stderr}")));
        }
        self.own_printed(quarantine.path(), &["update-ref", &reference, &oid]).await?;
        Ok(TakenOut { quarantine, oid })
    }

    /// The failure for a workflow whose branch does not exist, for instance after `git branch -m`.
    pub(super) async fn no_branch(&self, at: &Workdir, workflow: &Workflow) -> Failure {
        let Workflow { id, branch, .. } = workflow;
        if let Ok(Some(stray)) = self.stray_commits(at, id).await {
            return no_commits(workflow, &at.workflow_arguments(id), Some(&stray), None);
        }
        let (arguments, word) = (at.workflow_arguments(id), shell_word(branch));
        Failure::new(Code::WorktreeMissing, format!("There is no branch `{branch}` inside."))
            .hint(format!("`coracle worktree exec {arguments} -- git switch -c {word}` creates it"))
    }

    /// Unpacks with git's own pack reader: older versions fetch from a bundle without checking its objects.
    async fn unpack(&self, quarantine: &Path, pack: File) -> Result<()> {
        let mut words = vec!["index-pack", "--stdin", "--fix-thin"];
        words.extend(self.settings.fsck.then_some("--strict"));
        let taken = self.own(quarantine, &words, Stdin::File(pack), self.settings.git_timeout).await?;
        if taken.ok() {
            return Ok(());
        }
        let stderr = Excerpt::from_bytes(&taken.stderr.bytes());
        Err(refused("push.objects", &format!("What came out of the container is not sound: {stderr}")))
    }

    /// Writes a bundle of git inside to a file on the host. Returns whether it contains anything.
    pub(super) async fn bundle_into(&self, at: &Workdir, what: &[&str], file: &Path, max_bytes: u64) -> Result<bool> {
        let mut to = tokio::fs::File::create(file).await.map_err(Failure::internal)?;
        let words = [&["bundle", "create", "--quiet", "-"], what].concat();
        let result = at.repo().run_into(&words, Sink { to: &mut to, max_bytes, bytes: 0 }).await?;
        Ok(result.ok())
    }

    /// Records the pushed commit as the remote's, on the host and inside.
    async fn remember_pushed(&self, at: &Workdir, out: &TakenOut, mirror: &Path, branch: &str) -> Result<()> {
        let name = format!("{ORIGIN}{branch}");
        let from = out.quarantine.path().display().to_string();
        let spec = format!("+{}:{name}", out.oid);
        let words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", &from, &spec];
        let peer = coracle_host::git::Peer::Dir;
        let here = self.own_with(mirror, &words, Stdin::Empty, peer, self.settings.git_timeout);
        let repo = at.repo();
        let update = ["update-ref", &name, &out.oid];
        let (here, there) = tokio::join!(here, tokio::time::timeout(SOON, repo.run(&update)));
        if let (Ok(here), Ok(Ok(there))) = (&here, &there)
            && here.ok()
            && there.ok()
        {
            return Ok(());
        }
        // The push succeeded; the next setup fetches the same.
        tracing::warn!("cannot record the pushed commit as the remote's");
        Ok(())
    }
}

/// The header of a bundle, and its pack.
struct Bundle {
    oid: String,
    name: String,
    pack: File,
}

/// Reads the header of a bundle with one reference.
fn bundle(path: &Path) -> Result<Bundle> {
    let odd = || refused("push.refs", "What came out of the container is no bundle of one branch.");
    let mut file = File::open(path).map_err(Failure::internal)?;
    let mut begins = Vec::new();
    std::io::Read::by_ref(&mut file).take(MAX_HEAD).read_to_end(&mut begins).map_err(Failure::internal)?;
    let (oid, name, ends) = parse::bundle_head(&begins).ok_or_else(odd)?;
    file.seek(SeekFrom::Start(ends as u64)).map_err(Failure::internal)?;
    Ok(Bundle { oid, name, pack: file })
}

fn refused(rule: &str, message: &str) -> Failure {
    Failure::new(Code::PushRefused, message).detail("rule", rule)
}
