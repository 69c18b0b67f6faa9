//! The container that steps work in, as all of them see it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_protocol::ErrorCode;
use coracle_types::{Command, ContainerPath, Error, Exec, ExecLimits, ExecOutput, Ids};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::step_error::StepError;

/// The container, the exec user and the time limits of all steps.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// The link to the guest.
    pub link: Link,
    /// The exec user.
    pub user: Ids,
    /// The exec user's home directory.
    pub home: ContainerPath,
    /// Where commands run.
    pub workdir: ContainerPath,
    /// A host directory is mounted at `workdir`.
    pub bound: bool,
    /// No user inside is root, so no step can run as root.
    pub rootless: bool,
    /// Variables of the exec user's commands beside those of the session, such as `HOME`.
    pub user_env: BTreeMap<String, String>,
    /// The same for root's commands.
    pub root_env: BTreeMap<String, String>,
    /// Time limit of a clone.
    pub clone_timeout: Duration,
    /// Time limit of a command.
    pub timeout: Duration,
    /// When the time of all steps together is over.
    pub deadline: Instant,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Ends the running command, and prevents the next ones.
    pub cancel: CancellationToken,
}

impl StepContext {
    /// Builds a command of the exec user in a directory. It ends after `timeout`, or when the time of all steps is
    /// over.
    #[must_use]
    pub fn exec(&self, command: Command, workdir: &ContainerPath, timeout: Duration) -> Exec {
        self.limited(Exec::new(command, self.user, workdir.clone()), &self.user_env, timeout)
    }

    /// Builds the same command as root.
    #[must_use]
    pub fn exec_as_root(&self, command: Command, workdir: &ContainerPath, timeout: Duration) -> Exec {
        self.limited(Exec::new(command, Ids::ROOT, workdir.clone()), &self.root_env, timeout)
    }

    fn limited(&self, mut exec: Exec, env: &BTreeMap<String, String>, timeout: Duration) -> Exec {
        exec.env = env.clone();
        exec.limits = ExecLimits { total: Some(timeout.min(self.left())), silence: None, grace: self.grace };
        exec.cancel = self.cancel.clone();
        exec
    }

    /// Returns the remaining time of all steps.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Runs a command, unless the call is cancelled or no time is left.
    pub(crate) async fn run(&self, exec: Exec) -> Result<ExecOutput, StepError> {
        if self.cancel.is_cancelled() {
            return Err(StepError::cancelled());
        }
        if self.left().is_zero() {
            return Err(StepError::no_time());
        }
        Ok(self.link.exec(exec).await?)
    }

    /// Creates a directory of the exec user and its parents. One that another process creates meanwhile is no error.
    pub(crate) async fn make_dirs(&self, path: &ContainerPath) -> Result<(), StepError> {
        match self.link.make_dir(self.at(path), 0o755, true).await {
            Err(Error::Refused(fault)) if fault.code == ErrorCode::Exists => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Runs something other than a command, until the call is cancelled or no time is left.
    pub(crate) async fn within<T>(&self, act: impl Future<Output = Result<T, StepError>>) -> Result<T, StepError> {
        match self.cancel.run_until_cancelled(timeout(self.left(), act)).await {
            None => Err(StepError::cancelled()),
            Some(Err(_)) => Err(StepError::no_time()),
            Some(Ok(done)) => done,
        }
    }

    /// A path, accessed as the exec user.
    #[must_use]
    pub fn at(&self, path: &ContainerPath) -> protocol::FileRef {
        at(self.user, path)
    }

    /// A path, accessed as root.
    #[must_use]
    pub fn at_as_root(&self, path: &ContainerPath) -> protocol::FileRef {
        at(Ids::ROOT, path)
    }
}

/// A path, accessed as a user.
pub(crate) fn at(user: Ids, path: &ContainerPath) -> protocol::FileRef {
    protocol::FileRef {
        user: protocol::UserSpec::Ids { uid: user.uid, gid: Some(user.gid) },
        path: path.to_string(),
        follow: true,
    }
}
