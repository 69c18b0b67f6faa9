//! A command with its process, output, limits and exit status.

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
    /// End the command, with this much time between TERM and KILL.
    Cancel(Duration),
    /// The connection of that subscriber was lost.
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
    /// A caller inside the container requested it.
    pub(crate) inside: bool,
    began: Instant,
    began_ms: u64,
    /// How many bytes of a stream the waiting caller passes on.
    cut: u64,
    inner: Mutex<JobState>,
    /// The newest subscriber. Only its requests count: an earlier connection may end late.
    subscriber: AtomicU64,
    /// Whether another command ran at the same time.
    overlapped: AtomicBool,
    /// Whether its pipes are still read.
    monitored: AtomicBool,
    controls: mpsc::UnboundedSender<JobControl>,
    changed: watch::Sender<()>,
    /// Notified when a subscriber takes output.
    taken: Notify,
}

#[derive(Debug)]
struct JobState {
    log: OutputLog,
    life: Lifetime,
    /// The limit at which it was detached from its caller.
    detached_at: Option<ExecState>,
    ended: Option<JobEnd>,
    printed: Instant,
    /// Bytes that were sent to the subscriber.
    sent: Option<u64>,
    /// Whether the waiting caller received all output and the status.
    delivered: bool,
    /// Set until the command has ended.
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
    /// Creates a job and its monitor, which the caller must spawn.
    pub(crate) fn new(
        request: &protocol::ExecRequest,
        argv: &[Vec<u8>],
        (process, mark, secrets): (Process, TreeId, CommandSecrets),
        log: OutputLog,
        machine: Arc<dyn ProcessBackend>,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (controls, inbox) = mpsc::unbounded_channel();
        let now = Instant::now();
        let life = request.life;
        let inner = JobState {
            log,
            life,
            detached_at: None,
            ended: None,
            printed: now,
            sent: None,
            delivered: false,
            terminal: None,
        };
        let job = Arc::new(Self {
            id: request.job.clone(),
            pid: process.pid,
            mark,
            grace: Duration::from_millis(request.limits.grace_ms),
            command: shown(argv),
            root: process.root,
            foreground: request.life != Lifetime::Job,
            inside: request.from_container,
            began: now,
            began_ms: now_ms(),
            cut: request.inline_limit,
            inner: Mutex::new(inner),
            subscriber: AtomicU64::new(0),
            overlapped: AtomicBool::new(false),
            monitored: AtomicBool::new(true),
            controls,
            changed: watch::Sender::new(()),
            taken: Notify::new(),
        });
        let monitor = Monitor::new(job.clone(), (process, secrets), machine, &request.limits);
        (job, monitor.run(inbox))
    }

    fn inner(&self) -> MutexGuard<'_, JobState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send_control(&self, control: JobControl) {
        // Fails only if the command has ended already.
        let _ = self.controls.send(control);
    }

    /// A receiver that is notified of every change of output or state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn log<T>(&self, look: impl FnOnce(&OutputLog) -> T) -> T {
        look(&self.inner().log)
    }

    pub(crate) fn discard_output(&self) {
        self.inner().log.discard();
    }

    /// Sets the terminal on which it runs.
    pub(crate) fn set_terminal(&self, terminal: Option<Arc<JobTerminal>>) {
        self.inner().terminal = terminal;
    }

    /// Its terminal, while it runs.
    pub(crate) fn terminal(&self) -> Option<Arc<JobTerminal>> {
        self.inner().terminal.clone()
    }

    pub(crate) fn ended(&self) -> bool {
        self.inner().ended.is_some()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_ended(&self) {
        let mut changes = self.changes();
        while !self.ended() && changes.changed().await.is_ok() {}
    }

    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.inner().ended.as_ref().map(|it| it.at)
    }

    /// Records that another command runs at the same time.
    pub(crate) fn record_overlap(&self) {
        self.overlapped.store(true, Ordering::Relaxed);
    }

    fn overlapped(&self) -> bool {
        self.overlapped.load(Ordering::Relaxed)
    }

    pub(crate) fn is_background(&self) -> bool {
        self.inner().life == Lifetime::Job
    }

    /// Whether it continues without a waiting caller.
    pub(crate) fn survives_caller(&self) -> bool {
        self.inner().life != Lifetime::Foreground
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.inner().delivered
    }

    /// Whether processes of it may still run or print.
    pub(crate) fn has_leftovers(&self) -> bool {
        let left = self.inner().ended.as_ref().is_none_or(|it| it.left > 0);
        left || self.monitored.load(Ordering::Relaxed)
    }

    /// Whether it printed more than the waiting caller passes on.
    pub(crate) fn is_cut(&self) -> bool {
        let inner = self.inner();
        inner.log.total(StreamSelector::Stdout).max(inner.log.total(StreamSelector::Stderr)) > self.cut
    }

    /// Marks the job as delivered if the caller has all output and no process is left: there will be no further request.
    pub(crate) fn mark_delivered(&self) {
        let cut = self.is_cut();
        let mut inner = self.inner();
        let over = inner.ended.as_ref().is_some_and(|it| it.left == 0);
        inner.delivered = over && !cut && inner.life == Lifetime::Foreground;
    }

    /// Adds a subscriber, which replaces all before it.
    pub(crate) fn new_subscriber(&self) -> u64 {
        let number = self.subscriber.fetch_add(1, Ordering::Relaxed) + 1;
        self.follow(number, None);
        number
    }

    /// When it printed output last, or started.
    pub(crate) fn printed(&self) -> Instant {
        self.inner().printed
    }

    /// Applies backpressure for this subscriber, which was sent that many bytes.
    pub(crate) fn follow(&self, subscriber: u64, sent: Option<u64>) {
        if self.is_newest(subscriber) {
            self.inner().sent = sent;
            self.taken.notify_one();
        }
    }

    fn is_newest(&self, subscriber: u64) -> bool {
        self.subscriber.load(Ordering::Relaxed) == subscriber
    }

    /// Stops waiting for the reader of the output.
    fn release_backpressure(&self) {
        self.inner().sent = None;
        self.taken.notify_one();
    }

    /// The status, once it ended or was detached at a limit.
    pub(crate) fn end(&self) -> Option<protocol::ExecStatus> {
        let inner = self.inner();
        (inner.ended.is_some() || inner.detached_at.is_some()).then(|| self.end_of(&inner))
    }

    fn end_of(&self, inner: &JobState) -> protocol::ExecStatus {
        let log = &inner.log;
        let ended = inner.ended.as_ref();
        let (code, signal) = match ended.and_then(|it| it.exit) {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)), Some(signal)),
            // The guest ended it and its status is unknown: reported as killed.
            None => (ended.map(|_| 128 + 9), None),
        };
        let at = ended.map_or_else(Instant::now, |it| it.at);
        protocol::ExecStatus {
            state: ended.map(|it| it.state).or(inner.detached_at).unwrap_or(ExecState::Running),
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

    /// Describes the current state of the job.
    pub(crate) fn info(&self) -> protocol::JobInfo {
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

    pub(crate) fn started_event(&self) -> protocol::ExecStarted {
        protocol::ExecStarted { job: self.id.clone(), pid: self.pid, at_ms: self.began_ms }
    }

    fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut inner = self.inner();
        inner.log.append(stream, bytes);
        inner.printed = Instant::now();
        drop(inner);
        self.changed.send_replace(());
    }

    /// Whether the subscriber is at most one window behind.
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
fn shown(argv: &[Vec<u8>]) -> String {
    let start: Vec<u8> = argv.join(&b' ').into_iter().take(800).collect();
    String::from_utf8_lossy(&start).chars().take(200).collect()
}
