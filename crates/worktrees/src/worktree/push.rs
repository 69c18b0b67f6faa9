//! Pushes commits of a sandbox: into a quarantine repository of the host, and from there to the remote.

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

/// The head of a bundle names each commit that it builds on.
const MAX_HEAD: u64 = 16 << 20;

/// What is pushed.
#[derive(Clone, Debug, Default)]
pub struct PushRequest {
    /// The workflow's own branch, and nothing else; else that.
    pub branch: Option<String>,
    /// What the remote's branch was when it was last seen may be given up: the person says so.
    pub force_with_lease: bool,
}

/// What a push did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushReport {
    /// The remote's reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The commit that it was, as far as was known.
    pub old: Option<String>,
    /// The commit that it is.
    pub new: String,
    /// Where.
    pub url: String,
    /// There is more in the worktree than was pushed.
    pub uncommitted: bool,
    /// `other_branch`: commits that were not pushed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<SandboxWarning>,
}

/// Commits of a workflow in a repository of ours.
#[derive(Debug)]
pub(super) struct TakenOut {
    pub(super) quarantine: TempDir,
    pub(super) oid: String,
}

impl WorktreeManager {
    /// Pushes the branch of a workflow to where its repository came from.
    ///
    /// # Errors
    /// `no_commits` when there is nothing to push; `push_refused` (`details.rule`) when it may not be; `push_rejected` with what the remote says;
    /// `worktree_missing`.
    pub async fn push(&self, at: &Workdir, id: &WorkflowId, ask: &PushRequest) -> Result<PushReport> {
        let workflow = self.workflow(at, id)?;
        let branch = self.may_push(&workflow, ask)?;
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
        words.extend(ask.force_with_lease.then_some(&*lease));
        words.extend(["--", &url, &spec]);
        let pushed =
            self.own_with(out.quarantine.path(), &words, Stdin::Empty, source.peer(), self.settings.git_timeout).await;
        let pushed = pushed.map_err(super::host)?;
        let result = parse::pushed(&pushed.stdout.bytes());
        if !pushed.ok() || result.as_ref().is_none_or(|(flag, _)| *flag == '!') {
            let said = Excerpt::from_bytes(&pushed.stderr.bytes()).to_string();
            let why = result.map_or_else(|| said.clone(), |(_, summary)| summary);
            return Err(
                Failure::new(Code::PushRejected, format!("The remote did not take it: {why}")).detail("remote", said)
            );
        }
        self.remember_pushed(at, &out, &dir, branch.as_str()).await?;
        // An unknown status may hide some.
        let uncommitted = status.map_or(true, |it| it.uncommitted() > 0);
        let warnings = stray.map(|it| it.warning()).into_iter().collect();
        Ok(PushReport { reference, old, new: out.oid, url, uncommitted, warnings })
    }

    fn may_push(&self, workflow: &Workflow, ask: &PushRequest) -> Result<BranchName> {
        let refuse = |rule: &str, message: String| Err(Failure::new(Code::PushRefused, message).detail("rule", rule));
        let named = ask.branch.as_deref().unwrap_or(&workflow.branch);
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

    /// Brings the commits of a workflow's branch out, and checks each object on the way.
    pub(super) async fn take_out(&self, at: &Workdir, workflow: &Workflow, mirror: &Path) -> Result<TakenOut> {
        let reference = format!("refs/heads/{}", workflow.branch);
        let repo = at.repo();
        let (tip, quarantine) = tokio::join!(repo.commit(&reference), self.quarantine(Some(mirror)));
        let (tip, quarantine) = (tip?, quarantine?);
        let Some(mut oid) = tip else {
            return Err(Box::pin(self.no_branch(at, workflow)).await);
        };
        let file = quarantine.path().join("it.bundle");
        let told =
            self.bundle_into(at, &[&reference, "--not", "--remotes=origin"], &file, self.settings.bundle_max).await?;
        if told {
            let bundle = bundle(&file)?;
            if bundle.name != reference {
                return Err(refused("push.refs", "Something else came out of the container than its branch."));
            }
            // What is there now is what is pushed, whatever became of the branch inside meanwhile.
            oid = bundle.oid;
            self.unpack(quarantine.path(), bundle.pack).await?;
        }
        // Nothing new may be in it, and then the mirror has all of it.
        let words = ["rev-list", "--objects", "--quiet", &oid, "--not", "--alternate-refs"];
        let known = self.own(quarantine.path(), &words, Stdin::Empty, self.settings.git_timeout).await?;
        if !known.ok() {
            let said = Excerpt::from_bytes(&known.stderr.bytes());
            return Err(refused("push.objects", &format!("What came out of the container is not whole: {said}")));
        }
        self.own_printed(quarantine.path(), &["update-ref", &reference, &oid]).await?;
        Ok(TakenOut { quarantine, oid })
    }

    /// The failure for a workflow whose branch does not exist, such as after `git branch -m`.
    pub(super) async fn no_branch(&self, at: &Workdir, workflow: &Workflow) -> Failure {
        let Workflow { id, branch, .. } = workflow;
        if let Ok(Some(stray)) = self.stray_commits(at, id).await {
            return no_commits(workflow, &at.workflow_arguments(id), Some(&stray), None);
        }
        let (arguments, word) = (at.workflow_arguments(id), shell_word(branch));
        Failure::new(Code::WorktreeMissing, format!("There is no branch `{branch}` inside."))
            .hint(format!("`coracle worktree exec {arguments} -- git switch -c {word}` creates it"))
    }

    /// By git's own reader of packs: older ones fetch from a bundle without a look at its objects.
    async fn unpack(&self, quarantine: &Path, pack: File) -> Result<()> {
        let mut words = vec!["index-pack", "--stdin", "--fix-thin"];
        words.extend(self.settings.fsck.then_some("--strict"));
        let taken = self.own(quarantine, &words, Stdin::File(pack), self.settings.git_timeout).await?;
        if taken.ok() {
            return Ok(());
        }
        let said = Excerpt::from_bytes(&taken.stderr.bytes());
        Err(refused("push.objects", &format!("What came out of the container is not sound: {said}")))
    }

    /// Whether git inside made a bundle, which is on the host then.
    pub(super) async fn bundle_into(&self, at: &Workdir, what: &[&str], file: &Path, max_bytes: u64) -> Result<bool> {
        let mut to = tokio::fs::File::create(file).await.map_err(Failure::internal)?;
        let words = [&["bundle", "create", "--quiet", "-"], what].concat();
        let told = at.repo().run_into(&words, Sink { to: &mut to, max_bytes, bytes: 0 }).await?;
        Ok(told.ok())
    }

    /// So that the next look knows that the remote has it, here and inside.
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
        // The push is done; the next setup fetches the same.
        tracing::warn!("what was pushed is not yet known as the remote's");
        Ok(())
    }
}

/// The head of a bundle, and its pack.
struct Bundle {
    oid: String,
    name: String,
    pack: File,
}

/// Reads the head of a bundle of one reference.
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
