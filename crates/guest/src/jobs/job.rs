//! A command: its process, its output, its limits and its end.

mod monitor;
mod reader;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use self::monitor::Monitor;
use crate::jobs::log::OutputLog;
use crate::jobs::terminal::JobTerminal;
use crate::os::machine::{Exit, Process, ProcessBackend, TreeId};
use crate::protocol::{self, ExecState, Lifetime, Stream, StreamSelector, WINDOW};
use crate::secrets::CommandSecrets;

/// A message to a job's monitor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobControl {
    /// End, with that much time between TERM and KILL.
    Cancel(Duration),
    /// The connection of that follower is gone.
    Orphan(u64),
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) pid: u32,
    pub(crate) mark: TreeId,
    pub(crate) grace: Duration,
    command: String,
    root: bool,
    foreground: bool,
    /// A caller inside asked for it.
    pub(crate) inside: bool,
    began: Instant,
    began_ms: u64,
    /// Bytes of a stream that the waiting caller passes on.
    cut: u64,
    inner: Mutex<JobState>,
    /// The newest subscriber. Only its requests count: an earlier connection may end late.
    follower: AtomicU64,
    /// Another command ran at some time while it ran.
    overlapped: AtomicBool,
    /// Its pipes are read.
    attended: AtomicBool,
    orders: mpsc::UnboundedSender<JobControl>,
    changed: watch::Sender<()>,
    /// Notified when a subscriber takes output.
    taken: Notify,
}

#[derive(Debug)]
struct JobState {
    log: OutputLog,
    life: Lifetime,
    /// The limit at which it was left to run.
    kept_at: Option<ExecState>,
    ended: Option<JobEnd>,
    printed: Instant,
    /// Bytes that were sent to the subscriber.
    sent: Option<u64>,
    /// The waiting caller received all of it.
    told: bool,
    /// Until it has ended.
    terminal: Option<Arc<JobTerminal>>,
}

#[derive(Clone, Debug)]
struct JobEnd {
    state: ExecState,
    exit: Option<Exit>,
    left: u32,
    tree_ended: Option<bool>,
    oom: bool,
    at: Instant,
    at_ms: u64,
}

impl Job {
    /// A job and what attends it, which the caller runs beside everything else.
    pub(crate) fn new(
        ask: &protocol::ExecRequest,
        words: &[Vec<u8>],
        (process, mark, lent): (Process, TreeId, CommandSecrets),
        log: OutputLog,
        machine: Arc<dyn ProcessBackend>,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let now = Instant::now();
        let life = ask.life;
        let inner =
            JobState { log, life, kept_at: None, ended: None, printed: now, sent: None, told: false, terminal: None };
        let job = Arc::new(Self {
            id: ask.job.clone(),
            pid: process.pid,
            mark,
            grace: Duration::from_millis(ask.limits.grace_ms),
            command: shown(words),
            root: process.root,
            foreground: ask.life != Lifetime::Job,
            inside: ask.from_container,
            began: now,
            began_ms: now_ms(),
            cut: ask.inline_limit,
            inner: Mutex::new(inner),
            follower: AtomicU64::new(0),
            overlapped: AtomicBool::new(false),
            attended: AtomicBool::new(true),
            orders,
            changed: watch::Sender::new(()),
            taken: Notify::new(),
        });
        let attendant = Monitor::new(job.clone(), (process, lent), machine, &ask.limits);
        (job, attendant.run(inbox))
    }

    fn inner(&self) -> MutexGuard<'_, JobState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn order(&self, order: JobControl) {
        // One that ended takes no orders any more.
        let _ = self.orders.send(order);
    }

    /// Wakes at every change of output or state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn log<T>(&self, look: impl FnOnce(&OutputLog) -> T) -> T {
        look(&self.inner().log)
    }

    pub(crate) fn discard_output(&self) {
        self.inner().log.discard();
    }

    /// Gives it the terminal that it runs on.
    pub(crate) fn set_terminal(&self, terminal: Option<Arc<JobTerminal>>) {
        self.inner().terminal = terminal;
    }

    /// Its terminal, while it runs on one.
    pub(crate) fn terminal(&self) -> Option<Arc<JobTerminal>> {
        self.inner().terminal.clone()
    }

    pub(crate) fn ended(&self) -> bool {
        self.inner().ended.is_some()
    }

    /// Waits for its end.
    pub(crate) async fn over(&self) {
        let mut changes = self.changes();
        while !self.ended() && changes.changed().await.is_ok() {}
    }

    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.inner().ended.as_ref().map(|it| it.at)
    }

    /// Notes that another command runs, too.
    pub(crate) fn note_overlap(&self) {
        self.overlapped.store(true, Ordering::Relaxed);
    }

    fn overlapped(&self) -> bool {
        self.overlapped.load(Ordering::Relaxed)
    }

    pub(crate) fn is_background(&self) -> bool {
        self.inner().life == Lifetime::Job
    }

    /// Whether it goes on without a waiting caller.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        self.inner().life != Lifetime::Foreground
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.inner().told
    }

    /// Something of it may still run, or print.
    pub(crate) fn has_leftovers(&self) -> bool {
        let left = self.inner().ended.as_ref().is_none_or(|it| it.left > 0);
        left || self.attended.load(Ordering::Relaxed)
    }

    /// It printed more than the waiting caller passes on.
    pub(crate) fn is_cut(&self) -> bool {
        let inner = self.inner();
        inner.log.total(StreamSelector::Stdout).max(inner.log.total(StreamSelector::Stderr)) > self.cut
    }

    /// The waiting caller has all output, and nothing is left of the command: there will be no further request.
    pub(crate) fn is_told(&self) {
        let cut = self.is_cut();
        let mut inner = self.inner();
        let over = inner.ended.as_ref().is_some_and(|it| it.left == 0);
        inner.told = over && !cut && inner.life == Lifetime::Foreground;
    }

    /// A new follower, in the place of all before it.
    pub(crate) fn new_follower(&self) -> u64 {
        let number = self.follower.fetch_add(1, Ordering::Relaxed) + 1;
        self.follow(number, None);
        number
    }

    /// The last moment at which it printed something, or began.
    pub(crate) fn printed(&self) -> Instant {
        self.inner().printed
    }

    /// Lets output wait for this subscriber, which was sent that much.
    pub(crate) fn follow(&self, follower: u64, sent: Option<u64>) {
        if self.is_newest(follower) {
            self.inner().sent = sent;
            self.taken.notify_one();
        }
    }

    fn is_newest(&self, follower: u64) -> bool {
        self.follower.load(Ordering::Relaxed) == follower
    }

    /// Stops waiting for the reader of the output.
    fn release_backpressure(&self) {
        self.inner().sent = None;
        self.taken.notify_one();
    }

    /// The status, once it ended or was left to run at a limit.
    pub(crate) fn end(&self) -> Option<protocol::ExecStatus> {
        let inner = self.inner();
        (inner.ended.is_some() || inner.kept_at.is_some()).then(|| self.end_of(&inner))
    }

    fn end_of(&self, inner: &JobState) -> protocol::ExecStatus {
        let log = &inner.log;
        let ended = inner.ended.as_ref();
        let (code, signal) = match ended.and_then(|it| it.exit) {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)), Some(signal)),
            // It had to be ended and its status is unknown: reported as ended by KILL.
            None => (ended.map(|_| 128 + 9), None),
        };
        let at = ended.map_or_else(Instant::now, |it| it.at);
        protocol::ExecStatus {
            state: ended.map(|it| it.state).or(inner.kept_at).unwrap_or(ExecState::Running),
            code,
            signal,
            stdout: log.total(StreamSelector::Stdout),
            stderr: log.total(StreamSelector::Stderr),
            dropped: log.dropped(),
            left: ended.map_or(0, |it| it.left),
            tree_ended: ended.and_then(|it| it.tree_ended),
            oom: ended.is_some_and(|it| it.oom),
            ms: u64::try_from((at - self.began).as_millis()).unwrap_or(u64::MAX),
            kept: true,
        }
    }

    /// The job as it is.
    pub(crate) fn seen(&self) -> protocol::JobInfo {
        let inner = self.inner();
        let mut end = self.end_of(&inner);
        if inner.ended.is_none() {
            end.state = ExecState::Running;
        }
        protocol::JobInfo {
            job: self.id.clone(),
            pid: self.pid,
            command: self.command.clone(),
            root: self.root,
            foreground: self.foreground,
            began_ms: self.began_ms,
            ended_ms: inner.ended.as_ref().map(|it| it.at_ms),
            end,
        }
    }

    pub(crate) fn begun(&self) -> protocol::ExecStarted {
        protocol::ExecStarted { job: self.id.clone(), pid: self.pid, at_ms: self.began_ms }
    }

    fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut inner = self.inner();
        inner.log.append(stream, bytes);
        inner.printed = Instant::now();
        drop(inner);
        self.changed.send_replace(());
    }

    /// Whether the subscriber is at most a window behind.
    fn has_room(&self) -> bool {
        let inner = self.inner();
        inner.sent.is_none_or(|sent| inner.log.total(StreamSelector::All).saturating_sub(sent) < WINDOW)
    }

    fn finish(&self, ended: JobEnd) {
        let mut inner = self.inner();
        inner.log.finish();
        inner.ended = Some(ended);
        inner.terminal = None;
        drop(inner);
        self.changed.send_replace(());
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}

/// The first 200 characters of a command, for lists.
fn shown(words: &[Vec<u8>]) -> String {
    let start: Vec<u8> = words.join(&b' ').into_iter().take(800).collect();
    String::from_utf8_lossy(&start).chars().take(200).collect()
}
