//! The manager of worktrees, one file for each of its tasks.

pub(crate) mod apply;
mod archive;
pub(crate) mod create;
pub(crate) mod diff;
pub(crate) mod directory_copy;
mod dirty;
pub(crate) mod export;
pub(crate) mod git_in_container;
pub(crate) mod init_repository;
pub(crate) mod inspect;
pub(crate) mod item_save;
mod leftover;
pub(crate) mod list;
mod local_source;
pub(crate) mod log;
mod mirror;
pub(crate) mod push;
pub(crate) mod remove;
pub(crate) mod remove_request;
mod review;
mod save;
mod save_remaining;
pub(crate) mod source_changes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::git::{GitCommand, InspectError, IsolatedGit, Peer};
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_host::resolver::ResolveError;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Error, Excerpt, WorkflowId};

use self::git_in_container::Workdir;
use crate::git_output as parse;
use crate::settings::WorktreeSettings;
use crate::workflow_records::{Records, Repository, Workflow};

/// Creates, inspects and removes worktrees, and exports their work.
#[derive(Debug)]
pub struct WorktreeManager {
    settings: WorktreeSettings,
    /// The directory of mirrors.
    mirrors: PathBuf,
    git: IsolatedGit,
}

impl WorktreeManager {
    /// Finds the host's git.
    ///
    /// # Errors
    /// `git_missing`.
    pub fn new(settings: WorktreeSettings) -> Result<Self> {
        let mirrors = settings.state.join("git");
        coracle_host::state_file::own_directory(&mirrors)?;
        let git = IsolatedGit::of_this_host(settings.programs.clone(), mirrors.clone(), settings.user_env.clone())
            .map_err(|_| Failure::new(Code::GitMissing, "There is no git on this host.").hint("install git"))?;
        let git = git.with(settings.allow_private, settings.fsck);
        let manager = Self { settings, mirrors, git };
        manager.write_any_owner()?;
        Ok(manager)
    }

    /// Timeout of a git command that reads or writes a whole repository.
    #[must_use]
    pub fn git_timeout(&self) -> Duration {
        self.settings.git_timeout
    }

    fn records(&self, at: &Workdir) -> Result<Records> {
        Records::open(&self.settings.state, &at.key)
    }

    /// Lists the recorded workflows of a sandbox, whether it runs or not.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn remembered(&self, key: &str) -> Result<Vec<WorkflowId>> {
        Records::open(&self.settings.state, key)?.ids()
    }

    /// Returns the repository of a sandbox before the container is accessed: the one that it has, else the one that it
    /// is to get.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn repository(&self, key: &str) -> Result<Option<String>> {
        let records = Records::open(&self.settings.state, key)?;
        let known = records.repository()?.map_or_else(|| records.wanted(), |it| Ok(Some(it)))?;
        Ok(known.map(|it| it.url))
    }

    /// Whether a sandbox has a repository, or had one and its removal was interrupted.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn has_repository(&self, key: &str) -> Result<bool> {
        Ok(Records::open(&self.settings.state, key)?.repository()?.is_some())
    }

    /// Records the repository of a sandbox without one, if the sandbox is `new`. The first call decides, since the
    /// sandbox's grants depend on it.
    ///
    /// # Errors
    /// `invalid_url`, `policy_denied`; `branch_conflict` if another one is recorded; if the state directory cannot be
    /// written.
    pub async fn want_repository(&self, key: &str, source: &str, new: bool) -> Result<()> {
        let url = self.source(source)?.text();
        let records = Records::open(&self.settings.state, key)?;
        let _lock = records.lock("wanted").await?;
        if records.repository()?.is_some() {
            return Ok(());
        }
        match records.wanted()? {
            Some(other) if other.url != url => {
                let message = format!("This sandbox is about to get the repository `{}`.", other.url);
                let failure = Failure::new(Code::BranchConflict, message);
                Err(failure.hint("work on that repository, or remove the sandbox if it is not in use"))
            }
            None if new => records.want(&Repository { url }),
            _ => Ok(()),
        }
    }

    /// Deletes the record after the sandbox was removed: the next one of that key may use another repository.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn forget_repository(&self, key: &str) -> Result<()> {
        Records::open(&self.settings.state, key)?.forget_repository()
    }

    /// Reads the record of a workflow.
    fn workflow(&self, at: &Workdir, id: &WorkflowId) -> Result<Workflow> {
        self.records(at)?.workflow(id)?.ok_or_else(|| no_worktree(id))
    }

    /// Runs git in a bare repository of Coracle.
    async fn own(&self, dir: &Path, words: &[&str], stdin: Stdin, deadline: Duration) -> Result<ProgramOutput> {
        self.own_with(dir, words, stdin, Peer::None, deadline).await.map_err(host)
    }

    async fn own_with(
        &self,
        dir: &Path,
        words: &[&str],
        stdin: Stdin,
        peer: Peer<'_>,
        deadline: Duration,
    ) -> Result<ProgramOutput, InspectError> {
        let command = git_command("git", dir, ["--git-dir=."].iter().chain(words), deadline);
        let any_owner = (peer == Peer::Dir).then(|| ("GIT_CONFIG_GLOBAL", self.any_owner().into_os_string()));
        let env = any_owner.into_iter().collect();
        self.git.run(GitCommand { env, stdin, keep_bytes: 2 * MAX_OUTPUT, ..command }, peer).await
    }

    /// Returns git's output in a bare repository of Coracle. Fails if git does.
    async fn own_printed(&self, dir: &Path, words: &[&str]) -> Result<Vec<u8>> {
        Ok(succeeded(self.own(dir, words, Stdin::Empty, SOON).await?)?.stdout.bytes())
    }

    /// Creates a bare repository in a temporary directory, with the objects of `mirror` as alternates.
    async fn quarantine(&self, mirror: Option<&Path>) -> Result<tempfile::TempDir> {
        self.quarantine_of("sha1", mirror).await
    }

    /// Creates one with another object format.
    async fn quarantine_of(&self, format: &str, mirror: Option<&Path>) -> Result<tempfile::TempDir> {
        let dir =
            tempfile::Builder::new().prefix("quarantine-").tempdir_in(&self.mirrors).map_err(Failure::internal)?;
        self.own_init(dir.path(), format).await?;
        if let Some(mirror) = mirror {
            let line = format!("{}\n", mirror.join("objects").display());
            let info = dir.path().join("objects/info");
            let written = std::fs::create_dir_all(&info).and_then(|()| std::fs::write(info.join("alternates"), line));
            written.map_err(Failure::internal)?;
        }
        Ok(dir)
    }

    async fn own_init(&self, dir: &Path, format: &str) -> Result<()> {
        let format = format!("--object-format={format}");
        // Git before 2.29 does not support the option, and has one format.
        let format = (format != "--object-format=sha1").then_some(&*format);
        let init = git_command("git init", dir, INIT_BARE.into_iter().chain(format), SOON);
        succeeded(self.git.run(init, Peer::None).await.map_err(host)?).map(drop)
    }
}

/// Creates a bare repository without hooks.
const INIT_BARE: [&str; 5] = ["init", "--quiet", "--bare", "--template=", "--initial-branch=main"];

/// Builds a git command without input.
fn git_command<'a>(
    verb: &'static str,
    dir: &'a Path,
    args: impl IntoIterator<Item = impl Into<OsString>>,
    deadline: Duration,
) -> GitCommand<'a> {
    let words = args.into_iter().map(Into::into).collect();
    GitCommand { verb, dir, words, env: Vec::new(), stdin: Stdin::Empty, deadline, keep_bytes: 8192 }
}

/// Fails unless git succeeded.
fn succeeded(ended: ProgramOutput) -> Result<ProgramOutput> {
    if ended.ok() { Ok(ended) } else { Err(Failure::internal(Excerpt::from_bytes(&ended.stderr.bytes()))) }
}

/// Timeout of quick commands.
const SOON: Duration = Duration::from_secs(60);

/// Maximum size of git's output.
const MAX_OUTPUT: usize = 32 << 20;

/// Converts an error of the host's git.
fn host(err: InspectError) -> Failure {
    match err {
        InspectError::Address(err @ ResolveError::Private { .. }) => {
            Failure::new(Code::PolicyDenied, err.to_string()).detail("rule", "repo.private")
        }
        // Not a refusal: the name server does not know the host, or does not answer.
        InspectError::Address(err) => Failure::new(Code::HostUnresolved, err.to_string()),
        InspectError::Host(Error::TimedOut { .. }) => Failure::new(Code::CommandTimedOut, err.to_string()),
        err => Failure::internal(err),
    }
}

fn no_worktree(id: &WorkflowId) -> Failure {
    Failure::new(Code::WorktreeMissing, format!("There is no worktree `{id}`.")).hint("`list` shows them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_call_decides_the_repository_of_a_sandbox() {
        let state = tempfile::tempdir().unwrap();
        let manager = WorktreeManager::new(WorktreeSettings::new(state.path().to_owned())).unwrap();
        let [x, y] = ["https://example.com/x.git", "https://example.com/y.git"];
        manager.want_repository("k", x, false).await.unwrap();
        assert_eq!(manager.repository("k").unwrap(), None, "an existing sandbox does not change");
        manager.want_repository("k", x, true).await.unwrap();
        for new in [true, false] {
            manager.want_repository("k", x, new).await.unwrap();
            let refused = manager.want_repository("k", y, new).await.unwrap_err();
            assert_eq!(refused.code, Code::BranchConflict);
        }
        assert_eq!(manager.repository("k").unwrap().as_deref(), Some(x));
        assert!(!manager.has_repository("k").unwrap(), "it is only recorded");
        manager.forget_repository("k").unwrap();
        manager.want_repository("k", y, true).await.unwrap();
        assert_eq!(manager.repository("k").unwrap().as_deref(), Some(y));
    }

    #[test]
    fn a_host_without_an_address_is_refused_by_no_rule() {
        let of = |err: ResolveError| host(InspectError::Address(err));
        let unknown =
            of(ResolveError::Unknown { host: "nowhere.invalid".into(), source: std::io::ErrorKind::NotFound.into() });
        assert_eq!((&unknown.code, unknown.retryable), (&Code::HostUnresolved, true));
        assert!(!unknown.details.contains_key("rule"));
        assert_eq!(of(ResolveError::Slow { host: "x".into() }).code, Code::HostUnresolved);
        let private = of(ResolveError::Private { host: "x".into(), address: [127, 0, 0, 1].into() });
        assert_eq!((&private.code, &private.details["rule"]), (&Code::PolicyDenied, &"repo.private".into()));
    }
}
