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

/// Who works where, and for how long.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// The link to the guest.
    pub link: Link,
    /// The exec user.
    pub user: Ids,
    /// Its home.
    pub home: ContainerPath,
    /// Where commands run.
    pub workdir: ContainerPath,
    /// A host directory is bound at `workdir`.
    pub bound: bool,
    /// No user inside is root, so nothing can be done as root.
    pub rootless: bool,
    /// Variables of a command of the exec user beside those of the session: `HOME` and the like.
    pub user_env: BTreeMap<String, String>,
    /// The same for root.
    pub root_env: BTreeMap<String, String>,
    /// Time of a clone.
    pub clone_timeout: Duration,
    /// Time of a command.
    pub timeout: Duration,
    /// When the time of all steps together is over.
    pub deadline: Instant,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Ends the command that runs, and all that would follow.
    pub cancel: CancellationToken,
}

impl StepContext {
    /// A command of the exec user in a directory; it ends after `timeout`, or with the time of all.
    #[must_use]
    pub fn exec(&self, command: Command, workdir: &ContainerPath, timeout: Duration) -> Exec {
        self.limited(Exec::new(command, self.user, workdir.clone()), &self.user_env, timeout)
    }

    /// The same as root.
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

    /// What is left of the time of all steps.
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

    /// Makes a directory of the exec user's and those above it. One that another process makes meanwhile is fine.
    pub(crate) async fn make_dirs(&self, path: &ContainerPath) -> Result<(), StepError> {
        match self.link.make_dir(self.at(path), 0o755, true).await {
            Err(Error::Refused(fault)) if fault.code == ErrorCode::Exists => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Does something that is no command, until the call is cancelled or no time is left.
    pub(crate) async fn within<T>(&self, act: impl Future<Output = Result<T, StepError>>) -> Result<T, StepError> {
        match self.cancel.run_until_cancelled(timeout(self.left(), act)).await {
            None => Err(StepError::cancelled()),
            Some(Err(_)) => Err(StepError::no_time()),
            Some(Ok(done)) => done,
        }
    }

    /// A path, as the exec user.
    #[must_use]
    pub fn at(&self, path: &ContainerPath) -> protocol::FileRef {
        at(self.user, path)
    }

    /// A path, as root.
    #[must_use]
    pub fn at_as_root(&self, path: &ContainerPath) -> protocol::FileRef {
        at(Ids::ROOT, path)
    }
}

/// A path as a user reaches it.
pub(crate) fn at(user: Ids, path: &ContainerPath) -> protocol::FileRef {
    protocol::FileRef {
        user: protocol::UserSpec::Ids { uid: user.uid, gid: Some(user.gid) },
        path: path.to_string(),
        follow: true,
    }
}
