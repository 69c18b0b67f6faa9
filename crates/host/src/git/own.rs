//! Git on Coracle's own bare repositories, which no container can write to.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_types::{Error, ExecLimits, Result, Secret};
use tokio::process::{Child, ChildStdout};
use tokio::sync::OnceCell;

use super::clone::{IMPATIENT, pin, wants_credential};
use super::credential::Credential;
use super::program::newest_git;
use super::{GitProgram, InspectError};
use crate::drain::{Drain, DrainOutcome};
use crate::find_program::find_program_in;
use crate::git_url::GitUrl;
use crate::hardened::{self, Side};
use crate::process::{Invocation, ProgramOutput, Stdin, spawn};
use crate::process_group::ProcessGroup;

/// Added to the settings of every git.
const SETTINGS: &[&str] = &["pack.threads=0", "push.followTags=false"];

/// Uses the user's keys, without features that another host could use.
const SSH: &str = "ssh -oBatchMode=yes -oForwardAgent=no -oPermitLocalCommand=no";

/// Variables of the user that an SSH program needs.
const FOR_SSH: &[&str] = &["HOME", "USER", "SSH_AUTH_SOCK"];

/// The remote of a git command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer<'a> {
    /// No network.
    None,
    /// A directory of this host.
    Dir,
    /// A server.
    Url(&'a GitUrl),
}

/// A git command.
#[derive(Debug)]
pub struct GitCommand<'a> {
    /// Its name in errors.
    pub verb: &'static str,
    /// Its working directory.
    pub dir: &'a Path,
    /// Its arguments after the settings. Variable ones follow `--`.
    pub words: Vec<OsString>,
    /// Added to its environment.
    pub env: Vec<(&'static str, OsString)>,
    /// Its input. Empty for a server, since the command may run twice.
    pub stdin: Stdin,
    /// The time limit.
    pub deadline: Duration,
    /// Captured bytes of each output.
    pub keep_bytes: usize,
}

/// The user's login on a server.
#[derive(Debug)]
pub struct Login {
    /// The user name.
    pub username: String,
    /// The password, or a token.
    pub password: Secret,
}

/// The host's git, isolated from the user's configuration.
#[derive(Clone)]
pub struct IsolatedGit {
    /// Directories of the user's `PATH`, as for [`newest_git`].
    own: Vec<PathBuf>,
    /// The newest git, once it is known.
    newest: Arc<OnceCell<PathBuf>>,
    /// The parent of temporary directories.
    scratch: PathBuf,
    /// The environment of the user's credential helper and SSH program.
    user_env: BTreeMap<String, OsString>,
    /// Plain `http` and private addresses are allowed.
    allow_private: bool,
    /// Received objects are checked.
    fsck: bool,
}

impl fmt::Debug for IsolatedGit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IsolatedGit").field("newest", &self.newest).finish_non_exhaustive()
    }
}

/// A git process with its output as a stream. Dropping it ends the whole process tree.
pub struct GitProcess {
    /// Dropped before the program.
    group: ProcessGroup,
    child: Child,
    drain: Drain,
}

impl fmt::Debug for GitProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitProcess").field("pid", &self.child.id()).finish_non_exhaustive()
    }
}

impl IsolatedGit {
    /// Uses the newest installed git, with checked objects and without private addresses. `own` are directories of the
    /// user's `PATH`, as for [`newest_git`].
    ///
    /// # Errors
    /// [`Error::NotInstalled`].
    pub fn of_this_host(own: Vec<PathBuf>, scratch: PathBuf, user_env: BTreeMap<String, OsString>) -> Result<Self> {
        find_program_in("git", &own)?;
        Ok(Self { own, newest: Arc::default(), scratch, user_env, allow_private: false, fsck: true })
    }

    /// Returns the path of the git program.
    ///
    /// # Errors
    /// [`Error::NotInstalled`] if it was removed since.
    pub async fn program(&self) -> Result<&Path> {
        self.newest.get_or_try_init(|| newest_git(&self.own)).await.map(PathBuf::as_path)
    }

    /// Returns the login of the user's credential helper for a URL. `None` if it has none.
    ///
    /// # Errors
    /// If git fails.
    pub async fn login(&self, url: &GitUrl) -> Result<Option<Login>> {
        let known = Credential::request(self.program().await?, url, &self.user_env, &self.scratch).await?;
        Ok(known.and_then(|it| it.login()))
    }

    /// Sets whether private addresses are allowed, and whether received objects are checked.
    #[must_use]
    pub fn with(self, allow_private: bool, fsck: bool) -> Self {
        Self { allow_private, fsck, ..self }
    }

    /// Runs git to its end. If a server requires authentication, git runs again with the user's credential, over https
    /// only (or within this host).
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Spawn`]; [`InspectError`] for an address that is refused.
    pub async fn run(&self, command: GitCommand<'_>, peer: Peer<'_>) -> Result<ProgramOutput, InspectError> {
        let pinned = match peer {
            Peer::Url(url) if !self.allow_private => self.addresses(url).await?,
            _ => Vec::new(),
        };
        let Peer::Url(url) = peer else { return Ok(self.once(command, peer, &[], None).await?) };
        let GitCommand { verb, dir, ref words, ref env, deadline, keep_bytes, .. } = command;
        let again =
            GitCommand { verb, dir, words: words.clone(), env: env.clone(), stdin: Stdin::Empty, deadline, keep_bytes };
        let first = self.once(command, peer, &pinned, None).await?;
        if first.ok() || !may_have_credential(url) || !wants_credential(&first.stderr.bytes()) {
            return Ok(first);
        }
        let Some(found) = Credential::request(self.program().await?, url, &self.user_env, &self.scratch).await? else {
            return Ok(first);
        };
        let pipe = found.piped(&self.scratch)?;
        Ok(self.once(again, peer, &pinned, Some(pipe.helper())).await?)
    }

    /// Starts git with its output as a pipe.
    ///
    /// # Errors
    /// [`Error::Spawn`].
    pub async fn start(&self, command: GitCommand<'_>) -> Result<(GitProcess, ChildStdout)> {
        let program = self.program().await?;
        let mut child = spawn(&self.invocation(program, &command, Peer::None, &[], None), command.stdin)?;
        let group = ProcessGroup::new(&child);
        let stdout = child.stdout.take().expect("its output is a pipe");
        let drain = Drain::new(&mut child, command.keep_bytes, None);
        Ok((GitProcess { group, child, drain }, stdout))
    }

    async fn addresses(&self, url: &GitUrl) -> Result<Vec<SocketAddr>, InspectError> {
        let program = self.program().await?;
        GitProgram::with_program(Some(program.to_owned())).addresses(program, url).await
    }

    async fn once(
        &self,
        command: GitCommand<'_>,
        peer: Peer<'_>,
        pinned: &[SocketAddr],
        helper: Option<String>,
    ) -> Result<ProgramOutput> {
        let (verb, deadline, keep_bytes) = (command.verb, command.deadline, command.keep_bytes);
        let program = self.program().await?;
        let mut child = spawn(&self.invocation(program, &command, peer, pinned, helper), command.stdin)?;
        let group = ProcessGroup::new(&child);
        let drain = Drain::new(&mut child, keep_bytes, None);
        GitProcess { group, child, drain }.end(verb, deadline).await
    }

    fn invocation(
        &self,
        program: &Path,
        command: &GitCommand<'_>,
        peer: Peer<'_>,
        pinned: &[SocketAddr],
        helper: Option<String>,
    ) -> Invocation {
        let mut settings: Vec<String> = hardened::settings(Side::Host)
            .chain(SETTINGS.iter().chain(IMPATIENT).copied())
            .map(str::to_owned)
            .collect();
        if !self.fsck {
            settings.extend(["fetch.fsckObjects=false", "transfer.fsckObjects=false"].map(str::to_owned));
        }
        let protocol = match peer {
            Peer::None => "none",
            Peer::Dir => "file",
            Peer::Url(url) if url.is_ssh() => "ssh",
            Peer::Url(url) if url.insecure() => "http",
            Peer::Url(_) => "https",
        };
        if peer != Peer::None {
            settings.push(format!("protocol.{protocol}.allow=always"));
        }
        if let Peer::Url(url) = peer {
            settings.extend(pin(url, pinned).map(|it| format!("http.curloptResolve={it}")));
        }
        settings.extend(helper.map(|it| format!("credential.helper={it}")));
        let place = ["-C".into(), command.dir.as_os_str().to_owned()];
        let settings = settings.into_iter().flat_map(|it| ["-c".into(), it.into()]);
        let mut it = Invocation::new(program, place.into_iter().chain(settings).chain(command.words.clone()));
        it.env = hardened::environment(Side::Host).map(|(name, value)| (name.to_owned(), value.into())).collect();
        it.env.insert("GIT_ALLOW_PROTOCOL".into(), protocol.into());
        if protocol == "ssh" {
            it.env.insert("GIT_SSH_COMMAND".into(), SSH.into());
            it.env.extend(FOR_SSH.iter().filter_map(|it| Some(((*it).to_owned(), self.user_env.get(*it)?.clone()))));
        }
        it.env.extend(command.env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        it
    }
}

impl GitProcess {
    /// Waits for its end.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub async fn end(mut self, verb: &'static str, deadline: Duration) -> Result<ProgramOutput> {
        let within = ExecLimits { total: Some(deadline), ..ExecLimits::default() };
        let never = tokio_util::sync::CancellationToken::new();
        match self.drain.until_end(&mut self.child, &within, &never).await {
            DrainOutcome::Exited(exit) => {
                self.group.ended();
                let (stdout, stderr) = self.drain.finish(&mut self.child).await;
                Ok(ProgramOutput { exit, stdout, stderr })
            }
            _ => Err(Error::TimedOut { verb, after: deadline }),
        }
    }
}

/// Whether this user owns a file or directory, or the user who became root by `sudo` (its variable `SUDO_UID`): git's
/// own rule for repositories.
#[must_use]
pub fn is_own(place: &Path, sudo_uid: Option<&OsStr>) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let before_sudo = sudo_uid.filter(|_| me == 0).and_then(|uid| uid.to_str()?.parse::<u32>().ok());
    place.metadata().is_ok_and(|it| it.uid() == me || Some(it.uid()) == before_sudo)
}

/// Over plain http a credential could be intercepted on the network.
fn may_have_credential(url: &GitUrl) -> bool {
    !url.is_ssh() && (!url.insecure() || url.address().is_some_and(|it| it.is_loopback()))
}
