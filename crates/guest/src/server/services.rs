//! Everything that a guest does, as its connections find it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::files::Files;
use crate::jobs::table::JobTable;
use crate::net::proxy_ports::ProxyPorts;
use crate::os::machine::ProcessBackend;
use crate::protocol::call::{Call as _, CallInfo};
use crate::protocol::{EnsureUser, ErrorCode, OpenWorkerSocket, Ping, RpcError, Unlock, UserInfo};
use crate::secrets::Secrets;
use crate::secrets::session_env::SessionEnv;
use crate::server::mounts::differing_mounts;
use crate::server::quota::Quotas;
use crate::workspace::Workspaces;

/// Everything that a guest does. Connections come and go; this stays.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) machine: Arc<dyn ProcessBackend>,
    pub(crate) jobs: JobTable,
    pub(crate) files: Option<Files>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) session: Arc<SessionEnv>,
    pub(crate) spaces: Workspaces,
    pub(crate) proxy_ports: ProxyPorts,
    pub(crate) quotas: Quotas,
    /// Of this run: a container that was started anew has another one.
    run: String,
    /// What a worker may use, once the host has let one in.
    pub(crate) door: Mutex<Option<OpenWorkerSocket>>,
    /// The host has not compared the container's mounts yet, so nothing may run.
    locked: AtomicBool,
}

impl Supervisor {
    /// A supervisor of that machine. What is too much for memory goes to an unlinked file in `spill`.
    ///
    /// # Panics
    /// When the kernel has no random numbers.
    #[must_use]
    pub fn new(machine: Arc<dyn ProcessBackend>, spill: &Path) -> Arc<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).expect("the kernel gives random bytes");
        let (files, secrets) = (Files::open(machine.root()).ok(), Arc::new(Secrets::new(machine.root())));
        let session = Arc::<SessionEnv>::default();
        Arc::new(Self {
            jobs: JobTable::new(machine.clone(), secrets.clone(), session.clone(), spill),
            machine,
            files,
            secrets,
            session,
            spaces: Workspaces::new(),
            proxy_ports: ProxyPorts::default(),
            quotas: Quotas::default(),
            run: hex::encode(run),
            door: Mutex::default(),
            locked: AtomicBool::new(false),
        })
    }

    /// Of this run of the guest.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// Answers no call until the host has compared the container's mounts.
    pub(crate) fn lock(&self) {
        self.locked.store(true, Ordering::Release);
    }

    /// The boot id of this kernel, while the mounts were not compared yet.
    pub(crate) fn locked(&self) -> Option<String> {
        let boot_id = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        self.is_locked().then(|| boot_id().trim().to_owned())
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Whether a call may be made now.
    ///
    /// # Errors
    /// [`ErrorCode::Locked`] for all but [`Ping`] and [`Unlock`], before the mounts were compared.
    pub(crate) fn check_unlocked(&self, call: &CallInfo) -> Result<(), RpcError> {
        if !self.is_locked() || [Ping::NAME, Unlock::NAME].contains(&call.name) {
            return Ok(());
        }
        Err(RpcError::new(ErrorCode::Locked, "the mounts of the container were not compared yet"))
    }

    /// Unlocks if the mounts are the expected ones, and gives those that are not.
    pub(crate) fn unlock(&self, request: &Unlock) -> Vec<String> {
        let differing = differing_mounts(&request.mounts);
        if differing.is_empty() {
            self.locked.store(false, Ordering::Release);
        }
        differing
    }

    /// Makes sure of a user, who is the one from now on that sees the session as its commands do.
    pub(crate) async fn ensure_user(&self, ask: EnsureUser) -> Result<UserInfo, RpcError> {
        let settled = self.machine.ensure_user(ask).await?;
        self.session.set_user(settled.uid);
        Ok(settled)
    }

    /// Ends every command, and all that commands left: for the end of the container.
    pub async fn end_all(&self, grace: Duration) {
        self.jobs.end_all(grace).await;
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::Container;
    use crate::protocol::{ExecRequest, ExecTimeouts, Lifetime, OutputMode, PutSecret, UserSpec};

    fn supervisor() -> (Arc<Supervisor>, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let (container, reaper) = Container::new(dir.path(), Vec::new()).unwrap();
        tokio::spawn(reaper.run());
        (Supervisor::new(Arc::new(container), dir.path()), dir)
    }

    fn job(id: &str, file: &str, most: Option<u32>) -> ExecRequest {
        ExecRequest {
            job: id.into(),
            shell: false,
            argv: vec![(*b"x").into()],
            env: vec![],
            secret: None,
            clear_env: false,
            files: vec![file.into()],
            from_container: false,
            user: UserSpec::Name("nobody".into()),
            cwd: "/".into(),
            stdin: false,
            terminal: None,
            limits: ExecTimeouts { total_ms: None, silence_ms: None, grace_ms: 0 },
            life: Lifetime::Job,
            show: OutputMode::Nothing,
            inline_limit: 0,
            max_running: most,
        }
    }

    #[tokio::test]
    async fn files_of_a_command_that_is_not_admitted_are_gone_but_for_those_of_the_one_that_runs() {
        let (supervisor, dir) = supervisor();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for name in ["mine", "prompt"] {
            let ask = PutSecret { name: name.into(), uid, gid, mode: 0o400, content: (*b"canary").into(), lent: false };
            supervisor.secrets.put(&ask).unwrap();
        }
        let there = |name: &str| dir.path().join(".coracle/run").join(name).exists();
        // One that is just being begun has its id already.
        supervisor.jobs.admit(&job("0badcafe", "mine", None)).unwrap();
        let taken = supervisor.jobs.begin(job("0badcafe", "mine", None)).await.err().unwrap();
        assert_eq!((taken.code, there("mine")), (ErrorCode::JobTaken, true));
        let refused = supervisor.jobs.begin(job("12345678", "prompt", Some(0))).await.err().unwrap();
        assert_eq!((refused.code, there("prompt"), there("mine")), (ErrorCode::TooMany, false, true));
    }
}
