//! The channel of a command: starts it, and forwards its input, output and exit status.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::jobs::job::{Job, JobControl};
use crate::jobs::log::OutputLog;
use crate::jobs::table::StartedCommand;
use crate::jobs::terminal::JobTerminal;
use crate::os::machine::SpawnError;
use crate::protocol::body::encode;
use crate::protocol::{
    AttachRequest, CHUNK, ErrorCode, ExecRequest, ExecState, ExecStatus, GuestMessage, HostMessage, Lifetime,
    MAX_COMMAND, MAX_SECRET, OutputMode, RpcError, Stream, StreamSelector,
};
use crate::server::channel::{ReplySender, RequestReceiver, Sender, closed, inbox as queue};
use crate::server::dispatch::{CallContext, Channel, StreamHandler};
use crate::server::services::Supervisor;

impl StreamHandler for ExecRequest {
    /// Runs a command and forwards its output.
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        let (supervisor, life, show) = (&cx.supervisor, self.life, self.show);
        let started = match check(&self) {
            Ok(()) => supervisor.jobs.start(self).await,
            Err(failure) => Err(failure),
        };
        inbox.release_payload();
        match started {
            Err(failure) => out.send_failure(failure).await,
            Ok(Err(why)) => report_not_started(life, why, &out).await,
            Ok(Ok(StartedCommand { job, stdin, terminal })) => {
                out.send_event(&job.started_event()).await;
                if life == Lifetime::Job {
                    // The input of a terminal comes from attached callers.
                    if let (Some(stdin), None) = (stdin, terminal) {
                        feed_job(&job, stdin, inbox, &out).await;
                    }
                    return out.send_reply(&encode(&job.info().end)).await;
                }
                let subscriber = OutputSubscriber::new(supervisor, job, show, [0, 0]);
                subscriber.run((stdin, terminal), inbox, &out).await;
            }
        }
    }
}

impl StreamHandler for AttachRequest {
    /// Forwards the output again, after the connection was lost.
    async fn serve(self, cx: &CallContext, Channel { inbox, out }: Channel) {
        match cx.supervisor.jobs.find(&self.job) {
            Err(failure) => out.send_failure(failure).await,
            Ok(job) => {
                out.send_event(&job.started_event()).await;
                let subscriber = OutputSubscriber::new(&cx.supervisor, job, self.show, [self.stdout, self.stderr]);
                subscriber.run((None, None), inbox, &out).await;
            }
        }
    }
}

fn check(request: &ExecRequest) -> Result<(), RpcError> {
    let invalid = |what: &str| Err(RpcError::new(ErrorCode::Invalid, what));
    let bytes: usize = request.argv.iter().chain(&request.env).map(|it| it.len() + 1).sum();
    let secret = request.secret.as_ref().map_or(0, |it| it.len());
    if bytes > MAX_COMMAND || secret > MAX_SECRET {
        let message = format!(
            "arguments and environment have {bytes} bytes (limit {MAX_COMMAND}), the secret {secret} (limit {MAX_SECRET})"
        );
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    if request.argv.iter().chain(&request.env).any(|it| it.contains(&0)) {
        return invalid("an argument or an environment variable contains a NUL");
    }
    if request.shell && request.secret.is_some() {
        return invalid("a script cannot get a secret");
    }
    if request.argv.first().is_none_or(|it| it.is_empty()) || request.shell && request.argv.len() != 1 {
        return invalid("a command needs at least one argument, and a script is exactly one");
    }
    Ok(())
}

/// Reports a missing program as a result of the command, with the message and exit code of a shell.
async fn report_not_started(life: Lifetime, why: SpawnError, out: &ReplySender) {
    let (code, reason) = match why {
        SpawnError::NoProgram => (127, "not found in the container".to_owned()),
        SpawnError::NoPermission(reason) => (126, reason),
        SpawnError::Fault(fault) => return out.send_failure(fault).await,
    };
    if life == Lifetime::Job {
        let fault = RpcError::new(ErrorCode::NoProgram, format!("cannot run the command: {reason}"));
        return out.send_failure(fault).await;
    }
    let sentence = format!("cannot run the command: {reason}\n").into_bytes();
    let stderr = sentence.len() as u64;
    out.send_data(GuestMessage::Output { stream: Stream::Stderr, offset: 0 }, sentence).await;
    let status = ExecStatus {
        state: ExecState::Exited,
        code: Some(code),
        signal: None,
        stdout: 0,
        stderr,
        dropped: 0,
        left: 0,
        tree_ended: None,
        oom: false,
        ms: 0,
        kept: false,
    };
    out.send_reply(&encode(&status)).await;
}

/// The standard input of a command.
type CommandStdin = Box<dyn AsyncWrite + Send + Unpin>;

pub(crate) type CommandInput = (Option<CommandStdin>, Option<Arc<JobTerminal>>);

/// Streams a job's output to one channel until the job ends or the caller disconnects.
pub(crate) struct OutputSubscriber {
    supervisor: Arc<Supervisor>,
    job: Arc<Job>,
    /// Its number among the subscribers of the job.
    number: u64,
    show: OutputMode,
    /// Bytes of each stream that were sent.
    sent: [u64; 2],
}

const STREAMS: [(Stream, StreamSelector); 2] =
    [(Stream::Stdout, StreamSelector::Stdout), (Stream::Stderr, StreamSelector::Stderr)];

impl OutputSubscriber {
    pub(crate) fn new(supervisor: &Arc<Supervisor>, job: Arc<Job>, show: OutputMode, sent: [u64; 2]) -> Self {
        let number = job.new_subscriber();
        Self { supervisor: supervisor.clone(), job, number, show, sent }
    }

    /// A subscriber that receives all output from these offsets without backpressure: another caller waits for the command.
    pub(crate) fn observer(supervisor: &Arc<Supervisor>, job: Arc<Job>, sent: [u64; 2]) -> Self {
        Self { supervisor: supervisor.clone(), job, number: 0, show: OutputMode::All, sent }
    }

    /// Streams the output until the command ends or the caller disconnects, which does not affect the command.
    pub(crate) async fn watch(mut self, mut input: CommandInput, inbox: RequestReceiver, out: &ReplySender) {
        let (job, number) = (self.job.clone(), self.number);
        let end = tokio::select! {
            end = self.until_end(out) => end,
            _ = feed(&job, &mut input, inbox, out) => None,
        };
        job.follow(number, None);
        match end {
            Some(_) if self.supervisor.jobs.stopping() => std::future::pending().await,
            Some(end) => out.send_reply(&encode(&end)).await,
            None => out.send_failure(closed()).await,
        }
    }

    async fn run(mut self, mut input: CommandInput, inbox: RequestReceiver, out: &ReplySender) {
        let (job, number) = (self.job.clone(), self.number);
        let end = tokio::select! {
            end = self.until_end(out) => end.ok_or(Disconnect::Gone),
            disconnect = feed(&job, &mut input, inbox, out) => Err(disconnect),
        };
        job.follow(number, None);
        match end {
            // The container stops, so the command did not end by itself: the connection breaks, and the engine reports why.
            Ok(_) if self.supervisor.jobs.stopping() => std::future::pending().await,
            Ok(end) => {
                out.send_reply(&encode(&end)).await;
                job.mark_delivered();
                if end.state != ExecState::Exited && job.survives_caller() {
                    hold_until_ended(&job, input.0).await;
                }
            }
            Err(Disconnect::Gone) if input.0.is_none() => job.send_control(JobControl::Orphan(number)),
            Err(disconnect) => {
                if matches!(disconnect, Disconnect::Gone) || !job.survives_caller() {
                    job.send_control(JobControl::Cancel(job.grace));
                }
                out.send_failure(closed()).await;
                hold_until_ended(&job, input.0).await;
            }
        }
    }

    /// Sends output until there is a status to report; `None` if the caller has disconnected.
    async fn until_end(&mut self, out: &ReplySender) -> Option<ExecStatus> {
        let mut changes = self.job.changes();
        loop {
            changes.mark_unchanged();
            let end = self.job.end();
            self.send(end.as_ref(), out).await?;
            if let Some(mut end) = end {
                if end.state != ExecState::Exited || end.left > 0 {
                    return Some(end);
                }
                // If everything was sent, the caller need not read the retained output.
                end.kept = self.job.is_cut();
                return Some(end);
            }
            changes.changed().await.ok()?;
        }
    }

    async fn send(&mut self, end: Option<&ExecStatus>, out: &ReplySender) -> Option<()> {
        for (index, (stream, part)) in STREAMS.into_iter().enumerate() {
            while let Some((offset, piece)) = self.piece(part, self.sent[index], end) {
                self.sent[index] = offset + piece.len() as u64;
                if !out.send_data(GuestMessage::Output { stream, offset }, piece).await {
                    return None;
                }
                self.follow_all();
            }
        }
        self.follow_all();
        Some(())
    }

    /// Applies backpressure if the subscriber wants all output.
    fn follow_all(&self) {
        if self.show == OutputMode::All {
            self.job.follow(self.number, Some(self.sent.iter().sum()));
        }
    }

    /// The next piece of a stream to send.
    fn piece(&self, part: StreamSelector, sent: u64, end: Option<&ExecStatus>) -> Option<(u64, Vec<u8>)> {
        self.job.log(|log| {
            let total = log.total(part);
            let (from, until) = match self.show {
                OutputMode::Nothing => return None,
                OutputMode::All => (sent, total),
                OutputMode::Ends { bytes } if sent < bytes => (sent, total.min(bytes)),
                OutputMode::Ends { bytes } => (sent.max(total.saturating_sub(bytes)), end.map_or(0, |_| total)),
            };
            let limit = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX).min(CHUNK);
            next_piece(log, part, from, limit)
        })
    }
}

fn next_piece(log: &OutputLog, part: StreamSelector, from: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
    if limit == 0 {
        return None;
    }
    let (offset, bytes) = log.read(part, from, limit);
    (!bytes.is_empty()).then_some((offset, bytes))
}

/// Writes the input of a background job.
async fn feed_job(job: &Arc<Job>, stdin: CommandStdin, inbox: RequestReceiver, out: &ReplySender) {
    let (data, pieces) = queue();
    let mut stdin = Some(stdin);
    tokio::select! {
        () = pump(&mut stdin, pieces, out) => return,
        _ = handle_messages(job, None, inbox, data) => {}
        () = job.wait_ended() => return,
    }
    if stdin.is_some() {
        job.send_control(JobControl::Cancel(job.grace));
        hold_until_ended(job, stdin).await;
    }
}

/// Keeps the pipe of unfinished input open until the command has ended, which would otherwise consider it complete.
async fn hold_until_ended(job: &Job, unfinished: Option<CommandStdin>) {
    if unfinished.is_some() {
        job.wait_ended().await;
    }
}

/// How a subscriber disconnected.
enum Disconnect {
    /// It closed the channel, but its connection is open.
    Left,
    /// Its connection was lost.
    Gone,
}

/// Handles the messages of the channel until the caller disconnects. Input that is not written then is unfinished.
async fn feed(job: &Arc<Job>, input: &mut CommandInput, inbox: RequestReceiver, out: &ReplySender) -> Disconnect {
    let (data, pieces) = queue();
    let (stdin, terminal) = input;
    let pumping = async {
        pump(stdin, pieces, out).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        disconnect = handle_messages(job, terminal.clone(), inbox, data) => disconnect,
        () = pumping => Disconnect::Gone,
    }
}

/// If a command does not read its input, a cancel must still be received, so data is queued separately: at most one window,
/// since the host gets credit only for written bytes.
async fn handle_messages(
    job: &Arc<Job>,
    terminal: Option<Arc<JobTerminal>>,
    mut inbox: RequestReceiver,
    data: Sender,
) -> Disconnect {
    while let Some((head, piece)) = inbox.recv().await {
        match head {
            HostMessage::Data { .. } => drop(data.push(head, piece)),
            HostMessage::Cancel => job.send_control(JobControl::Cancel(job.grace)),
            HostMessage::Resize(size) => terminal.iter().for_each(|it| it.resize(size)),
            HostMessage::CloseChannel => return Disconnect::Left,
            _ => {}
        }
    }
    Disconnect::Gone
}

/// Writes input as the command reads it, and closes the pipe at the end. If the command closes it, the rest is discarded.
pub(crate) async fn pump(stdin: &mut Option<CommandStdin>, mut pieces: RequestReceiver, out: &ReplySender) {
    while let Some((HostMessage::Data { last }, bytes)) = pieces.recv().await {
        if let Some(pipe) = stdin {
            let written = pipe.write_all(&bytes).await;
            let closed = if last { pipe.shutdown().await } else { Ok(()) };
            if last || written.is_err() || closed.is_err() {
                *stdin = None;
            }
        }
        out.credit(bytes.len()).await;
        if last {
            return;
        }
    }
}
