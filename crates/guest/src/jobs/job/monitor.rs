//! Monitors a command from start to end: reads its pipes, enforces its limits, handles requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::reader::OutputPipe;
use super::{Job, JobControl, JobEnd, now_ms};
use crate::os::machine::{Exit, Process, ProcessBackend};
use crate::protocol::{ExecState, ExecTimeouts, Lifetime, Stream};
use crate::secrets::CommandSecrets;

/// After a command ended, its pipes are given this long to fall silent: what it left behind may hold them.
const DRAIN_SILENCE: Duration = Duration::from_millis(200);

/// Upper bound for draining output of orphaned children.
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// A foreground command without a connection is ended after this time.
const ORPHANED: Duration = Duration::from_secs(5);

/// The signal of the kernel's kill for lack of memory, and the exit code that a shell makes of it.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();
const CODE_OF_KILL: u8 = 137;

/// Attends a command from its start to its end.
pub(super) struct Monitor {
    job: Arc<Job>,
    machine: Arc<dyn ProcessBackend>,
    /// Processes that had been ended for memory when it began.
    oom_before: u64,
    stdout: OutputPipe,
    stderr: OutputPipe,
    exit: Option<oneshot::Receiver<Exit>>,
    total: Option<Instant>,
    silence: Option<Duration>,
    /// The last waiting caller that disconnected, and the time at which that ends the command.
    orphaned: Option<(u64, Instant)>,
    /// Files that it alone has.
    lent: Option<CommandSecrets>,
}

/// Its own process ended, and its pipes are still open.
#[derive(Clone, Copy)]
struct DrainState {
    exit: Option<Exit>,
    since: Instant,
    printed: Instant,
}

impl DrainState {
    fn now(exit: Option<Exit>) -> Self {
        let now = Instant::now();
        Self { exit, since: now, printed: now }
    }

    fn printed(self) -> Self {
        Self { printed: Instant::now(), ..self }
    }

    /// The end of the drain.
    fn until(self) -> Instant {
        (self.printed + DRAIN_SILENCE).min(self.since + MAX_DRAIN)
    }
}

/// Why monitoring stopped.
enum StopReason {
    /// Its own process ended, and its pipes are closed or silent.
    Over(Option<Exit>),
    /// A limit, or the caller: the tree has to be ended.
    Stop(ExecState, Duration),
}

impl Monitor {
    pub(super) fn new(
        job: Arc<Job>,
        (process, lent): (Process, CommandSecrets),
        machine: Arc<dyn ProcessBackend>,
        limits: &ExecTimeouts,
    ) -> Self {
        Self {
            total: limits.total_ms.map(|it| job.began + Duration::from_millis(it)),
            silence: limits.silence_ms.map(Duration::from_millis),
            stdout: OutputPipe::new(Some(process.stdout)),
            stderr: OutputPipe::new(process.stderr),
            exit: Some(process.exit),
            orphaned: None,
            lent: Some(lent),
            job,
            oom_before: machine.oom_kills(),
            machine,
        }
    }

    /// Whether a kill for lack of memory, while it ran, was one of its processes. The kernel counts kills for the whole
    /// container: beside other commands, only an end by KILL tells, its own or the one that a shell passes on.
    fn is_oom_victim(&self, exit: Option<Exit>) -> bool {
        match exit {
            Some(Exit::Code(0)) => false,
            Some(Exit::Signal(KILL) | Exit::Code(CODE_OF_KILL)) => true,
            _ => !self.job.overlapped(),
        }
    }

    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<JobControl>) {
        let (state, exit, tree_ended) = match self.until_over(&mut orders).await {
            StopReason::Over(exit) => (ExecState::Exited, exit, None),
            StopReason::Stop(state, grace) => {
                let (exit, ended) = self.stop(grace).await;
                (state, exit, Some(ended))
            }
        };
        let left = if tree_ended == Some(true) { 0 } else { self.machine.count(self.job.mark).await };
        let oom = self.machine.oom_kills() > self.oom_before && self.is_oom_victim(exit);
        // Before its end is reported.
        drop(self.lent.take());
        self.job.finish(JobEnd { state, exit, left, tree_ended, oom, at: Instant::now(), at_ms: now_ms() });
        // What is left behind may go on printing.
        while self.read_on().await {}
        self.job.attended.store(false, Ordering::Relaxed);
    }

    async fn until_over(&mut self, orders: &mut mpsc::UnboundedReceiver<JobControl>) -> StopReason {
        let mut over: Option<DrainState> = None;
        let (job, mut had_room) = (self.job.clone(), true);
        loop {
            let open = self.stdout.is_open() || self.stderr.is_open();
            if let Some(over) = over.filter(|_| !open) {
                return StopReason::Over(over.exit);
            }
            let room = self.job.has_room();
            if room && !had_room {
                // Its pipes were not read during that time, so the silence was not the command's.
                self.job.inner().printed = Instant::now();
            }
            had_room = room;
            let (limit, state) = self.next_limit(room && over.is_none());
            tokio::select! {
                biased;
                Some(order) = orders.recv() => match order {
                    JobControl::Cancel(grace) => return StopReason::Stop(ExecState::Cancelled, grace),
                    JobControl::Orphan(follower) => self.orphaned = Some((follower, Instant::now() + ORPHANED)),
                },
                exit = exited(&mut self.exit) => over = Some(DrainState::now(exit)),
                // Before the pipes: a flood must not keep a limit from being seen.
                () = at(limit) => {
                    if let Some(over) = over {
                        return StopReason::Over(over.exit);
                    }
                    if let Some(why) = self.reach(state) {
                        return why;
                    }
                }
                () = at(over.map(DrainState::until)), if room => return StopReason::Over(over.and_then(|it| it.exit)),
                more = self.stdout.read(), if room && self.stdout.is_open() => if more {
                    self.job.append(Stream::Stdout, self.stdout.bytes());
                    over = over.map(DrainState::printed);
                },
                more = self.stderr.read(), if room && self.stderr.is_open() => if more {
                    self.job.append(Stream::Stderr, self.stderr.bytes());
                    over = over.map(DrainState::printed);
                },
                () = job.taken.notified(), if !room => {}
            }
        }
    }

    /// The next limit, and what it is called.
    fn next_limit(&self, can_be_silent: bool) -> (Option<Instant>, ExecState) {
        let silence = self.silence.filter(|_| can_be_silent).map(|it| self.job.printed() + it);
        let orphaned = self.orphaned.filter(|it| self.job.is_newest(it.0)).map(|it| it.1);
        let limits =
            [(self.total, ExecState::TotalTime), (silence, ExecState::Silence), (orphaned, ExecState::Cancelled)];
        let first = limits.into_iter().filter_map(|(limit, state)| Some((limit?, state))).min_by_key(|it| it.0);
        first.map_or((None, ExecState::Running), |(limit, state)| (Some(limit), state))
    }

    /// A limit is reached: the command is ended, or left to run from now on.
    fn reach(&mut self, state: ExecState) -> Option<StopReason> {
        let mut inner = self.job.inner();
        if inner.life == Lifetime::Keep {
            self.orphaned = None;
            if state != ExecState::Cancelled {
                (self.total, self.silence) = (None, None);
                inner.kept_at = Some(state);
                inner.life = Lifetime::Job;
                inner.sent = None;
            }
            drop(inner);
            self.job.changed.send_replace(());
            return None;
        }
        Some(StopReason::Stop(state, self.job.grace))
    }

    /// Ends the tree, and reads its remaining output.
    async fn stop(&mut self, grace: Duration) -> (Option<Exit>, bool) {
        self.job.release_backpressure();
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
        let patience = Instant::now() + DRAIN_SILENCE;
        while tokio::time::timeout_at(patience, self.read_on()).await.unwrap_or(false) {}
        let exit = tokio::time::timeout_at(patience, exited(&mut self.exit)).await;
        (exit.ok().flatten(), ended)
    }

    /// Reads once from whichever pipe has something; `false` when both are at their end. Safe to abandon.
    async fn read_on(&mut self) -> bool {
        tokio::select! {
            more = self.stdout.read(), if self.stdout.is_open() => if more {
                self.job.append(Stream::Stdout, self.stdout.bytes());
            },
            more = self.stderr.read(), if self.stderr.is_open() => if more {
                self.job.append(Stream::Stderr, self.stderr.bytes());
            },
            else => return false,
        }
        true
    }
}

/// The exit status, once; pending after that.
async fn exited(exit: &mut Option<oneshot::Receiver<Exit>>) -> Option<Exit> {
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
