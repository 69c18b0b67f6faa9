//! One command: its process, its output, its limits and its end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::machine::{Exit, Machine, Mark, Process};
use crate::output::Log;
use crate::wire::{self, Life, Limits, Part, State, Stream, WINDOW};

/// After a command ended, its pipes are given this long to fall silent: what it left behind may hold them.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a command left behind may go on printing, so no call waits for silence longer than this.
const LAST_WORDS_AT_MOST: Duration = Duration::from_secs(2);

/// A foreground command without a connection is ended after this time.
const ORPHANED: Duration = Duration::from_secs(5);

/// Output that is read at once.
const BUFFER: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// What a job is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
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
    pub(crate) mark: Mark,
    pub(crate) grace: Duration,
    command: String,
    root: bool,
    foreground: bool,
    began: Instant,
    began_ms: u64,
    /// Bytes of a stream that who waits for it passes on.
    cut: u64,
    inner: Mutex<Inner>,
    /// The newest of those who waited for it. Only what that one does counts: an earlier connection may end late.
    follower: AtomicU64,
    /// Its pipes are read.
    attended: AtomicBool,
    orders: mpsc::UnboundedSender<Order>,
    changed: watch::Sender<()>,
    /// Who follows everything took some of it.
    taken: Notify,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    life: Life,
    /// The limit at which it was left to run.
    kept_at: Option<State>,
    ended: Option<Ended>,
    printed: Instant,
    /// Bytes that who follows everything was sent.
    sent: Option<u64>,
    /// Who waited for it was told all of it.
    told: bool,
}

#[derive(Clone, Debug)]
struct Ended {
    state: State,
    exit: Option<Exit>,
    left: u32,
    tree_ended: Option<bool>,
    at: Instant,
    at_ms: u64,
}

impl Job {
    /// A job and what attends it, which the caller runs beside everything else.
    pub(crate) fn new(
        ask: &wire::Exec,
        words: &[Vec<u8>],
        (process, mark): (Process, Mark),
        log: Log,
        machine: Arc<dyn Machine>,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let now = Instant::now();
        let inner = Inner { log, life: ask.life, kept_at: None, ended: None, printed: now, sent: None, told: false };
        let job = Arc::new(Self {
            id: ask.job.clone(),
            pid: process.pid,
            mark,
            grace: Duration::from_millis(ask.limits.grace_ms),
            command: shown(words),
            root: process.root,
            foreground: ask.life != Life::Job,
            began: now,
            began_ms: now_ms(),
            cut: ask.cut,
            inner: Mutex::new(inner),
            follower: AtomicU64::new(0),
            attended: AtomicBool::new(true),
            orders,
            changed: watch::Sender::new(()),
            taken: Notify::new(),
        });
        let attendant = Attendant::new(job.clone(), process, machine, &ask.limits);
        (job, attendant.attend(inbox))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn order(&self, order: Order) {
        // One that ended takes no orders any more.
        let _ = self.orders.send(order);
    }

    /// Wakes at every change of output or state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.inner().log)
    }

    pub(crate) fn shed(&self) {
        self.inner().log.shed();
    }

    pub(crate) fn ended(&self) -> bool {
        self.inner().ended.is_some()
    }

    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.inner().ended.as_ref().map(|it| it.at)
    }

    pub(crate) fn is_background(&self) -> bool {
        self.inner().life == Life::Job
    }

    /// It goes on when nobody waits for it.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        self.inner().life != Life::Foreground
    }

    pub(crate) fn told(&self) -> bool {
        self.inner().told
    }

    /// Something of it may still run, or print.
    pub(crate) fn lingers(&self) -> bool {
        let left = self.inner().ended.as_ref().is_none_or(|it| it.left > 0);
        left || self.attended.load(Ordering::Relaxed)
    }

    /// It printed more than who waits for it passes on.
    pub(crate) fn is_cut(&self) -> bool {
        let inner = self.inner();
        inner.log.total(Part::Stdout).max(inner.log.total(Part::Stderr)) > self.cut
    }

    /// Who waited has all of it, and nothing is left of it: nobody will ask again.
    pub(crate) fn is_told(&self) {
        let cut = self.is_cut();
        let mut inner = self.inner();
        let over = inner.ended.as_ref().is_some_and(|it| it.left == 0);
        inner.told = over && !cut && inner.life == Life::Foreground;
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

    /// From now on output waits for who follows it, who was sent that much.
    pub(crate) fn follow(&self, follower: u64, sent: Option<u64>) {
        if self.is_newest(follower) {
            self.inner().sent = sent;
            self.taken.notify_one();
        }
    }

    fn is_newest(&self, follower: u64) -> bool {
        self.follower.load(Ordering::Relaxed) == follower
    }

    /// Nobody is waited for any more.
    fn run_free(&self) {
        self.inner().sent = None;
        self.taken.notify_one();
    }

    /// The end, when there is one to be told: it ended, or was left to run at a limit.
    pub(crate) fn end(&self) -> Option<wire::End> {
        let inner = self.inner();
        (inner.ended.is_some() || inner.kept_at.is_some()).then(|| self.end_of(&inner))
    }

    fn end_of(&self, inner: &Inner) -> wire::End {
        let log = &inner.log;
        let ended = inner.ended.as_ref();
        let (code, signal) = match ended.and_then(|it| it.exit) {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)), Some(signal)),
            // It had to be ended and nobody saw how: as if by KILL.
            None => (ended.map(|_| 128 + 9), None),
        };
        let at = ended.map_or_else(Instant::now, |it| it.at);
        wire::End {
            state: ended.map(|it| it.state).or(inner.kept_at).unwrap_or(State::Running),
            code,
            signal,
            stdout: log.total(Part::Stdout),
            stderr: log.total(Part::Stderr),
            dropped: log.dropped(),
            left: ended.map_or(0, |it| it.left),
            tree_ended: ended.and_then(|it| it.tree_ended),
            ms: u64::try_from((at - self.began).as_millis()).unwrap_or(u64::MAX),
            kept: true,
        }
    }

    /// The job as it is.
    pub(crate) fn seen(&self) -> wire::Job {
        let inner = self.inner();
        let mut end = self.end_of(&inner);
        if inner.ended.is_none() {
            end.state = State::Running;
        }
        wire::Job {
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

    pub(crate) fn begun(&self) -> wire::Begun {
        wire::Begun { job: self.id.clone(), pid: self.pid, at_ms: self.began_ms }
    }

    fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut inner = self.inner();
        inner.log.append(stream, bytes);
        inner.printed = Instant::now();
        drop(inner);
        self.changed.send_replace(());
    }

    /// Who follows everything is at most a window behind.
    fn has_room(&self) -> bool {
        let inner = self.inner();
        inner.sent.is_none_or(|sent| inner.log.total(Part::All).saturating_sub(sent) < WINDOW)
    }

    fn finish(&self, ended: Ended) {
        let mut inner = self.inner();
        inner.log.finish();
        inner.ended = Some(ended);
        drop(inner);
        self.changed.send_replace(());
    }
}

/// Attends a command from its start to its end.
struct Attendant {
    job: Arc<Job>,
    machine: Arc<dyn Machine>,
    stdout: Pipe,
    stderr: Pipe,
    exit: Option<tokio::sync::oneshot::Receiver<Exit>>,
    total: Option<Instant>,
    silence: Option<Duration>,
    /// Who waited last is gone, and when that ends the command.
    orphaned: Option<(u64, Instant)>,
}

struct Pipe {
    source: Option<Box<dyn AsyncRead + Send + Unpin>>,
    buffer: Vec<u8>,
}

impl Pipe {
    fn new(source: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Self {
        Self { source, buffer: Vec::new() }
    }

    /// The next bytes are in the buffer; `false` at the end. Safe to abandon.
    ///
    /// All pipes read into one place, so that a command which prints little holds little.
    async fn read(&mut self) -> bool {
        let Self { source: Some(source), buffer } = self else { return false };
        let read = poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut into = ReadBuf::new(scratch);
                let read = ready!(Pin::new(&mut **source).poll_read(cx, &mut into));
                buffer.clear();
                buffer.extend_from_slice(into.filled());
                Poll::Ready(read)
            })
        });
        // A terminal whose last user is gone fails with EIO: that is its end.
        let more = read.await.is_ok() && !self.buffer.is_empty();
        if !more {
            *self = Self::new(None);
        }
        more
    }
}

/// Its own process ended, and its pipes are still open.
#[derive(Clone, Copy)]
struct Over {
    exit: Option<Exit>,
    since: Instant,
    printed: Instant,
}

impl Over {
    fn now(exit: Option<Exit>) -> Self {
        let now = Instant::now();
        Self { exit, since: now, printed: now }
    }

    fn printed(self) -> Self {
        Self { printed: Instant::now(), ..self }
    }

    /// When nothing more is waited for.
    fn until(self) -> Instant {
        (self.printed + LAST_WORDS).min(self.since + LAST_WORDS_AT_MOST)
    }
}

/// Why attending stopped.
enum Why {
    /// Its own process ended, and its pipes are closed or silent.
    Over(Option<Exit>),
    /// A limit, or the caller: the tree has to be ended.
    Stop(State, Duration),
}

impl Attendant {
    fn new(job: Arc<Job>, process: Process, machine: Arc<dyn Machine>, limits: &Limits) -> Self {
        Self {
            total: limits.total_ms.map(|it| job.began + Duration::from_millis(it)),
            silence: limits.silence_ms.map(Duration::from_millis),
            stdout: Pipe::new(Some(process.stdout)),
            stderr: Pipe::new(process.stderr),
            exit: Some(process.exit),
            orphaned: None,
            job,
            machine,
        }
    }

    async fn attend(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let (state, exit, tree_ended) = match self.until_over(&mut orders).await {
            Why::Over(exit) => (State::Exited, exit, None),
            Why::Stop(state, grace) => {
                let (exit, ended) = self.stop(grace).await;
                (state, exit, Some(ended))
            }
        };
        let left = if tree_ended == Some(true) { 0 } else { self.machine.count(self.job.mark).await };
        self.job.finish(Ended { state, exit, left, tree_ended, at: Instant::now(), at_ms: now_ms() });
        // What is left behind may go on printing.
        while self.read_on().await {}
        self.job.attended.store(false, Ordering::Relaxed);
    }

    async fn until_over(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Why {
        let mut over: Option<Over> = None;
        let (job, mut had_room) = (self.job.clone(), true);
        loop {
            let open = self.stdout.source.is_some() || self.stderr.source.is_some();
            if let Some(over) = over.filter(|_| !open) {
                return Why::Over(over.exit);
            }
            let room = self.job.has_room();
            if room && !had_room {
                // Nobody read its pipes meanwhile, so it was not the command that was silent.
                self.job.inner().printed = Instant::now();
            }
            had_room = room;
            let (limit, state) = self.next_limit(room && over.is_none());
            tokio::select! {
                biased;
                Some(order) = orders.recv() => match order {
                    Order::Cancel(grace) => return Why::Stop(State::Cancelled, grace),
                    Order::Orphan(follower) => self.orphaned = Some((follower, Instant::now() + ORPHANED)),
                },
                exit = exited(&mut self.exit) => over = Some(Over::now(exit)),
                // Before the pipes: a flood must not keep a limit from being seen.
                () = at(limit) => {
                    if let Some(over) = over {
                        return Why::Over(over.exit);
                    }
                    if let Some(why) = self.reach(state) {
                        return why;
                    }
                }
                () = at(over.map(Over::until)), if room => return Why::Over(over.and_then(|it| it.exit)),
                more = self.stdout.read(), if room && self.stdout.source.is_some() => if more {
                    self.job.append(Stream::Stdout, &self.stdout.buffer);
                    over = over.map(Over::printed);
                },
                more = self.stderr.read(), if room && self.stderr.source.is_some() => if more {
                    self.job.append(Stream::Stderr, &self.stderr.buffer);
                    over = over.map(Over::printed);
                },
                () = job.taken.notified(), if !room => {}
            }
        }
    }

    /// The next limit, and what it is called.
    fn next_limit(&self, can_be_silent: bool) -> (Option<Instant>, State) {
        let silence = self.silence.filter(|_| can_be_silent).map(|it| self.job.printed() + it);
        let orphaned = self.orphaned.filter(|it| self.job.is_newest(it.0)).map(|it| it.1);
        let limits = [(self.total, State::TotalTime), (silence, State::Silence), (orphaned, State::Cancelled)];
        let first = limits.into_iter().filter_map(|(limit, state)| Some((limit?, state))).min_by_key(|it| it.0);
        first.map_or((None, State::Running), |(limit, state)| (Some(limit), state))
    }

    /// A limit is reached: the command is ended, or left to run from now on.
    fn reach(&mut self, state: State) -> Option<Why> {
        let mut inner = self.job.inner();
        if inner.life == Life::Keep {
            self.orphaned = None;
            if state != State::Cancelled {
                (self.total, self.silence) = (None, None);
                inner.kept_at = Some(state);
                inner.life = Life::Job;
                inner.sent = None;
            }
            drop(inner);
            self.job.changed.send_replace(());
            return None;
        }
        Some(Why::Stop(state, self.job.grace))
    }

    /// Ends the tree, and reads what it still prints meanwhile.
    async fn stop(&mut self, grace: Duration) -> (Option<Exit>, bool) {
        self.job.run_free();
        let (machine, mark) = (self.machine.clone(), self.job.mark);
        let ending = machine.end(mark, grace);
        tokio::pin!(ending);
        let ended = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                more = self.read_on() => if !more {
                    break ending.await;
                },
            }
        };
        let patience = Instant::now() + LAST_WORDS;
        while tokio::time::timeout_at(patience, self.read_on()).await.unwrap_or(false) {}
        let exit = tokio::time::timeout_at(patience, exited(&mut self.exit)).await;
        (exit.ok().flatten(), ended)
    }

    /// Reads once from whichever pipe has something; `false` when both are at their end. Safe to abandon.
    async fn read_on(&mut self) -> bool {
        tokio::select! {
            more = self.stdout.read(), if self.stdout.source.is_some() => if more {
                self.job.append(Stream::Stdout, &self.stdout.buffer);
            },
            more = self.stderr.read(), if self.stderr.source.is_some() => if more {
                self.job.append(Stream::Stderr, &self.stderr.buffer);
            },
            else => return false,
        }
        true
    }
}

/// How it ended, once; then never again.
async fn exited(exit: &mut Option<tokio::sync::oneshot::Receiver<Exit>>) -> Option<Exit> {
    let Some(receiver) = exit else { return std::future::pending().await };
    let known = receiver.await.ok();
    *exit = None;
    known
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
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
