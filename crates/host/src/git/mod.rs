//! Git on the host, without influence of a repository or a container on what it runs.
//!
//! **Invariant:** git runs only in Coracle's own directories, never in one that a container could write to; there only
//! `git config` lists the configuration.
//! **Invariant:** a clone uses no configuration, no credential and no variable of the user.

mod clone;
mod credential;
mod limited;
mod own;
mod program;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use coracle_types::{Error, Excerpt};
use tokio_util::sync::CancellationToken;

pub use self::own::{GitCommand, GitProcess, IsolatedGit, Login, Peer, is_own};
pub use self::program::{GitVersion, newest_git, version_of};
use super::process::{Invocation, Stdin, run};
use crate::branch::BranchName;
use crate::git_url::GitUrl;
use crate::resolver::ResolveError;

/// The git of this host. A trait, because a host may have no git, or one that fails.
#[async_trait]
pub trait HostGit: fmt::Debug + Send + Sync {
    /// Returns the user's own configuration as `git config --list -z` prints it: `key\nvalue\0`, or `key\0` without a
    /// value. At most 1 MiB, within 10 s; git searches only these two directories.
    ///
    /// # Errors
    /// [`ConfigError`].
    async fn global_config(&self, home: &Path, xdg_config_home: Option<&Path>) -> Result<Vec<u8>, ConfigError>;

    /// Lists the names at the top of a repository, without running or trusting anything in it. Downloaded data is
    /// stored below `temp_dir` meanwhile, and removed shortly after, even if the caller cancels.
    ///
    /// # Errors
    /// [`InspectError`].
    async fn top_level(&self, remote: &Remote, temp_dir: &Path) -> Result<Vec<String>, InspectError>;
}

/// A repository to inspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The URL.
    pub url: GitUrl,
    /// The branch, or none for the default branch.
    pub branch: Option<BranchName>,
    /// Its host may have a private address (`images.git_allow_private`).
    pub allow_private: bool,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Git is not installed.
    #[error("there is no git on this host")]
    NoGit,
    /// The user has none.
    #[error("there is no git configuration on this host")]
    Empty,
    /// It exceeds the maximum size.
    #[error("the git configuration of this host has more than {} bytes", GitProgram::MAX_CONFIG)]
    TooLarge,
    /// Git cannot read it.
    #[error("git cannot read its configuration: {0}")]
    Broken(Excerpt),
    /// Git failed.
    #[error(transparent)]
    Host(Error),
}

/// Why a repository could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Git is not installed.
    #[error("there is no git on this host")]
    NoGit,
    /// Git before 2.37 does not support fixed addresses.
    #[error("git on this host is older than 2.37")]
    OldGit,
    /// Its host has no public address.
    #[error(transparent)]
    Address(#[from] ResolveError),
    /// It needs a credential, and none is used. Servers also request one for repositories that do not exist.
    #[error("the repository is private, or there is none")]
    Private,
    /// It cannot be fetched.
    #[error("the repository cannot be fetched: {0}")]
    Unreachable(Excerpt),
    /// It exceeds the maximum size.
    #[error("the repository is too big: more than {max_bytes} bytes without its files")]
    TooBig {
        /// The limit.
        max_bytes: u64,
    },
    /// It takes longer than allowed.
    #[error("the repository could not be fetched within {} s", after.as_secs())]
    TooSlow {
        /// The limit.
        after: Duration,
    },
    /// A failure of the host.
    #[error(transparent)]
    Host(#[from] Error),
}

/// The git of this host, run as a program.
#[derive(Clone, Debug)]
pub struct GitProgram {
    /// Absolute path, if it is installed.
    pub program: Option<PathBuf>,
    /// Timeout of an inspection.
    pub deadline: Duration,
    /// Maximum size of fetched data.
    pub max_bytes: u64,
}

impl GitProgram {
    const MAX_CONFIG: usize = 1 << 20;
    const CONFIG_DEADLINE: Duration = Duration::from_secs(10);

    /// Finds the newest installed git, if any. `own` are directories of the user's `PATH`, as for [`newest_git`].
    pub async fn of_this_host(own: &[PathBuf]) -> Self {
        Self::with_program(newest_git(own).await.ok())
    }

    /// Uses a git that was found before.
    #[must_use]
    pub fn with_program(program: Option<PathBuf>) -> Self {
        Self { program, deadline: Duration::from_secs(30), max_bytes: 64 << 20 }
    }
}

impl GitProgram {
    /// Returns the configuration of the user's git in a directory, as `git config --list --show-origin -z` prints it:
    /// `file:origin\0key\nvalue\0`. Relative origins are relative to the directory. `git config` runs no program from
    /// the configuration.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub async fn effective_config(
        &self,
        dir: &Path,
        home: &Path,
        xdg_config_home: Option<&Path>,
    ) -> Result<Vec<u8>, ConfigError> {
        // The directory may belong to another user than this process.
        let words = ["-c", "safe.directory=*", "config", "--list", "--includes", "--show-origin", "-z"];
        let words = [OsStr::new("-C"), dir.as_os_str()].into_iter().chain(words.map(OsStr::new));
        self.config(words, home, xdg_config_home).await
    }

    async fn config<'a>(
        &self,
        words: impl IntoIterator<Item = &'a OsStr>,
        home: &Path,
        xdg_config_home: Option<&Path>,
    ) -> Result<Vec<u8>, ConfigError> {
        let program = self.program.as_ref().ok_or(ConfigError::NoGit)?;
        let mut asks = Invocation::new(program, words);
        asks.env.insert("PATH".into(), "/usr/bin:/bin".into());
        asks.env.insert("HOME".into(), home.into());
        asks.env.extend(xdg_config_home.map(|it| ("XDG_CONFIG_HOME".into(), it.into())));
        let limits = (Self::CONFIG_DEADLINE, 2 * Self::MAX_CONFIG);
        let output = run("git config", &asks, Stdin::Empty, limits).await.map_err(ConfigError::Host)?;
        if output.stdout.total_bytes() > Self::MAX_CONFIG as u64 {
            return Err(ConfigError::TooLarge);
        }
        match (output.ok(), output.stdout.total_bytes()) {
            (true, 1..) => Ok(output.stdout.bytes()),
            // Git fails both if the file does not exist and if it cannot be read.
            (false, _) if !output.stderr.bytes().is_empty() => {
                Err(ConfigError::Broken(Excerpt::from_bytes(&output.stderr.bytes())))
            }
            _ => Err(ConfigError::Empty),
        }
    }
}

#[async_trait]
impl HostGit for GitProgram {
    async fn global_config(&self, home: &Path, xdg_config_home: Option<&Path>) -> Result<Vec<u8>, ConfigError> {
        // Run in `/`: the current directory may be a repository that a container can write to.
        let words = ["-C", "/", "config", "--global", "--list", "--includes", "-z"];
        match self.config(words.map(OsStr::new), home, xdg_config_home).await {
            // Git does not distinguish a missing file, so it is checked here.
            Err(ConfigError::Broken(_)) if !has_config(home, xdg_config_home) => Err(ConfigError::Empty),
            read => read,
        }
    }

    async fn top_level(&self, remote: &Remote, temp_dir: &Path) -> Result<Vec<String>, InspectError> {
        let cancel = CancellationToken::new();
        let _withdrawn = cancel.clone().drop_guard();
        let (git, remote, temp_dir) = (self.clone(), remote.clone(), temp_dir.to_owned());
        // A separate task, so that cleanup finishes even if the caller is gone.
        let looks = tokio::spawn(async move { git.inspect_clone(&remote, &temp_dir, &cancel).await });
        looks.await.unwrap_or_else(|err| {
            Err(Error::Host { what: "inspecting a repository failed".into(), source: err.into() }.into())
        })
    }
}

fn has_config(home: &Path, xdg_config_home: Option<&Path>) -> bool {
    let xdg = xdg_config_home.map_or_else(|| home.join(".config"), Path::to_owned);
    home.join(".gitconfig").exists() || xdg.join("git/config").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(config: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".gitconfig"), config).unwrap();
        home
    }

    async fn read(home: &tempfile::TempDir) -> Result<String, ConfigError> {
        let bytes = GitProgram::of_this_host(&[]).await.global_config(home.path(), None).await?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[tokio::test]
    async fn the_users_configuration_is_read_with_included_files() {
        let home = home("[user]\n\tname = \"A; B\\n C\"\n[push]\n\tdefault\n[include]\n\tpath = more\n");
        std::fs::write(home.path().join("more"), "[user]\n\temail = a@example.com\n").unwrap();
        let config = read(&home).await.unwrap();
        assert_eq!(config, "user.name\nA; B\n C\0push.default\0include.path\nmore\0user.email\na@example.com\0");
        let (xdg, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(xdg.path().join("git")).unwrap();
        std::fs::write(xdg.path().join("git/config"), "[user]\n\tname = X\n").unwrap();
        let found = GitProgram::of_this_host(&[]).await.global_config(empty.path(), Some(xdg.path())).await.unwrap();
        assert_eq!(found, b"user.name\nX\0");
    }

    #[tokio::test]
    async fn the_configuration_of_repository_and_user_is_read_with_its_files() {
        let home = home("[core]\n\thooksPath = scripts\n");
        let work = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(work.path().join(".git/objects")).unwrap();
        std::fs::create_dir_all(work.path().join(".git/refs")).unwrap();
        std::fs::write(work.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(work.path().join(".git/config"), "[include]\n\tpath = ../more\n").unwrap();
        std::fs::write(work.path().join("more"), "[core]\n\tfsmonitor = ./watch\n").unwrap();
        let read = GitProgram::of_this_host(&[]).await.effective_config(work.path(), home.path(), None).await.unwrap();
        let global = format!("file:{}\0core.hookspath\nscripts\0", home.path().join(".gitconfig").display());
        let text = String::from_utf8(read).unwrap();
        assert!(text.contains(&global), "{text:?}");
        assert!(text.contains("file:.git/config\0include.path\n../more\0"), "{text:?}");
        assert!(text.contains("file:.git/../more\0core.fsmonitor\n./watch\0"), "{text:?}");
    }

    #[tokio::test]
    async fn a_missing_configuration_has_a_reason() {
        assert!(matches!(read(&tempfile::tempdir().unwrap()).await, Err(ConfigError::Empty)));
        assert!(matches!(read(&home("")).await, Err(ConfigError::Empty)));
        assert!(matches!(read(&home("[user\n")).await, Err(ConfigError::Broken(_))));
        let large = format!("[user]\n\tname = {}\n", "x".repeat(1 << 20));
        assert!(matches!(read(&home(&large)).await, Err(ConfigError::TooLarge)));
        let none = GitProgram { program: None, ..GitProgram::of_this_host(&[]).await };
        assert!(matches!(none.global_config("/".as_ref(), None).await, Err(ConfigError::NoGit)));
    }
}
