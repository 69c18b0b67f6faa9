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

/// After a command ended, its pipes are read until they are silent this long: descendants may hold them open.
const DRAIN_SILENCE: Duration = Duration::from_millis(200);

/// Longest time to drain the output of descendants.
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// A foreground command whose connection was lost is ended after this time.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// The signal by which the kernel kills for lack of memory, and the exit code that a shell makes of it.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();
const KILL_EXIT_CODE: u8 = 137;

pub(super) struct Monitor {
    job: Arc<Job>,
    machine: Arc<dyn ProcessBackend>,
    /// The kernel's count of kills for lack of memory when it started.
    oom_before: u64,
    stdout: OutputPipe,
    stderr: OutputPipe,
    exit: Option<oneshot::Receiver<Exit>>,
    total: Option<Instant>,
    silence: Option<Duration>,
    /// The last waiting caller whose connection was lost, and the time at which the command is ended for that.
    orphaned: Option<(u64, Instant)>,
    /// Secret files of this command alone.
    secrets: Option<CommandSecrets>,
}

/// The command's own process has ended, and its pipes are still open.
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

    /// When to stop draining.
    fn until(self) -> Instant {
        (self.printed + DRAIN_SILENCE).min(self.since + MAX_DRAIN)
    }
}

/// Why monitoring stopped.
enum StopReason {
    /// The command's own process ended, and its pipes are closed or silent.
    Over(Option<Exit>),
    /// A limit was reached or a caller cancelled: the process tree must be ended.
    Stop(ExecState, Duration),
}

impl Monitor {
    pub(super) fn new(
        job: Arc<Job>,
        (process, secrets): (Process, CommandSecrets),
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
            secrets: Some(secrets),
            job,
            oom_before: machine.oom_kills(),
            machine,
        }
    }

    /// Whether the kernel killed a process of this command for lack of memory. It counts kills for the whole container, so if
    /// other commands ran, only an exit by KILL counts, the command's own or one that a shell passed on.
    fn is_oom_victim(&self, exit: Option<Exit>) -> bool {
        match exit {
            Some(Exit::Code(0)) => false,
            Some(Exit::Signal(KILL) | Exit::Code(KILL_EXIT_CODE)) => true,
            _ => !self.job.overlapped(),
        }
    }

    pub(super) async fn run(mut self, mut controls: mpsc::UnboundedReceiver<JobControl>) {
        let (state, exit, tree_ended) = match self.until_over(&mut controls).await {
            StopReason::Over(exit) => (ExecState::Exited, exit, None),
            StopReason::Stop(state, grace) => {
                let (exit, ended) = self.stop(grace).await;
                (state, exit, Some(ended))
            }
        };
        let left = if tree_ended == Some(true) { 0 } else { self.machine.count(self.job.mark).await };
        let oom = self.machine.oom_kills() > self.oom_before && self.is_oom_victim(exit);
        // Remove the secret files before the end is reported.
        drop(self.secrets.take());
        self.job.finish(JobEnd { state, exit, left, tree_ended, oom, at: Instant::now(), at_ms: now_ms() });
        // Descendants may continue to print.
        while self.read_output().await {}
        self.job.monitored.store(false, Ordering::Relaxed);
    }

    async fn until_over(&mut self, controls: &mut mpsc::UnboundedReceiver<JobControl>) -> StopReason {
        let mut over: Option<DrainState> = None;
        let (job, mut had_room) = (self.job.clone(), true);
        loop {
            let open = self.stdout.is_open() || self.stderr.is_open();
            if let Some(over) = over.filter(|_| !open) {
                return StopReason::Over(over.exit);
            }
            let room = self.job.has_room();
            if room && !had_room {
                // The pipes were not read during that time, so the silence was not the command's.
                self.job.inner().printed = Instant::now();
            }
            had_room = room;
            let (limit, state) = self.next_limit(room && over.is_none());
            tokio::select! {
                biased;
                Some(control) = controls.recv() => match control {
                    JobControl::Cancel(grace) => return StopReason::Stop(ExecState::Cancelled, grace),
                    JobControl::Orphan(subscriber) => self.orphaned = Some((subscriber, Instant::now() + ORPHAN_TIMEOUT)),
                },
                exit = exited(&mut self.exit) => over = Some(DrainState::now(exit)),
                // Before the pipes: continuous output must not prevent a limit from being handled.
                () = at(limit) => {
                    if let Some(over) = over {
                        return StopReason::Over(over.exit);
                    }
                    if let Some(why) = self.handle_limit(state) {
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

    /// The next limit, and the state to report for it.
    fn next_limit(&self, can_be_silent: bool) -> (Option<Instant>, ExecState) {
        let silence = self.silence.filter(|_| can_be_silent).map(|it| self.job.printed() + it);
        let orphaned = self.orphaned.filter(|it| self.job.is_newest(it.0)).map(|it| it.1);
        let limits =
            [(self.total, ExecState::TotalTime), (silence, ExecState::Silence), (orphaned, ExecState::Cancelled)];
        let first = limits.into_iter().filter_map(|(limit, state)| Some((limit?, state))).min_by_key(|it| it.0);
        first.map_or((None, ExecState::Running), |(limit, state)| (Some(limit), state))
    }

    /// Handles a reached limit: ends the command, or detaches it from its caller.
    fn handle_limit(&mut self, state: ExecState) -> Option<StopReason> {
        let mut inner = self.job.inner();
        if inner.life == Lifetime::Keep {
            self.orphaned = None;
            if state != ExecState::Cancelled {
                (self.total, self.silence) = (None, None);
                inner.detached_at = Some(state);
                inner.life = Lifetime::Job;
                inner.sent = None;
            }
            drop(inner);
            self.job.changed.send_replace(());
            return None;
        }
        Some(StopReason::Stop(state, self.job.grace))
    }

    /// Ends the process tree, and reads its remaining output.
    async fn stop(&mut self, grace: Duration) -> (Option<Exit>, bool) {
        self.job.release_backpressure();
        let (machine, mark) = (self.machine.clone(), self.job.mark);
        let ending = machine.end(mark, grace);
        tokio::pin!(ending);
        let ended = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                more = self.read_output() => if !more {
                    break ending.await;
                },
            }
        };
        let deadline = Instant::now() + DRAIN_SILENCE;
        while tokio::time::timeout_at(deadline, self.read_output()).await.unwrap_or(false) {}
        let exit = tokio::time::timeout_at(deadline, exited(&mut self.exit)).await;
        (exit.ok().flatten(), ended)
    }

    /// Reads once from a pipe that has data; `false` if both are at their end. Cancel safe.
    async fn read_output(&mut self) -> bool {
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

/// Returns the exit status once; never completes after that.
async fn exited(exit: &mut Option<oneshot::Receiver<Exit>>) -> Option<Exit> {
    let Some(receiver) = exit else { return std::future::pending().await };
    let status = receiver.await.ok();
    *exit = None;
    status
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
