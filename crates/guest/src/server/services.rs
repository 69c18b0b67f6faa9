//! The services of a guest, as its connections use them.

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

/// The state of a guest that outlives its connections.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) machine: Arc<dyn ProcessBackend>,
    pub(crate) jobs: JobTable,
    pub(crate) files: Option<Files>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) session: Arc<SessionEnv>,
    pub(crate) workspaces: Workspaces,
    pub(crate) proxy_ports: ProxyPorts,
    pub(crate) quotas: Quotas,
    /// Identifies this run: a restarted container has another one.
    run: String,
    /// The grant of the worker, once the host has given one.
    pub(crate) worker_grant: Mutex<Option<OpenWorkerSocket>>,
    /// Whether the host has not yet compared the container's mounts, so that no command may run.
    locked: AtomicBool,
}

impl Supervisor {
    /// Creates a supervisor for that backend. Output that exceeds memory is spilled to an unlinked file in `spill`.
    ///
    /// # Panics
    /// If the kernel has no random numbers.
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
            workspaces: Workspaces::new(),
            proxy_ports: ProxyPorts::default(),
            quotas: Quotas::default(),
            run: hex::encode(run),
            worker_grant: Mutex::default(),
            locked: AtomicBool::new(false),
        })
    }

    /// Identifies this run of the guest.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// Refuses calls until the host has compared the container's mounts.
    pub(crate) fn lock(&self) {
        self.locked.store(true, Ordering::Release);
    }

    /// The boot id of this kernel, while the guest is locked.
    pub(crate) fn boot_id_if_locked(&self) -> Option<String> {
        let boot_id = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        self.is_locked().then(|| boot_id().trim().to_owned())
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Checks whether a call may be made now.
    ///
    /// # Errors
    /// [`ErrorCode::Locked`] for all but [`Ping`] and [`Unlock`] while the guest is locked.
    pub(crate) fn check_unlocked(&self, call: &CallInfo) -> Result<(), RpcError> {
        if !self.is_locked() || [Ping::NAME, Unlock::NAME].contains(&call.name) {
            return Ok(());
        }
        Err(RpcError::new(ErrorCode::Locked, "the mounts of the container are not verified yet"))
    }

    /// Unlocks if the mounts are the expected ones, and returns those that differ.
    pub(crate) fn unlock(&self, request: &Unlock) -> Vec<String> {
        let differing = differing_mounts(&request.mounts);
        if differing.is_empty() {
            self.locked.store(false, Ordering::Release);
        }
        differing
    }

    /// Creates a user, if it is missing, and makes it the session's user.
    pub(crate) async fn ensure_user(&self, request: EnsureUser) -> Result<UserInfo, RpcError> {
        let user = self.machine.ensure_user(request).await?;
        self.session.set_user(user.uid);
        Ok(user)
    }

    /// Ends every command and its descendants when the container stops.
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
    async fn secrets_of_a_refused_command_are_removed_unless_another_one_uses_them() {
        let (supervisor, dir) = supervisor();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for name in ["mine", "prompt"] {
            let request =
                PutSecret { name: name.into(), uid, gid, mode: 0o400, content: (*b"canary").into(), lent: false };
            supervisor.secrets.put(&request).unwrap();
        }
        let exists = |name: &str| dir.path().join(".coracle/run").join(name).exists();
        // A command that is being started has already reserved its id.
        supervisor.jobs.admit(&job("0badcafe", "mine", None)).unwrap();
        let taken = supervisor.jobs.start(job("0badcafe", "mine", None)).await.err().unwrap();
        assert_eq!((taken.code, exists("mine")), (ErrorCode::JobTaken, true));
        let refused = supervisor.jobs.start(job("12345678", "prompt", Some(0))).await.err().unwrap();
        assert_eq!((refused.code, exists("prompt"), exists("mine")), (ErrorCode::TooMany, false, true));
    }
}
