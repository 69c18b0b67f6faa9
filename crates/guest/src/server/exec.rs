//! The channel of a command: its words, its input, its output, its end.

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
    /// Runs a command and follows it.
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        let (supervisor, life, show) = (&cx.supervisor, self.life, self.show);
        let begun = match check(&self) {
            Ok(()) => supervisor.jobs.begin(self).await,
            Err(failure) => Err(failure),
        };
        inbox.payload_is_taken();
        match begun {
            Err(failure) => out.send_failure(failure).await,
            Ok(Err(why)) => say_not_started(life, why, &out).await,
            Ok(Ok(StartedCommand { job, stdin, terminal })) => {
                out.send_event(&job.begun()).await;
                if life == Lifetime::Job {
                    // Into a terminal types who attaches to it.
                    if let (Some(stdin), None) = (stdin, terminal) {
                        feed_job(&job, stdin, inbox, &out).await;
                    }
                    return out.send_reply(&encode(&job.seen().end)).await;
                }
                let follower = OutputSubscriber::new(supervisor, job, show, [0, 0]);
                follower.follow((stdin, terminal), inbox, &out).await;
            }
        }
    }
}

impl StreamHandler for AttachRequest {
    /// Follows a command again, after its connection was lost.
    async fn serve(self, cx: &CallContext, Channel { inbox, out }: Channel) {
        match cx.supervisor.jobs.find(&self.job) {
            Err(failure) => out.send_failure(failure).await,
            Ok(job) => {
                out.send_event(&job.begun()).await;
                let follower = OutputSubscriber::new(&cx.supervisor, job, self.show, [self.stdout, self.stderr]);
                follower.follow((None, None), inbox, &out).await;
            }
        }
    }
}

fn check(request: &ExecRequest) -> Result<(), RpcError> {
    let invalid = |what: &str| Err(RpcError::new(ErrorCode::Invalid, what));
    let bytes: usize = request.argv.iter().chain(&request.env).map(|it| it.len() + 1).sum();
    let secret = request.secret.as_ref().map_or(0, |it| it.len());
    if bytes > MAX_COMMAND || secret > MAX_SECRET {
        let message = format!("words and environment have {bytes} bytes, above {MAX_COMMAND}, or a secret {secret}");
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    if request.argv.iter().chain(&request.env).any(|it| it.contains(&0)) {
        return invalid("a NUL in a word or in the environment");
    }
    if request.shell && request.secret.is_some() {
        return invalid("a script is given no secret");
    }
    if request.argv.first().is_none_or(|it| it.is_empty()) || request.shell && request.argv.len() != 1 {
        return invalid("a command has at least one word, and a script is one");
    }
    Ok(())
}

/// A program that is missing is a result of the command, in the words and codes that a shell has for it.
async fn say_not_started(life: Lifetime, why: SpawnError, out: &ReplySender) {
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

/// Who waits for a command.
pub(crate) struct OutputSubscriber {
    supervisor: Arc<Supervisor>,
    job: Arc<Job>,
    /// Its number among those who waited for the command.
    number: u64,
    show: OutputMode,
    /// Bytes of each stream that were sent.
    sent: [u64; 2],
}

const STREAMS: [(Stream, StreamSelector); 2] =
    [(Stream::Stdout, StreamSelector::Stdout), (Stream::Stderr, StreamSelector::Stderr)];

impl OutputSubscriber {
    pub(crate) fn new(supervisor: &Arc<Supervisor>, job: Arc<Job>, show: OutputMode, sent: [u64; 2]) -> Self {
        let number = job.new_follower();
        Self { supervisor: supervisor.clone(), job, number, show, sent }
    }

    /// Sees all output from there on, and holds up nothing: another caller waits for the command.
    pub(crate) fn observer(supervisor: &Arc<Supervisor>, job: Arc<Job>, sent: [u64; 2]) -> Self {
        Self { supervisor: supervisor.clone(), job, number: 0, show: OutputMode::All, sent }
    }

    /// Follows it until its end, or until the caller leaves: then nothing becomes of the command.
    pub(crate) async fn watch(mut self, mut input: CommandInput, inbox: RequestReceiver, out: &ReplySender) {
        let (job, number) = (self.job.clone(), self.number);
        let end = tokio::select! {
            end = self.until_end(out) => end,
            _ = feed(&job, &mut input, inbox, out) => None,
        };
        job.follow(number, None);
        match end {
            Some(_) if self.supervisor.jobs.leaving() => std::future::pending().await,
            Some(end) => out.send_reply(&encode(&end)).await,
            None => out.send_failure(closed()).await,
        }
    }

    async fn follow(mut self, mut input: CommandInput, inbox: RequestReceiver, out: &ReplySender) {
        let (job, number) = (self.job.clone(), self.number);
        let end = tokio::select! {
            end = self.until_end(out) => end.ok_or(Disconnect::Gone),
            listener = feed(&job, &mut input, inbox, out) => Err(listener),
        };
        job.follow(number, None);
        match end {
            // Its container ends, which is no end of its own: the connection breaks, and the engine says why.
            Ok(_) if self.supervisor.jobs.leaving() => std::future::pending().await,
            Ok(end) => {
                out.send_reply(&encode(&end)).await;
                job.is_told();
                if end.state != ExecState::Exited && job.is_to_be_kept() {
                    hold_until_over(&job, input.0).await;
                }
            }
            Err(Disconnect::Gone) if input.0.is_none() => job.order(JobControl::Orphan(number)),
            Err(disconnect) => {
                if matches!(disconnect, Disconnect::Gone) || !job.is_to_be_kept() {
                    job.order(JobControl::Cancel(job.grace));
                }
                out.send_failure(closed()).await;
                hold_until_over(&job, input.0).await;
            }
        }
    }

    /// Sends output until there is an end to be told; `None` when nobody hears it any more.
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
                // Everything was passed on, so nobody needs to ask for it.
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

    /// Output waits for who wants all of it.
    fn follow_all(&self) {
        if self.show == OutputMode::All {
            self.job.follow(self.number, Some(self.sent.iter().sum()));
        }
    }

    /// What is to be sent next of a stream, if there is something.
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

/// Feeds a job, which has no waiting caller, all of its input.
async fn feed_job(job: &Arc<Job>, stdin: CommandStdin, inbox: RequestReceiver, out: &ReplySender) {
    let (data, pieces) = queue();
    let mut stdin = Some(stdin);
    tokio::select! {
        () = pump(&mut stdin, pieces, out) => return,
        _ = handle_control(job, None, inbox, data) => {}
        () = job.over() => return,
    }
    if stdin.is_some() {
        job.order(JobControl::Cancel(job.grace));
        hold_until_over(job, stdin).await;
    }
}

/// Keeps the pipe of unfinished input open until the command has ended: it would take what came for the whole.
async fn hold_until_over(job: &Job, unfinished: Option<CommandStdin>) {
    if unfinished.is_some() {
        job.over().await;
    }
}

/// What became of who waited for a command.
enum Disconnect {
    /// It does not want to hear any more, and is still there.
    Left,
    /// Its connection is gone.
    Gone,
}

/// Hands over what comes on the channel, until the caller disconnects. Input that is left then is unfinished.
async fn feed(job: &Arc<Job>, input: &mut CommandInput, inbox: RequestReceiver, out: &ReplySender) -> Disconnect {
    let (data, pieces) = queue();
    let (stdin, terminal) = input;
    let pumping = async {
        pump(stdin, pieces, out).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        disconnect = handle_control(job, terminal.clone(), inbox, data) => disconnect,
        () = pumping => Disconnect::Gone,
    }
}

/// A command that does not read its input must not keep a cancel from being heard, so data goes another way: never more
/// than a window of it, since the host gets room only for what was written.
async fn handle_control(
    job: &Arc<Job>,
    terminal: Option<Arc<JobTerminal>>,
    mut inbox: RequestReceiver,
    data: Sender,
) -> Disconnect {
    while let Some((head, piece)) = inbox.recv().await {
        match head {
            HostMessage::Data { .. } => drop(data.push(head, piece)),
            HostMessage::Cancel => job.order(JobControl::Cancel(job.grace)),
            HostMessage::Resize(size) => terminal.iter().for_each(|it| it.resize(size)),
            HostMessage::CloseChannel => return Disconnect::Left,
            _ => {}
        }
    }
    Disconnect::Gone
}

/// Writes input as the command takes it, and drops the pipe at its end. A command that closes it loses the rest.
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
