//! The mirror of a repository on the host: bare, private, in no container.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::git::InspectError;
use coracle_host::lock::Lock;
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_host::state_file::lock;
use coracle_lifecycle::STAGING_PREFIX;
use coracle_runtime::shell_word;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Error, SandboxWarning, random_hex};

use super::{SOON, WorktreeManager, parse};
use crate::local_repository::{LocalRepository, reason};
use crate::repository_source::{RepositorySource, checked_repository};
use crate::workflow_records::LOCK_TIMEOUT;

const REFSPEC: &str = "+refs/heads/*:refs/remotes/origin/*";

/// Ref prefix of the remote's branches, in the mirror and inside.
pub(super) const ORIGIN: &str = "refs/remotes/origin/";

/// Name prefixes of directories of single calls, none of which takes this long.
const TEMPORARY: &[&str] = &["quarantine-", STAGING_PREFIX, "coracle-ask-", "coracle-pipe-"];
const LEFT_BEHIND: Duration = Duration::from_secs(86_400);

/// The content of a mirror.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) dir: PathBuf,
    /// Commits of the remote's branches.
    pub(super) branches: BTreeMap<String, String>,
    /// The branch of the remote's HEAD.
    pub(super) head: Option<String>,
    pub(super) warnings: Vec<SandboxWarning>,
}

/// The source of a mirror, with facts about a directory.
#[derive(Clone, Copy)]
struct FetchSource<'a> {
    source: &'a RepositorySource,
    local: Option<&'a LocalRepository>,
}

impl WorktreeManager {
    pub(super) fn mirror_dir(&self, source: &RepositorySource) -> PathBuf {
        self.mirrors.join(format!("{}.git", source.key()))
    }

    pub(super) async fn mirror_lock(&self, source: &RepositorySource) -> Result<Lock> {
        lock(&self.mirrors.join(format!("{}.lock", source.key())), LOCK_TIMEOUT).await
    }

    /// Updates the mirror. If the remote is unreachable, returns the last state.
    pub(super) async fn fresh_mirror(&self, source: &RepositorySource) -> Result<Mirror> {
        let _lock = self.mirror_lock(source).await?;
        let local = match source {
            RepositorySource::Dir(from) => Some(self.local_source(from).await?),
            RepositorySource::Url(_) => None,
        };
        let from = FetchSource { source, local: local.as_ref() };
        local.as_ref().map_or(Ok(()), LocalRepository::fits_worktrees)?;
        let dir = self.mirror_dir(source);
        self.clear_unfinished(source)?;
        let mut warnings = Vec::new();
        if dir.exists() {
            if let Some(mirror) = self.current(source, &dir).await {
                return Ok(mirror);
            }
            match self.fetch(from, &dir).await {
                Ok(()) => return self.read_mirror(dir, warnings).await,
                Err(err) if self.is_sound(&dir).await => {
                    if !self.settings.offline_ok || !matches!(err.code, Code::FetchFailed | Code::HostUnresolved) {
                        return Err(err);
                    }
                    let message = format!("{err}; using what was fetched before");
                    warnings.push(SandboxWarning::new("fetch_stale", message));
                    return self.read_mirror(dir, warnings).await;
                }
                Err(_) => warnings.push(move_aside(&dir)?),
            }
        }
        self.create_mirror(from, &dir).await?;
        self.read_mirror(dir, warnings).await
    }

    /// Reads the mirror as it was last fetched.
    pub(super) async fn read_mirror(&self, dir: PathBuf, warnings: Vec<SandboxWarning>) -> Result<Mirror> {
        let output = self.own_printed(&dir, &["for-each-ref", parse::WITH_SYMREF, ORIGIN]).await?;
        Ok(mirror(dir, &output, warnings))
    }

    /// Returns the mirror if it is up to date: comparing refs takes a fraction of a fetch. An error here is ignored,
    /// since the fetch reports it.
    async fn current(&self, source: &RepositorySource, dir: &Path) -> Option<Mirror> {
        let url = source.text();
        let arguments = ["ls-remote", "--symref", "--", &url, "HEAD", "refs/heads/*"];
        let remote = self.own_with(dir, &arguments, Stdin::Empty, source.peer(), SOON);
        // Sorting by type makes git read the commits: a mirror with missing ones is not used.
        let own = ["for-each-ref", "--sort=objecttype", parse::WITH_SYMREF, ORIGIN];
        let (output, own) = tokio::join!(remote, self.own_printed(dir, &own));
        let output = output.ok().filter(|it| it.ok() && it.stdout.left_out() == 0)?.stdout.bytes();
        let mirror = mirror(dir.to_owned(), &own.ok()?, Vec::new());
        let head = parse::head_branch(&output);
        (mirror.branches == parse::heads(&output) && (head.is_none() || head == mirror.head)).then_some(mirror)
    }

    async fn create_mirror(&self, from: FetchSource<'_>, dir: &Path) -> Result<()> {
        let temp = self.mirrors.join(format!("{}.tmp-{}", from.source.key(), random_hex::<4>()));
        coracle_host::state_file::own_directory(&temp)?;
        let made = self.fill_new(from, &temp).await;
        let placed = match made {
            Ok(()) => std::fs::rename(&temp, dir).map_err(Failure::internal),
            Err(err) => Err(err),
        };
        if placed.is_err() {
            // The next call removes the rest.
            let _ = std::fs::remove_dir_all(&temp);
        }
        placed
    }

    async fn fill_new(&self, from: FetchSource<'_>, temp: &Path) -> Result<()> {
        self.own_init(temp, "sha1").await?;
        for (key, value) in [("remote.origin.url", &*from.source.text()), ("remote.origin.fetch", REFSPEC)] {
            self.own_printed(temp, &["config", key, value]).await?;
        }
        self.fetch(from, temp).await?;
        if self.is_sound(temp).await {
            Ok(())
        } else {
            Err(Failure::new(Code::FetchFailed, "What was fetched is not whole."))
        }
    }

    /// Fetches all branches, and the remote's HEAD. Retries once.
    async fn fetch(&self, from: FetchSource<'_>, dir: &Path) -> Result<()> {
        let first = self.fetch_once(from, dir).await;
        if first.as_ref().is_err_and(|it| matches!(it.code, Code::FetchFailed | Code::HostUnresolved)) {
            return self.fetch_once(from, dir).await;
        }
        first
    }

    async fn fetch_once(&self, from: FetchSource<'_>, dir: &Path) -> Result<()> {
        let FetchSource { source, local } = from;
        if let Some(local) = local {
            // Code that can write to it may have changed it since the first check.
            checked_repository(&local.dir, &self.settings.allow_roots)?;
        }
        let url = source.text();
        let words =
            ["fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", &url, REFSPEC];
        let fetches = self.own_with(dir, &words, Stdin::Empty, source.peer(), self.settings.git_timeout);
        let asks = ["ls-remote", "--symref", "--", &url, "HEAD"];
        let heads = self.own_with(dir, &asks, Stdin::Empty, source.peer(), SOON);
        let (fetched, head) = tokio::join!(fetches, heads);
        if let (Some(local), Ok(ended)) = (local, &fetched)
            && !ended.ok()
        {
            return Err(self.unreadable(local, ended).await);
        }
        if head.as_ref().is_ok_and(|it| parse::is_sha256(&it.stdout.bytes())) {
            let failure =
                Failure::new(Code::Unsupported, format!("`{url}` has SHA-256 objects: worktrees cannot be made of it"));
            return Err(failure.hint(format!("use `coracle create --repo {}`", shell_word(&url))));
        }
        good(fetched)?;
        // A remote without a HEAD is valid.
        let head = head.ok().filter(ProgramOutput::ok).and_then(|it| parse::head_branch(&it.stdout.bytes()));
        if let Some(head) = head {
            let target = format!("{ORIGIN}{head}");
            self.own_printed(dir, &["symbolic-ref", "refs/remotes/origin/HEAD", &target]).await?;
        }
        Ok(())
    }

    async fn is_sound(&self, dir: &Path) -> bool {
        let words = ["fsck", "--connectivity-only", "--no-dangling", "--no-progress"];
        self.own(dir, &words, Stdin::Empty, self.settings.git_timeout).await.is_ok_and(|it| it.ok())
    }

    /// Removes what a killed setup of this repository left, and what any other call left long ago. The caller holds the
    /// lock.
    fn clear_unfinished(&self, source: &RepositorySource) -> Result<()> {
        let prefix = format!("{}.tmp-", source.key());
        for entry in std::fs::read_dir(&self.mirrors).map_err(Failure::internal)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let changed = entry.metadata().and_then(|it| it.modified()).ok();
            let old = changed.and_then(|it| it.elapsed().ok()).is_some_and(|it| it > LEFT_BEHIND);
            if name.starts_with(&prefix) || (old && TEMPORARY.iter().any(|it| name.starts_with(it))) {
                std::fs::remove_dir_all(entry.path()).map_err(Failure::internal)?;
            }
        }
        Ok(())
    }
}

/// Parses the output of `for-each-ref` for a mirror.
fn mirror(dir: PathBuf, output: &[u8], warnings: Vec<SandboxWarning>) -> Mirror {
    let (found, head) = parse::refs_and_head(output);
    let branch = |name: &String| name.strip_prefix(ORIGIN).map(str::to_owned);
    let head = head.as_ref().and_then(branch);
    let branches = found.into_iter().filter_map(|(name, id)| Some((branch(&name)?, id))).collect();
    Mirror { dir, branches, head, warnings }
}

pub(super) fn good(fetched: Result<ProgramOutput, InspectError>) -> Result<()> {
    match fetched {
        Ok(it) if it.ok() => Ok(()),
        Ok(it) => {
            let message = format!("The repository cannot be fetched: {}", reason(&it.stderr.bytes()));
            Err(Failure::new(Code::FetchFailed, message)
                .hint("`git ls-remote URL` on the host shows whether you may read it"))
        }
        Err(InspectError::Host(err @ Error::TimedOut { .. })) => Err(Failure::new(Code::FetchFailed, err.to_string())),
        Err(err) => Err(super::host(err)),
    }
}

fn move_aside(dir: &Path) -> Result<SandboxWarning> {
    let at = jiff::Timestamp::now().as_millisecond();
    let aside = dir.with_extension(format!("git.broken-{at}"));
    std::fs::rename(dir, &aside).map_err(Failure::internal)?;
    let message = format!("the mirror was damaged and was created again; the old one is `{}`", aside.display());
    Ok(SandboxWarning::new("repo_corrupt", message))
}
