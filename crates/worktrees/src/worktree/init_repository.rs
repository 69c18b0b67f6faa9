//! Creates the bare repository inside, filled from the mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use coracle_host::git::GitCommand;
use coracle_host::process::Stdin;
use coracle_protocol::{ErrorCode, FileEntry};
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Error, Input, SandboxWarning, random_hex};
use serde::Serialize;

use super::git_in_container::{GitDir, Workdir, lost};
use super::mirror::{Mirror, ORIGIN};
use super::{INIT_BARE, WorktreeManager, git_command, parse, succeeded};
use crate::shared_dir::config_of;
use crate::workflow_records::Repository;

/// Name prefix of incomplete repositories.
const UNFINISHED: &str = ".repo.git.";

/// Maximum number of entries of the root that are read.
pub(super) const MAX_ENTRIES: u64 = 10_000;

/// The repository of a sandbox.
#[derive(Clone, Debug)]
pub struct SetupRequest {
    /// A URL, or a directory of this host.
    pub source: String,
    /// Another repository may replace the existing one, which is renamed.
    pub replace: bool,
}

/// The repository of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepositoryInfo {
    /// Its source.
    pub url: String,
    /// The branch of the remote's HEAD.
    pub head: Option<String>,
    /// The number of branches of the remote.
    pub branches: usize,
    /// `fetch_stale`, `repo_corrupt`.
    pub warnings: Vec<SandboxWarning>,
}

/// References of the remote in the repository inside.
#[derive(Debug, Default)]
struct RemoteRefs {
    refs: BTreeMap<String, String>,
    head: Option<String>,
}

impl WorktreeManager {
    /// Fetches a repository, and updates all its branches in the one inside.
    ///
    /// # Errors
    /// `invalid_url`, `policy_denied`, `fetch_failed`; `branch_conflict` if another repository is in use.
    pub async fn setup_repo(&self, at: &Workdir, request: &SetupRequest) -> Result<RepositoryInfo> {
        let source = self.source(&request.source)?;
        let records = self.records(at)?;
        let _lock = records.lock("repo").await?;
        let url = source.text();
        let other = records.repository()?.filter(|it| it.url != url);
        if let Some(other) = &other
            && (!request.replace || at.shared.is_some())
        {
            let failure = Failure::new(Code::BranchConflict, format!("This sandbox works on `{}`.", other.url));
            let replaceable = at.shared.is_none();
            let hint =
                if replaceable { "say `replace` to work on another repository" } else { "remove its workflows first" };
            return Err(failure.hint(hint));
        }
        let (mirror, have) = tokio::join!(self.fresh_mirror(&source), self.have(at));
        let (mut mirror, have) = (mirror?, have?);
        let fits = have.is_some() && other.is_none();
        if let Some(dir) = &at.shared {
            // It was created before the container, and cannot be replaced while that exists.
            let have = have.ok_or_else(|| unreadable(dir))?;
            crate::shared_dir::write_origin(dir, &url)?;
            self.fill(at, "repo.git", &mirror, &have).await?;
        } else if let Some(have) = have.as_ref().filter(|_| fits) {
            self.fill(at, "repo.git", &mirror, have).await?;
        } else {
            if at.stat("repo.git").await?.is_some() {
                mirror.warnings.extend(self.move_repo_aside(at, have.is_none()).await?);
            }
            self.make_inside(at, &mirror, &url).await?;
        }
        records.remember_repository(&Repository { url: url.clone() })?;
        Ok(RepositoryInfo { url, head: mirror.head, branches: mirror.branches.len(), warnings: mirror.warnings })
    }

    /// `None` without a repository, or with one that git cannot read. Removes incomplete ones.
    async fn have(&self, at: &Workdir) -> Result<Option<RemoteRefs>> {
        let repo = at.repo();
        let words = ["for-each-ref", parse::WITH_SYMREF, ORIGIN];
        let (output, entries) = tokio::join!(repo.run(&words), entries(at, MAX_ENTRIES));
        for entry in entries?.0.iter().filter(|it| it.name.starts_with(UNFINISHED)) {
            at.remove(&entry.name).await?;
        }
        let output = output?;
        if !output.ok() {
            return Ok(None);
        }
        let (refs, head) = parse::refs_and_head(&output.good()?);
        Ok(Some(RemoteRefs { refs, head }))
    }

    /// Renames it. It stays beside the new one until the volume is removed.
    async fn move_repo_aside(&self, at: &Workdir, broken: bool) -> Result<Option<SandboxWarning>> {
        let name = format!("repo.git.old-{}", jiff::Timestamp::now().as_millisecond());
        at.link.rename(at.file("repo.git"), &name).await.map_err(lost)?;
        let message = format!("the repository inside could not be read and was created again; the old one is `{name}`");
        Ok(broken.then(|| SandboxWarning::new("repo_corrupt", message)))
    }

    async fn make_inside(&self, at: &Workdir, mirror: &Mirror, url: &str) -> Result<()> {
        let temp = format!("{UNFINISHED}{}", random_hex::<4>());
        let git = at.git(GitDir::Bare(temp.clone()));
        git.printed(&INIT_BARE).await?;
        at.write(&format!("{temp}/config"), &config_of(Some(url))).await?;
        self.fill(at, &temp, mirror, &RemoteRefs::default()).await?;
        at.link.rename(at.file(&temp), "repo.git").await.map(drop).map_err(lost)
    }

    /// Sends missing objects, then updates the branches: a call that is killed in between leaves only unreferenced
    /// objects.
    async fn fill(&self, at: &Workdir, name: &str, mirror: &Mirror, have: &RemoteRefs) -> Result<()> {
        let git = at.git(GitDir::Bare(name.to_owned()));
        let wanted: BTreeMap<String, &String> =
            mirror.branches.iter().map(|(branch, id)| (format!("{ORIGIN}{branch}"), id)).collect();
        let changed: Vec<_> = wanted.iter().filter(|(name, id)| have.refs.get(*name) != Some(id)).collect();
        if !changed.is_empty() {
            self.send(at, name, mirror, have).await?;
        }
        let gone = have.refs.keys().filter(|it| !wanted.contains_key(*it));
        let gone: String = gone.map(|name| format!("delete {name}\n")).collect();
        let new: String = changed.iter().map(|(name, id)| format!("update {name} {id}\n")).collect();
        // Deletions first: `a` may have to be deleted before `a/b` is created.
        for lines in [gone, new].into_iter().filter(|it| !it.is_empty()) {
            git.fed(&["update-ref", "--stdin"], Input::Bytes(lines.into_bytes())).await?.good()?;
        }
        if let Some(head) =
            mirror.head.as_ref().map(|it| format!("{ORIGIN}{it}")).filter(|it| have.head.as_ref() != Some(it))
        {
            git.printed(&["symbolic-ref", "refs/remotes/origin/HEAD", &head]).await?;
        }
        Ok(())
    }

    /// Streams a pack from one git to the other, without a file on either side.
    async fn send(&self, at: &Workdir, name: &str, mirror: &Mirror, have: &RemoteRefs) -> Result<()> {
        let known = self.known(mirror, have).await?;
        let wants = mirror.branches.values().map(|id| format!("{id}\n"));
        let has = known.iter().map(|id| format!("^{id}\n"));
        let revisions: String = wants.chain(has).collect();
        self.send_pack(at, name, &mirror.dir, revisions).await
    }

    /// Sends objects of a repository on the host.
    pub(super) async fn send_pack(&self, at: &Workdir, name: &str, dir: &Path, revisions: String) -> Result<()> {
        let words = ["--git-dir=.", "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"];
        let stdin = Stdin::Input(Input::Bytes(revisions.into_bytes()));
        let command = GitCommand { stdin, ..git_command("git pack-objects", dir, words, self.settings.git_timeout) };
        let (packs, pack) = self.git.start(command).await.map_err(Failure::internal)?;
        let git = at.git(GitDir::Bare(name.to_owned()));
        let takes = ["index-pack", "--stdin", "--fix-thin"];
        let (packed, taken) = tokio::join!(
            packs.end("git pack-objects", self.settings.git_timeout),
            git.fed(&takes, Input::Stream(Box::new(pack)))
        );
        let (packed, taken) = (packed.map_err(Failure::internal)?, taken?);
        succeeded(packed)?;
        taken.good().map(drop)
    }

    /// Returns the commits that the repository inside claims to have and that the mirror has too.
    async fn known(&self, mirror: &Mirror, have: &RemoteRefs) -> Result<BTreeSet<String>> {
        let here: BTreeSet<&String> = mirror.branches.values().collect();
        let (mut known, candidates): (BTreeSet<_>, BTreeSet<_>) =
            have.refs.values().cloned().partition(|it| here.contains(it));
        if candidates.is_empty() {
            return Ok(known);
        }
        let lines: String = candidates.iter().map(|it| format!("{it}\n")).collect();
        let words = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
        let output = self
            .own(&mirror.dir, &words, Stdin::Input(Input::Bytes(lines.into_bytes())), self.settings.git_timeout)
            .await?;
        known.extend(
            parse::refs(&output.stdout.bytes()).into_iter().filter(|(_, kind)| kind == "commit").map(|(id, _)| id),
        );
        Ok(known)
    }
}

fn unreadable(dir: &Path) -> Failure {
    let message = format!("The repository in `{}` cannot be read.", dir.display());
    Failure::new(Code::RepoCorrupt, message).hint("remove the workflow; its work is saved")
}

/// Lists the entries of the root, and whether there are more; empty if it is missing.
pub(super) async fn entries(at: &Workdir, limit: u64) -> Result<(Vec<FileEntry>, bool)> {
    match at.link.list(at.file(""), limit).await {
        Ok(entries) => Ok(entries),
        Err(Error::Refused(fault)) if fault.code == ErrorCode::NotFound => Ok((Vec::new(), false)),
        Err(err) => Err(lost(err)),
    }
}
