//! The commands of a container: begun, remembered, forgotten.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::files::Files;
use crate::job::Job;
use crate::machine::{Hidden, Machine, Mark, NotStarted, Plan, Process, Session};
use crate::output::{Log, Spill};
use crate::quota::Quotas;
use crate::relay::Relays;
use crate::secrets::{Lent, Secrets};
use crate::space::Spaces;
use crate::wire::{self, Fault, FaultCode, Keep, Life, Settle, Settled};

/// Jobs that ended and are remembered, at most.
const MAX_ENDED: usize = 1000;

/// Foreground commands that ended well and were told, kept in case that the last word did not arrive.
const MAX_TOLD: usize = 64;

/// Everything that a guest does. Connections come and go; this stays.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) files: Option<Files>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) spaces: Spaces,
    pub(crate) relays: Relays,
    pub(crate) quotas: Quotas,
    /// Of this run: a container that was started anew has another one.
    run: String,
    spill: Arc<Spill>,
    marks: AtomicU64,
    /// The container is being stopped: what ends now does not end by itself.
    leaving: AtomicBool,
    table: Mutex<Table>,
    /// What every command that begins from now on has in its environment.
    session: Mutex<Session>,
    /// The user that commands run as, once the host has said which.
    settled: Mutex<Option<u32>>,
    /// What a worker may use, once the host has let one in.
    pub(crate) door: Mutex<Option<wire::Worker>>,
}

#[derive(Debug, Default)]
struct Table {
    keep: Keep,
    jobs: BTreeMap<u64, Arc<Job>>,
    /// Ids, also of what is being begun.
    begun: BTreeMap<String, u64>,
    /// When it is worth looking for what can be forgotten.
    tidy: Option<(Instant, usize)>,
}

/// The table is looked through after so many more commands, or so much time.
const TIDY: (usize, Duration) = (64, Duration::from_secs(1));

/// A command that began, with what reads its input.
pub(crate) struct Started {
    pub(crate) job: Arc<Job>,
    pub(crate) stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    pub(crate) resize: Option<Box<dyn Fn(wire::Size) + Send + Sync>>,
}

/// What came with a command.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) secret: Option<Hidden>,
}

impl Supervisor {
    /// A supervisor of that machine. What is too much for memory goes to an unlinked file in `spill`.
    ///
    /// # Panics
    /// When the kernel has no random numbers.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, spill: &Path) -> Arc<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).expect("the kernel gives random bytes");
        let (files, secrets) = (Files::open(machine.root()).ok(), Arc::new(Secrets::new(machine.root())));
        let spill = Arc::new(Spill::in_dir(spill));
        let (run, marks) = (hex::encode(run), AtomicU64::new(1));
        let (leaving, table) = (AtomicBool::new(false), Mutex::default());
        let (session, settled, door) = Default::default();
        let (spaces, relays, quotas) = (Spaces::new(), Relays::default(), Quotas::default());
        let own = Self {
            machine,
            files,
            secrets,
            spaces,
            relays,
            quotas,
            run,
            spill,
            marks,
            leaving,
            table,
            session,
            settled,
            door,
        };
        Arc::new(own)
    }

    /// Of this run of the guest.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_session(&self, session: Session) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// Makes sure of a user, who is the one from now on that sees the session as its commands do.
    pub(crate) async fn settle(&self, ask: Settle) -> Result<Settled, Fault> {
        let settled = self.machine.settle(ask).await?;
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(settled.uid);
        Ok(settled)
    }

    /// The session as a process of that user may see it: root, and the user whose commands have it.
    pub(crate) fn session_of(&self, uid: u32) -> Session {
        let settled = *self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if uid == 0 || settled == Some(uid) { self.session() } else { Session::default() }
    }

    pub(crate) fn session(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keep(&self, keep: Keep) {
        self.spill.set_total(keep.total);
        self.table().keep = keep;
    }

    /// Starts a command. The id is taken before anything runs, so that nothing runs twice.
    ///
    /// # Errors
    /// `Ok(Err)` for a program that is missing or cannot be executed, which is a result of the command.
    pub(crate) async fn begin(
        &self,
        ask: &wire::Exec,
        Words { words, env, secret }: Words,
    ) -> Result<Result<Started, NotStarted>, Fault> {
        let lent = Lent::new(&self.secrets, &ask.files);
        let (mark, log) = match self.admit(ask) {
            Ok(admitted) => admitted,
            Err(fault) => {
                if fault.code == FaultCode::JobTaken {
                    // They are those of the one that was begun already.
                    lent.leave();
                }
                return Err(fault);
            }
        };
        let plan = Plan {
            words: words.clone(),
            shell: ask.shell,
            session: self.session(),
            env,
            user: ask.user.clone(),
            cwd: ask.cwd.clone(),
            stdin: ask.stdin,
            terminal: ask.terminal,
            mark,
            secret,
            bare: ask.bare,
        };
        let mut process: Process = match self.machine.start(plan).await {
            Ok(process) => process,
            Err(why) => {
                self.table().begun.remove(&ask.job);
                return match why {
                    NotStarted::Fault(fault) => Err(fault),
                    why => Ok(Err(why)),
                };
            }
        };
        let (stdin, resize) = (process.stdin.take(), process.resize.take());
        let (job, attending) = Job::new(ask, &words, (process, mark, lent), log, self.machine.clone());
        self.table().jobs.insert(mark.0, job.clone());
        tokio::spawn(attending);
        Ok(Ok(Started { job, stdin, resize }))
    }

    fn admit(&self, ask: &wire::Exec) -> Result<(Mark, Log), Fault> {
        self.tidy_sometimes();
        let mut table = self.table();
        if table.begun.contains_key(&ask.job) {
            return Err(Fault::new(FaultCode::JobTaken, format!("there is a job `{}` already", ask.job)));
        }
        let running = table.jobs.values().filter(|it| it.is_background() && !it.ended()).count();
        if ask.life == Life::Job && ask.most.is_some_and(|most| running >= most as usize) {
            let mut fault = Fault::new(FaultCode::TooMany, format!("{running} jobs run already"));
            fault.about.insert("current".into(), running.to_string());
            return Err(fault);
        }
        let mark = Mark(self.marks.fetch_add(1, Ordering::Relaxed));
        table.begun.insert(ask.job.clone(), mark.0);
        Ok((mark, Log::new(self.spill.clone(), table.keep.bytes)))
    }

    /// A job by its id.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Job>, Fault> {
        let table = self.table();
        let job = table.begun.get(id).and_then(|mark| table.jobs.get(mark)).cloned();
        job.ok_or_else(|| Fault::new(FaultCode::NoJob, format!("no job `{id}`")))
    }

    /// Jobs that a caller may ask for, oldest first.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        self.tidy();
        self.table().jobs.values().filter(|it| !it.told()).cloned().collect()
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
        self.tidy();
        table = self.table();
        table.tidy = Some((now + TIDY.1, table.jobs.len() + TIDY.0));
    }

    /// Forgets what ended long ago, and the oldest of what is too much.
    pub(crate) fn tidy(&self) {
        let mut table = self.table();
        let age = Duration::from_secs(table.keep.for_s);
        // What a command left behind can be ended by its id, as long as that is known.
        let old = |job: &Arc<Job>| !job.lingers() && job.ended_at().is_some_and(|it| it.elapsed() > age);
        let ended = |told: bool| -> Vec<u64> {
            table.jobs.iter().filter(|it| it.1.ended() && it.1.told() == told).map(|it| *it.0).collect()
        };
        let mut gone: Vec<u64> = table.jobs.iter().filter(|it| old(it.1)).map(|it| *it.0).collect();
        for (ended, most) in [(ended(true), MAX_TOLD), (ended(false), MAX_ENDED)] {
            gone.extend(&ended[..ended.len().saturating_sub(most)]);
        }
        for mark in gone {
            if let Some(job) = table.jobs.remove(&mark) {
                table.begun.remove(&job.id);
            }
        }
        Self::make_room(&table);
    }

    /// Output of all jobs together stays within its total: the oldest that ended gives up its own first.
    fn make_room(table: &Table) {
        let mut kept: u64 = table.jobs.values().map(|it| it.log(Log::kept)).sum();
        for job in table.jobs.values().filter(|it| it.ended()) {
            if kept <= table.keep.total {
                return;
            }
            kept -= job.log(Log::kept);
            job.shed();
        }
    }

    /// Whether the container is being stopped.
    pub(crate) fn leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Ends every command, and all that commands left: for the end of the container.
    pub async fn end_all(&self, grace: Duration) {
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::Container;
    use crate::wire::{Exec, Limits, Secret, Show, Who};

    fn supervisor() -> (Arc<Supervisor>, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let (container, reaper) = Container::new(dir.path(), Vec::new()).unwrap();
        tokio::spawn(reaper.run());
        (Supervisor::new(Arc::new(container), dir.path()), dir)
    }

    fn job(id: &str, file: &str, most: Option<u32>) -> Exec {
        Exec {
            job: id.into(),
            shell: false,
            words: 0,
            env: 0,
            secret: 0,
            bare: false,
            files: vec![file.into()],
            inside: false,
            user: Who::Name("nobody".into()),
            cwd: "/".into(),
            stdin: false,
            terminal: None,
            limits: Limits { total_ms: None, silence_ms: None, grace_ms: 0 },
            life: Life::Job,
            show: Show::Nothing,
            cut: 0,
            most,
        }
    }

    #[tokio::test]
    async fn files_of_a_command_that_is_not_admitted_are_gone_but_for_those_of_the_one_that_runs() {
        let (supervisor, dir) = supervisor();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for name in ["mine", "prompt"] {
            let ask = Secret { name: name.into(), uid, gid, mode: 0o400, bytes: 0, lent: false };
            supervisor.secrets.put(&ask, b"canary").unwrap();
        }
        let words = || Words { words: vec![b"x".to_vec()], env: vec![], secret: None };
        let there = |name: &str| dir.path().join(".coracle/run").join(name).exists();
        // One that is just being begun has its id already.
        supervisor.admit(&job("0badcafe", "mine", None)).unwrap();
        let taken = supervisor.begin(&job("0badcafe", "mine", None), words()).await.err().unwrap();
        assert_eq!((taken.code, there("mine")), (FaultCode::JobTaken, true));
        let refused = supervisor.begin(&job("12345678", "prompt", Some(0)), words()).await.err().unwrap();
        assert_eq!((refused.code, there("prompt"), there("mine")), (FaultCode::TooMany, false, true));
    }
}
