//! The container that steps work in, as all of them see it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_runtime::link::{Link, wire};
use coracle_runtime::{Command, ContainerPath, Exec, ExecLimits, Ids};
use tokio_util::sync::CancellationToken;

/// Who works where, and for how long.
#[derive(Clone, Debug)]
pub struct Place {
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

impl Place {
    /// A command of the exec user in a directory; it ends after `timeout`, or with the time of all.
    #[must_use]
    pub fn exec(&self, command: Command, workdir: &ContainerPath, timeout: Duration) -> Exec {
        self.exec_as(command, (self.user, &self.user_env), workdir, timeout)
    }

    /// The same as root.
    #[must_use]
    pub fn exec_as_root(&self, command: Command, workdir: &ContainerPath, timeout: Duration) -> Exec {
        self.exec_as(command, (Ids::ROOT, &self.root_env), workdir, timeout)
    }

    fn exec_as(
        &self,
        command: Command,
        (user, env): (Ids, &BTreeMap<String, String>),
        workdir: &ContainerPath,
        timeout: Duration,
    ) -> Exec {
        let mut exec = Exec::new(command, user, workdir.clone());
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

    /// A path, as the exec user.
    #[must_use]
    pub fn at(&self, path: &ContainerPath) -> wire::At {
        at(self.user, path)
    }

    /// A path, as root.
    #[must_use]
    pub fn at_as_root(&self, path: &ContainerPath) -> wire::At {
        at(Ids::ROOT, path)
    }
}

fn at(user: Ids, path: &ContainerPath) -> wire::At {
    wire::At { user: wire::Who::Ids { uid: user.uid, gid: Some(user.gid) }, path: path.to_string(), follow: true }
}
