//! The table of the container's commands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::jobs::job::Job;
use crate::jobs::log::{OutputLog, Spill};
use crate::jobs::terminal::JobTerminal;
use crate::os::machine::{Process, ProcessBackend, SecretBytes, SpawnError, SpawnSpec, TreeId};
use crate::protocol::body::Bytes;
use crate::protocol::{self, ErrorCode, Lifetime, Retention, RpcError};
use crate::secrets::session_env::SessionEnv;
use crate::secrets::{CommandSecrets, Secrets};

/// How many ended jobs are remembered.
const MAX_ENDED: usize = 1000;

/// How many delivered foreground commands are remembered, in case the last message was lost.
const MAX_DELIVERED: usize = 64;

/// The commands of a container.
#[derive(Debug)]
pub(crate) struct JobTable {
    machine: Arc<dyn ProcessBackend>,
    secrets: Arc<Secrets>,
    /// Environment variables of every new command.
    session: Arc<SessionEnv>,
    spill: Arc<Spill>,
    marks: AtomicU64,
    /// Whether the container is being stopped, so that commands do not end by themselves.
    stopping: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    retention: Retention,
    jobs: BTreeMap<u64, Arc<Job>>,
    /// Commands by id, including those that are being started.
    admitted: BTreeMap<String, JobAdmission>,
    /// The time and the size at which the next eviction is due.
    next_eviction: Option<(Instant, usize)>,
}

/// A command that was admitted. Its job is added when its process runs.
#[derive(Clone, Copy, Debug)]
struct JobAdmission {
    mark: u64,
    background: bool,
}

impl Table {
    /// Number of background jobs that run or are being started.
    fn running(&self) -> usize {
        let running = self.jobs.values().filter(|it| it.is_background() && !it.ended()).count();
        let starting = self.admitted.values().filter(|it| it.background && !self.jobs.contains_key(&it.mark)).count();
        running + starting
    }

    /// Adds a command whose process runs, and records which commands overlap.
    fn insert(&mut self, job: Arc<Job>) {
        for other in self.jobs.values().filter(|it| !it.ended() || it.has_leftovers()) {
            other.record_overlap();
            job.record_overlap();
        }
        self.jobs.insert(job.mark.0, job);
    }
}

/// Eviction is due after this many more commands, or this much time.
const EVICTION_INTERVAL: (usize, Duration) = (64, Duration::from_secs(1));

/// A command that was started, with its input.
pub(crate) struct StartedCommand {
    pub(crate) job: Arc<Job>,
    pub(crate) stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    pub(crate) terminal: Option<Arc<JobTerminal>>,
}

impl JobTable {
    /// Creates a table for that backend. Output that exceeds memory is spilled to an unlinked file in `spill`.
    pub(crate) fn new(
        machine: Arc<dyn ProcessBackend>,
        secrets: Arc<Secrets>,
        session: Arc<SessionEnv>,
        spill: &Path,
    ) -> Self {
        let spill = Arc::new(Spill::in_dir(spill));
        let (marks, stopping, table) = (AtomicU64::new(1), AtomicBool::new(false), Mutex::default());
        Self { machine, secrets, session, spill, marks, stopping, table }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        self.spill.set_total(retention.total);
        self.table().retention = retention;
    }

    /// Starts a command. Its id is reserved first, so that a repeated request does not start it twice.
    ///
    /// # Errors
    /// `Ok(Err)` if the program is missing or cannot be executed, which is a result of the command.
    pub(crate) async fn start(
        &self,
        mut request: protocol::ExecRequest,
    ) -> Result<Result<StartedCommand, SpawnError>, RpcError> {
        let secrets = CommandSecrets::new(&self.secrets, &request.files);
        let (mark, log) = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(fault) => {
                if fault.code == ErrorCode::JobTaken {
                    // The files belong to the command that was already started.
                    secrets.release();
                }
                return Err(fault);
            }
        };
        let bytes = |all: &mut Vec<Bytes>| std::mem::take(all).into_iter().map(|bytes| bytes.0).collect::<Vec<_>>();
        let (argv, env) = (bytes(&mut request.argv), bytes(&mut request.env));
        let plan = SpawnSpec {
            argv: argv.clone(),
            shell: request.shell,
            session: self.session.variables(),
            env,
            user: request.user.clone(),
            cwd: request.cwd.clone(),
            stdin: request.stdin,
            terminal: request.terminal,
            mark,
            secret: request.secret.take().map(|it| SecretBytes::new(it.0)),
            bare: request.clear_env,
        };
        let mut process: Process = match self.machine.start(plan).await {
            Ok(process) => process,
            Err(why) => {
                self.table().admitted.remove(&request.job);
                return match why {
                    SpawnError::Fault(fault) => Err(fault),
                    why => Ok(Err(why)),
                };
            }
        };
        let stdin = process.stdin.take();
        let device = request.terminal.zip(process.terminal.take());
        let terminal = device.map(|(size, device)| Arc::new(JobTerminal::new(device, size)));
        let (job, monitor) = Job::new(&request, &argv, (process, mark, secrets), log, self.machine.clone());
        job.set_terminal(terminal.clone());
        self.table().insert(job.clone());
        tokio::spawn(monitor);
        Ok(Ok(StartedCommand { job, stdin, terminal }))
    }

    pub(crate) fn admit(&self, request: &protocol::ExecRequest) -> Result<(TreeId, OutputLog), RpcError> {
        self.evict_if_due();
        let mut table = self.table();
        if table.admitted.contains_key(&request.job) {
            return Err(RpcError::new(ErrorCode::JobTaken, format!("a job `{}` already exists", request.job)));
        }
        let running = table.running();
        if request.life == Lifetime::Job && request.max_running.is_some_and(|most| running >= most as usize) {
            let mut fault = RpcError::new(ErrorCode::TooMany, format!("{running} jobs are already running"));
            fault.about.insert("current".into(), running.to_string());
            return Err(fault);
        }
        let mark = TreeId(self.marks.fetch_add(1, Ordering::Relaxed));
        let background = request.life == Lifetime::Job;
        table.admitted.insert(request.job.clone(), JobAdmission { mark: mark.0, background });
        Ok((mark, OutputLog::new(self.spill.clone(), table.retention.bytes)))
    }

    /// A job by its id.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Job>, RpcError> {
        let table = self.table();
        let job = table.admitted.get(id).and_then(|it| table.jobs.get(&it.mark)).cloned();
        job.ok_or_else(|| RpcError::new(ErrorCode::NoJob, format!("no job `{id}`")))
    }

    /// Jobs that a caller may inspect, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        self.evict();
        self.table().jobs.values().filter(|it| !it.is_delivered()).cloned().collect()
    }

    /// Whether a command runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.table().jobs.values().any(|it| !it.ended())
    }

    fn evict_if_due(&self) {
        let (now, mut table) = (Instant::now(), self.table());
        if table.next_eviction.is_some_and(|(at, len)| now < at && table.jobs.len() < len) {
            return;
        }
        drop(table);
        self.evict();
        table = self.table();
        table.next_eviction = Some((now + EVICTION_INTERVAL.1, table.jobs.len() + EVICTION_INTERVAL.0));
    }

    /// Removes jobs that ended long ago, and the oldest ones beyond the limits.
    pub(crate) fn evict(&self) {
        let mut table = self.table();
        let age = Duration::from_secs(table.retention.for_s);
        // A job with leftovers stays, so that they can be ended by its id.
        let old = |job: &Arc<Job>| !job.has_leftovers() && job.ended_at().is_some_and(|it| it.elapsed() > age);
        let ended = |delivered: bool| -> Vec<u64> {
            table
                .jobs
                .iter()
                .filter(|(_, job)| job.ended() && job.is_delivered() == delivered)
                .map(|(mark, _)| *mark)
                .collect()
        };
        let mut evicted: Vec<u64> = table.jobs.iter().filter(|(_, job)| old(job)).map(|(mark, _)| *mark).collect();
        for (ended, most) in [(ended(true), MAX_DELIVERED), (ended(false), MAX_ENDED)] {
            evicted.extend(&ended[..ended.len().saturating_sub(most)]);
        }
        for mark in evicted {
            if let Some(job) = table.jobs.remove(&mark) {
                table.admitted.remove(&job.id);
            }
        }
        Self::enforce_quota(&table);
    }

    /// Limits the output of all jobs to the total: the oldest ended job loses its output first.
    fn enforce_quota(table: &Table) {
        let mut retained: u64 = table.jobs.values().map(|it| it.log(OutputLog::retained)).sum();
        for job in table.jobs.values().filter(|it| it.ended()) {
            if retained <= table.retention.total {
                return;
            }
            retained -= job.log(OutputLog::retained);
            job.discard_output();
        }
    }

    /// Whether the container is being stopped.
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Ends every command and its descendants when the container stops.
    pub(crate) async fn end_all(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        let jobs: Vec<_> = self.table().jobs.values().cloned().collect();
        let ending = jobs.into_iter().map(|job| {
            let machine = self.machine.clone();
            tokio::spawn(async move { machine.end(job.mark, grace).await })
        });
        for ended in ending.collect::<Vec<_>>() {
            let _ = ended.await;
        }
    }
}
