//! The commands of a container: begun, remembered, forgotten.

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

/// The limit of ended jobs that are remembered.
const MAX_ENDED: usize = 1000;

/// Foreground commands that ended well and were delivered, retained in case the last message was lost.
const MAX_DELIVERED: usize = 64;

/// The commands of a container.
#[derive(Debug)]
pub(crate) struct JobTable {
    machine: Arc<dyn ProcessBackend>,
    secrets: Arc<Secrets>,
    /// Variables in the environment of every new command.
    session: Arc<SessionEnv>,
    spill: Arc<Spill>,
    marks: AtomicU64,
    /// The container is being stopped: what ends now does not end by itself.
    leaving: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    keep: Retention,
    jobs: BTreeMap<u64, Arc<Job>>,
    /// Ids, also of what is being started.
    begun: BTreeMap<String, JobAdmission>,
    /// The time and the size at which eviction is worth another scan.
    tidy: Option<(Instant, usize)>,
}

/// A command that was admitted. It joins the jobs when its process runs.
#[derive(Clone, Copy, Debug)]
struct JobAdmission {
    mark: u64,
    background: bool,
}

impl Table {
    /// Background jobs that run or are being started.
    fn running(&self) -> usize {
        let running = self.jobs.values().filter(|it| it.is_background() && !it.ended()).count();
        let starting = self.begun.values().filter(|it| it.background && !self.jobs.contains_key(&it.mark)).count();
        running + starting
    }

    /// Adds a command whose process runs, and notes which commands overlap.
    fn insert(&mut self, job: Arc<Job>) {
        for other in self.jobs.values().filter(|it| !it.ended() || it.has_leftovers()) {
            other.note_overlap();
            job.note_overlap();
        }
        self.jobs.insert(job.mark.0, job);
    }
}

/// The table is looked through after so many more commands, or so much time.
const TIDY: (usize, Duration) = (64, Duration::from_secs(1));

/// A command that began, with what reads its input.
pub(crate) struct StartedCommand {
    pub(crate) job: Arc<Job>,
    pub(crate) stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    pub(crate) terminal: Option<Arc<JobTerminal>>,
}

impl JobTable {
    /// A table of that backend. Output that exceeds memory goes to an unlinked file in `spill`.
    pub(crate) fn new(
        machine: Arc<dyn ProcessBackend>,
        secrets: Arc<Secrets>,
        session: Arc<SessionEnv>,
        spill: &Path,
    ) -> Self {
        let spill = Arc::new(Spill::in_dir(spill));
        let (marks, leaving, table) = (AtomicU64::new(1), AtomicBool::new(false), Mutex::default());
        Self { machine, secrets, session, spill, marks, leaving, table }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, keep: Retention) {
        self.spill.set_total(keep.total);
        self.table().keep = keep;
    }

    /// Starts a command. The id is taken before anything runs, so that nothing runs twice.
    ///
    /// # Errors
    /// `Ok(Err)` for a program that is missing or cannot be executed, which is a result of the command.
    pub(crate) async fn begin(
        &self,
        mut ask: protocol::ExecRequest,
    ) -> Result<Result<StartedCommand, SpawnError>, RpcError> {
        let lent = CommandSecrets::new(&self.secrets, &ask.files);
        let (mark, log) = match self.admit(&ask) {
            Ok(admitted) => admitted,
            Err(fault) => {
                if fault.code == ErrorCode::JobTaken {
                    // They are those of the one that was begun already.
                    lent.release();
                }
                return Err(fault);
            }
        };
        let bytes = |all: &mut Vec<Bytes>| std::mem::take(all).into_iter().map(|it| it.0).collect::<Vec<_>>();
        let (argv, env) = (bytes(&mut ask.argv), bytes(&mut ask.env));
        let plan = SpawnSpec {
            argv: argv.clone(),
            shell: ask.shell,
            session: self.session.variables(),
            env,
            user: ask.user.clone(),
            cwd: ask.cwd.clone(),
            stdin: ask.stdin,
            terminal: ask.terminal,
            mark,
            secret: ask.secret.take().map(|it| SecretBytes::new(it.0)),
            bare: ask.clear_env,
        };
        let mut process: Process = match self.machine.start(plan).await {
            Ok(process) => process,
            Err(why) => {
                self.table().begun.remove(&ask.job);
                return match why {
                    SpawnError::Fault(fault) => Err(fault),
                    why => Ok(Err(why)),
                };
            }
        };
        let stdin = process.stdin.take();
        let device = ask.terminal.zip(process.terminal.take());
        let terminal = device.map(|(size, device)| Arc::new(JobTerminal::new(device, size)));
        let (job, attending) = Job::new(&ask, &argv, (process, mark, lent), log, self.machine.clone());
        job.set_terminal(terminal.clone());
        self.table().insert(job.clone());
        tokio::spawn(attending);
        Ok(Ok(StartedCommand { job, stdin, terminal }))
    }

    pub(crate) fn admit(&self, ask: &protocol::ExecRequest) -> Result<(TreeId, OutputLog), RpcError> {
        self.tidy_sometimes();
        let mut table = self.table();
        if table.begun.contains_key(&ask.job) {
            return Err(RpcError::new(ErrorCode::JobTaken, format!("there is a job `{}` already", ask.job)));
        }
        let running = table.running();
        if ask.life == Lifetime::Job && ask.max_running.is_some_and(|most| running >= most as usize) {
            let mut fault = RpcError::new(ErrorCode::TooMany, format!("{running} jobs run already"));
            fault.about.insert("current".into(), running.to_string());
            return Err(fault);
        }
        let mark = TreeId(self.marks.fetch_add(1, Ordering::Relaxed));
        let background = ask.life == Lifetime::Job;
        table.begun.insert(ask.job.clone(), JobAdmission { mark: mark.0, background });
        Ok((mark, OutputLog::new(self.spill.clone(), table.keep.bytes)))
    }

    /// A job by its id.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Job>, RpcError> {
        let table = self.table();
        let job = table.begun.get(id).and_then(|it| table.jobs.get(&it.mark)).cloned();
        job.ok_or_else(|| RpcError::new(ErrorCode::NoJob, format!("no job `{id}`")))
    }

    /// Jobs that a caller may ask for, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        self.evict();
        self.table().jobs.values().filter(|it| !it.is_delivered()).cloned().collect()
    }

    /// Whether a command runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.table().jobs.values().any(|it| !it.ended())
    }

    fn tidy_sometimes(&self) {
        let (now, mut table) = (Instant::now(), self.table());
        if table.tidy.is_some_and(|(at, len)| now < at && table.jobs.len() < len) {
            return;
        }
        drop(table);
        self.evict();
        table = self.table();
        table.tidy = Some((now + TIDY.1, table.jobs.len() + TIDY.0));
    }

    /// Forgets what ended long ago, and the oldest of what is too much.
    pub(crate) fn evict(&self) {
        let mut table = self.table();
        let age = Duration::from_secs(table.keep.for_s);
        // What a command left behind can be ended by its id, as long as that is known.
        let old = |job: &Arc<Job>| !job.has_leftovers() && job.ended_at().is_some_and(|it| it.elapsed() > age);
        let ended = |told: bool| -> Vec<u64> {
            table.jobs.iter().filter(|it| it.1.ended() && it.1.is_delivered() == told).map(|it| *it.0).collect()
        };
        let mut gone: Vec<u64> = table.jobs.iter().filter(|it| old(it.1)).map(|it| *it.0).collect();
        for (ended, most) in [(ended(true), MAX_DELIVERED), (ended(false), MAX_ENDED)] {
            gone.extend(&ended[..ended.len().saturating_sub(most)]);
        }
        for mark in gone {
            if let Some(job) = table.jobs.remove(&mark) {
                table.begun.remove(&job.id);
            }
        }
        Self::enforce_quota(&table);
    }

    /// Keeps the output of all jobs within the total: the oldest ended job loses its output first.
    fn enforce_quota(table: &Table) {
        let mut kept: u64 = table.jobs.values().map(|it| it.log(OutputLog::kept)).sum();
        for job in table.jobs.values().filter(|it| it.ended()) {
            if kept <= table.keep.total {
                return;
            }
            kept -= job.log(OutputLog::kept);
            job.discard_output();
        }
    }

    /// Whether the container is being stopped.
    pub(crate) fn leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Ends every command, and all that commands left: for the end of the container.
    pub(crate) async fn end_all(&self, grace: Duration) {
        self.leaving.store(true, Ordering::Relaxed);
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
