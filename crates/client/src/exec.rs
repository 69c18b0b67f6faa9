//! Runs commands: starts each once, and follows it to its end over several connections if necessary.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coracle_protocol::body::decode;
use coracle_protocol::call::Call as _;
use coracle_protocol::{
    self as protocol, AttachRequest, ErrorCode, ExecState, ExecStatus, GuestMessage, HostMessage, Lifetime,
    TerminalSize,
};
use coracle_types::{ContainerPath, ContainerStatus, Error, Exec, ExecLimits, ExecOutput, Exit, LimitKind, Result};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::call::{DEFAULT_TIMEOUT, encoded, refused};
use crate::channels::ReplyShape;
use crate::command::{EncodedExec, end_bytes};
use crate::connection::{Channel, ConnectionLost, Sender};
use crate::input::InputSource;
use crate::link::Link;
use crate::output::Outputs;

/// How much longer than its limits a command may take to end before it counts as lost.
const SLACK: Duration = Duration::from_secs(30);

/// How much longer than its limits a command may take to start.
const START_SLACK: Duration = Duration::from_secs(10);

/// Attempts to attach to a command that is being started, and their interval.
const ATTACH_ATTEMPTS: usize = 100;
const ATTACH_INTERVAL: Duration = Duration::from_millis(50);

/// How often a connection may break within a minute.
const MAX_DISCONNECTS: usize = 5;

const UNKNOWN_MESSAGE: &str = "the guest sent a message that this version does not know";

impl Link {
    /// Runs a command and waits for it.
    ///
    /// At a limit, when `exec.cancel` fires, or when the future is dropped, the guest ends the command's tree. If the
    /// connection breaks, the command is followed on the next one.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`] for a missing work directory, [`Error::NoShell`], [`Error::NotRunning`] if the container
    /// stopped, [`Error::GuestLost`] if it is unknown how the command ended, [`Error::Refused`].
    pub async fn exec(&self, mut exec: Exec) -> Result<ExecOutput> {
        let mut input = InputSource::input(exec.stdin.take());
        let request = EncodedExec::foreground(&exec, !input.done())?;
        let mut session = ExecSession::new(request, &mut exec);
        match session.run(self, &mut input).await? {
            ExecOutcome::End(end) => session.output(&end),
            ExecOutcome::Started(_) => Err(session.lost("the command started, but its end was not reported")),
            ExecOutcome::Withdrawn => {
                let mut output = session.partial_output();
                output.tree_ended = Some(true);
                Ok(*output)
            }
        }
    }

    /// Starts a command that outlives the call, and sends all of its input. Refused if `most` jobs run.
    ///
    /// # Errors
    /// As [`exec`](Self::exec); [`Error::Refused`] with [`ErrorCode::TooMany`].
    pub async fn start(&self, mut exec: Exec, most: Option<u32>) -> Result<protocol::ExecStarted> {
        exec.live = None;
        let input = InputSource::input(exec.stdin.take());
        let request = EncodedExec::job(&exec, !input.done(), most)?;
        self.start_encoded(request, exec, input).await
    }

    /// Starts an encoded command.
    pub(crate) async fn start_encoded(
        &self,
        request: EncodedExec,
        mut exec: Exec,
        mut input: InputSource,
    ) -> Result<protocol::ExecStarted> {
        let mut session = ExecSession::new(request, &mut exec);
        let done = session.run(self, &mut input).await?;
        match (done, session.started.take()) {
            (ExecOutcome::Started(started), _) | (ExecOutcome::End(_), Some(started)) => Ok(started),
            _ => Err(session.lost("the command did not start")),
        }
    }
}

/// One command, over all connections.
struct ExecSession {
    request: Arc<EncodedExec>,
    workdir: ContainerPath,
    limits: ExecLimits,
    cancel: CancellationToken,
    /// Sizes of its terminal.
    sizes: Option<watch::Receiver<TerminalSize>>,
    outputs: Outputs,
    from: Instant,
    /// Run of the guest to which it was sent.
    sent_to: Option<String>,
    /// When it was first sent.
    sent_at: Option<Instant>,
    /// Whether it was sent, so that it must be attached to instead of sent again.
    attach: bool,
    /// Whether it was sent again because the guest did not know it.
    resent: bool,
    /// Remaining attempts to attach, if the guest knows its id but may not have started it yet.
    attach_attempts: usize,
    /// Whether the guest has received all of the input.
    input_complete: bool,
    started: Option<protocol::ExecStarted>,
    /// Receives its process id.
    on_start: Option<oneshot::Sender<u32>>,
    cancelled: Option<Instant>,
    broken: Vec<Instant>,
    retried: bool,
}

/// The result of a session.
enum ExecOutcome {
    End(ExecStatus),
    /// It is a job that has started.
    Started(protocol::ExecStarted),
    /// It was cancelled before it was sent.
    Withdrawn,
}

/// Why the command is not followed on this connection any longer.
enum FollowEnd {
    Done(ExecOutcome),
    Failed(protocol::RpcError),
    Broken(ConnectionLost),
    Lost(&'static str),
    Input(io::Error),
}

impl ExecSession {
    fn new(request: EncodedExec, exec: &mut Exec) -> Self {
        Self {
            request: Arc::new(request),
            workdir: exec.workdir.clone(),
            limits: exec.limits,
            cancel: exec.cancel.clone(),
            sizes: exec.terminal.take(),
            outputs: Outputs::new(2 * end_bytes(exec.keep_bytes), exec.live.take()),
            from: Instant::now(),
            sent_to: None,
            sent_at: None,
            attach: false,
            resent: false,
            attach_attempts: 0,
            input_complete: true,
            started: None,
            on_start: exec.started.take(),
            cancelled: None,
            broken: Vec::new(),
            retried: false,
        }
    }

    async fn run(&mut self, link: &Link, input: &mut InputSource) -> Result<ExecOutcome> {
        loop {
            let (attached, cancel) = (self.attach, self.cancel.clone());
            let opened = tokio::select! {
                biased;
                () = cancel.cancelled(), if self.sent_to.is_none() => return Ok(ExecOutcome::Withdrawn),
                opened = self.open(link) => opened?,
            };
            let stop = match opened {
                Ok(mut channel) => {
                    let stop = self.follow(&mut channel, input, attached).await;
                    self.input_complete &= attached || input.is_complete(&channel.sender());
                    stop
                }
                Err(broken) => FollowEnd::Broken(broken),
            };
            match stop {
                FollowEnd::Done(done) => return Ok(done),
                FollowEnd::Failed(fault) if attached && fault.code == ErrorCode::NoJob && self.attach_attempts > 0 => {
                    self.attach_attempts -= 1;
                    sleep(ATTACH_INTERVAL).await;
                }
                FollowEnd::Failed(fault) => self.failed(fault, attached, input)?,
                FollowEnd::Broken(broken) => self.on_disconnect(&broken, attached, input)?,
                FollowEnd::Lost(reason) => return Err(self.lost(reason)),
                FollowEnd::Input(source) => {
                    return Err(Error::Host { what: "the input of the command cannot be read".into(), source });
                }
            }
        }
    }

    /// Sends the command, or attaches to it.
    async fn open(&mut self, link: &Link) -> Result<Result<Channel, ConnectionLost>> {
        let connection = match link.connection().await {
            Ok(connection) => connection,
            Err(err) => return Err(if self.sent_to.is_some() { self.lost_with(err) } else { err }),
        };
        if self.sent_to.as_ref().is_some_and(|it| *it != connection.run) {
            // The new run does not know the command, but the old one may have run it.
            return Err(self.lost("the container was restarted"));
        }
        let at = self.outputs.at();
        let run = connection.run.clone();
        let opened = if self.attach {
            connection.check_knows(AttachRequest::NAME)?;
            let (job, show) = (self.request.job.to_string(), self.request.show);
            let call = AttachRequest { job, stdout: at[0], stderr: at[1], show };
            connection.open(AttachRequest::NAME, &encoded(&call)?, ReplyShape::new(&call).from(at)).await
        } else {
            connection.check_knows(self.request.call)?;
            connection.open(self.request.call, &self.request.body, self.request.shape.from(at)).await
        };
        if opened.is_ok() {
            self.sent_to = Some(run);
            self.sent_at.get_or_insert_with(Instant::now);
            self.attach = true;
        }
        Ok(opened)
    }

    /// Handles messages until a reason to stop. Request and input are sent concurrently: a guest may refuse before it has
    /// received everything.
    async fn follow(&mut self, channel: &mut Channel, input: &mut InputSource, attached: bool) -> FollowEnd {
        let (opened, to, request) = (Instant::now(), channel.sender(), Arc::clone(&self.request));
        // A command that was started on another connection has all of its input, or is lost.
        let mut sending = !attached;
        let send = send(&request, input, &to);
        tokio::pin!(send);
        let mut sizes = self.sizes.clone();
        if self.cancelled.is_some() {
            channel.cancel();
        }
        loop {
            if attached && let Some(done) = self.started_job() {
                return FollowEnd::Done(done);
            }
            let watched = self.outputs.pending();
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if self.cancelled.is_none() => {
                    self.cancelled = Some(Instant::now());
                    self.outputs.stop_watching();
                    channel.cancel();
                }
                () = sleep_until(self.watch_deadline()), if self.outputs.is_watched() => self.outputs.stop_watching(),
                () = sleep_until(self.start_deadline()) => return FollowEnd::Lost("the command did not start"),
                () = sleep_until(self.deadline(opened)) => return FollowEnd::Lost(match (request.life, sending) {
                    (Lifetime::Job, true) => "the command did not read its input in time",
                    _ => "the guest does not report the command",
                }),
                sent = &mut send, if sending => match sent {
                    Ok(()) => sending = false,
                    Err(err) => return FollowEnd::Input(err),
                },
                size = next_size(&mut sizes), if self.started.is_some() => {
                    to.send(HostMessage::Resize(size), Vec::new()).await;
                }
                credit = self.outputs.pass_on(), if watched => channel.release(credit),
                message = channel.next_unless(watched) => match message {
                    Ok((head, payload)) => match self.handle_message(head, payload, attached) {
                        Ok(credit) => channel.release(credit),
                        Err(stop) => return stop,
                    },
                    Err(broken) => return FollowEnd::Broken(broken),
                },
            }
        }
    }

    /// Handles one message from the guest, and returns the window credit to give back.
    fn handle_message(&mut self, head: GuestMessage, payload: Vec<u8>, attached: bool) -> Result<usize, FollowEnd> {
        if attached && !self.input_complete && !matches!(head, GuestMessage::Failed(_)) {
            return Err(FollowEnd::Lost("the connection broke while its input was being sent"));
        }
        match head {
            GuestMessage::Event => {
                let started: protocol::ExecStarted = decode(&payload).map_err(|_| FollowEnd::Lost(UNKNOWN_MESSAGE))?;
                if started.job != self.request.job.as_str() {
                    return Err(FollowEnd::Lost("the guest reported another command"));
                }
                let started = self.started.get_or_insert(started);
                if let Some(to) = self.on_start.take() {
                    let _ = to.send(started.pid);
                }
                Ok(0)
            }
            GuestMessage::Output { stream, offset } => Ok(self.outputs.take(stream, offset, payload)),
            GuestMessage::Reply { .. } => Err(match decode(&payload) {
                Ok(status) => FollowEnd::Done(ExecOutcome::End(status)),
                Err(_) => FollowEnd::Lost(UNKNOWN_MESSAGE),
            }),
            GuestMessage::Failed(fault) => Err(FollowEnd::Failed(fault)),
            _ => Err(FollowEnd::Lost(UNKNOWN_MESSAGE)),
        }
    }

    /// The result for a job, which is not waited for. On its first connection the guest replies once it has all of the input.
    fn started_job(&self) -> Option<ExecOutcome> {
        let started = self.started.as_ref().filter(|_| self.request.life == Lifetime::Job)?;
        Some(ExecOutcome::Started(started.clone()))
    }

    /// At its limit the guest ends the command, so a watcher that does not read must not delay that.
    fn watch_deadline(&self) -> Instant {
        self.limits.total.map_or_else(never, |total| self.from + total)
    }

    /// A command with a limit that has not started by then would have ended already.
    fn start_deadline(&self) -> Instant {
        match (self.sent_at, self.limits.total) {
            (Some(sent), Some(total)) if self.started.is_none() && self.cancelled.is_none() => {
                sent.checked_add(total.saturating_add(self.limits.grace + START_SLACK)).unwrap_or_else(never)
            }
            _ => never(),
        }
    }

    fn deadline(&self, opened: Instant) -> Instant {
        let ending = self.limits.grace + SLACK;
        match (self.cancelled, &self.started, self.limits.total) {
            (Some(cancelled), ..) => cancelled.max(opened) + ending,
            // A job that does not read its input must not block its caller for ever.
            _ if self.request.life == Lifetime::Job => opened + DEFAULT_TIMEOUT,
            (None, None, _) => opened + DEFAULT_TIMEOUT,
            (None, Some(_), Some(total)) => self.from.max(opened) + total + ending,
            (None, Some(_), None) => never(),
        }
    }

    /// Handles an error of the guest: the command is refused, or unknown.
    fn failed(&mut self, fault: protocol::RpcError, attached: bool, input: &mut InputSource) -> Result<()> {
        match fault.code {
            // A command that was sent long ago may have started, ended, and been evicted.
            ErrorCode::NoJob if attached && self.started.is_none() && !self.resent && self.was_sent_recently() => {
                (self.resent, self.attach, self.input_complete) = (true, false, true);
                if input.rewind() {
                    Ok(())
                } else {
                    Err(self.lost("the connection broke while its input was being sent"))
                }
            }
            // The first request has arrived after all, after the attempt to attach.
            ErrorCode::JobTaken if !attached && self.resent => {
                self.input_complete &= !self.request.stdin;
                self.attach_attempts = ATTACH_ATTEMPTS;
                Ok(())
            }
            _ if attached => Err(self.lost(&format!("the guest no longer knows the command: {fault}"))),
            ErrorCode::NoDirectory => Err(Error::NoSuchPath(self.workdir.clone())),
            ErrorCode::NoShell => Err(Error::NoShell),
            ErrorCode::FilesRemoved => Err(refused(fault)),
            ErrorCode::NoJob => Err(Error::NoSuchJob(self.request.job.clone())),
            _ => Err(Error::Refused(fault)),
        }
    }

    fn was_sent_recently(&self) -> bool {
        self.sent_at.is_some_and(|it| it.elapsed() < DEFAULT_TIMEOUT)
    }

    /// The connection broke: decides whether another one can help.
    fn on_disconnect(&mut self, broken: &ConnectionLost, attached: bool, input: &mut InputSource) -> Result<()> {
        if broken.full {
            return Err(if self.sent_to.is_some() {
                self.lost(&broken.reason)
            } else {
                broken.clone().into_error("exec")
            });
        }
        let now = Instant::now();
        self.outputs.forget_credit();
        self.broken.retain(|it| now.duration_since(*it) < Duration::from_secs(60));
        self.broken.push(now);
        self.retried = true;
        if self.broken.len() > MAX_DISCONNECTS {
            return Err(self.lost(&broken.reason));
        }
        if !broken.sent && !attached {
            self.attach = false;
            if !self.resent {
                (self.sent_to, self.sent_at) = (None, None);
            }
            (self.input_complete, self.retried) = (true, self.resent);
            return if input.rewind() { Ok(()) } else { Err(self.lost(&broken.reason)) };
        }
        Ok(())
    }

    /// The error for a command whose end is unknown, with the output so far.
    fn lost(&mut self, reason: &str) -> Error {
        Error::GuestLost { reason: reason.into(), output: Some(self.partial_output()) }
    }

    fn lost_with(&mut self, err: Error) -> Error {
        let output = Some(self.partial_output());
        match err {
            Error::NotRunning { status, exit_code, oom_killed, .. } => {
                Error::NotRunning { status, exit_code, oom_killed, output }
            }
            Error::NoSuchContainer(_) => {
                Error::NotRunning { status: ContainerStatus::Exited, exit_code: None, oom_killed: false, output }
            }
            lost @ (Error::NodeLost { .. } | Error::LifetimeOver { .. }) => lost,
            other => Error::GuestLost { reason: other.to_string(), output },
        }
    }

    /// The output so far of a command without an end. It counts as cancelled, because the caller stopped waiting.
    fn partial_output(&mut self) -> Box<ExecOutput> {
        let captures = self.outputs.finish([0; 2]);
        let output = ExecOutput::plain(Exit::Cancelled, captures, None, self.from.elapsed());
        Box::new(ExecOutput { retried: self.retried, ..output })
    }

    fn output(&mut self, end: &ExecStatus) -> Result<ExecOutput> {
        let Some(exit) = exit(end, self.request.life) else {
            return Err(self.lost("the guest did not report how the command ended"));
        };
        let (stdout, stderr) = self.outputs.finish([end.stdout, end.stderr]);
        let cut =
            stdout.left_out() > 0 || stderr.left_out() > 0 || end.stdout.max(end.stderr) > self.request.inline_limit;
        let has_more = cut || end.left > 0 || matches!(exit, Exit::Running(_));
        Ok(ExecOutput {
            exit,
            stdout,
            stderr,
            signal: end.signal,
            tree_ended: end.tree_ended,
            left_running: end.left,
            oom: end.oom,
            job: (end.kept && has_more).then(|| self.request.job.clone()),
            retried: self.retried,
            duration: Duration::from_millis(end.ms),
        })
    }
}

async fn send(request: &EncodedExec, input: &mut InputSource, to: &Sender) -> io::Result<()> {
    if to.send_rest(&request.body).await { input.run(to).await } else { Ok(()) }
}

/// The terminal's next size. The first one is part of the request.
async fn next_size(sizes: &mut Option<watch::Receiver<TerminalSize>>) -> TerminalSize {
    if let Some(sizes) = sizes
        && sizes.changed().await.is_ok()
    {
        return *sizes.borrow_and_update();
    }
    std::future::pending().await
}

/// `None` for a status that is not an end.
fn exit(end: &ExecStatus, life: Lifetime) -> Option<Exit> {
    let at_limit = |kind| match (life, end.code) {
        (Lifetime::Keep, None) => Exit::Running(kind),
        _ => Exit::TimedOut(kind),
    };
    match end.state {
        ExecState::Exited => end.code.map(Exit::Code),
        ExecState::TotalTime => Some(at_limit(LimitKind::Total)),
        ExecState::Silence => Some(at_limit(LimitKind::Silence)),
        ExecState::Cancelled => Some(Exit::Cancelled),
        ExecState::Running => None,
    }
}

/// An instant that is never reached.
fn never() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}
