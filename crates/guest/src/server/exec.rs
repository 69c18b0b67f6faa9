//! The channel of a command: its words, its input, its output, its end.

use std::sync::Arc;

use tokio::io::AsyncWrite;

use crate::jobs::job::{Job, Order};
use crate::jobs::log::Log;
use crate::jobs::table::{Started, Words};
use crate::os::machine::{SecretBytes, SpawnError};
use crate::protocol::codec::split_nul;
use crate::protocol::{
    CHUNK, ErrorCode, ExecRequest, ExecState, ExecStatus, GuestMessage, Lifetime, MAX_COMMAND, MAX_SECRET, OutputMode,
    Request, RpcError, Stream, StreamSelector, TerminalSize,
};
use crate::server::channel::{Inbox, ReplySender, Sender, inbox as queue};
use crate::server::payload::{pump, whole};
use crate::server::services::Supervisor;

/// Runs a command and follows it.
pub(crate) async fn exec(
    supervisor: &Arc<Supervisor>,
    ask: ExecRequest,
    payload: Vec<u8>,
    mut inbox: Inbox,
    out: &ReplySender,
) {
    let begun = match read_words(&ask, payload, &mut inbox).await {
        Ok(words) => supervisor.jobs.begin(&ask, words).await,
        Err(fault) => Err(fault),
    };
    inbox.payload_is_taken();
    match begun {
        Err(fault) => out.say_result(Err(fault)).await,
        Ok(Err(why)) => say_not_started(&ask, why, out).await,
        Ok(Ok(Started { job, stdin, resize })) => {
            out.say(GuestMessage::Begun(job.begun())).await;
            if ask.life == Lifetime::Job {
                feed_job(&job, (stdin, resize), inbox, out).await;
                out.say(GuestMessage::End(job.seen().end)).await;
                return;
            }
            let follower = OutputSubscriber::new(supervisor, job, ask.show, [0, 0]);
            follower.follow((stdin, resize), inbox, out).await;
        }
    }
}

/// Follows a command again, after its connection was lost.
pub(crate) async fn attach(
    supervisor: &Arc<Supervisor>,
    job: &str,
    (stdout, stderr): (u64, u64),
    show: OutputMode,
    (inbox, out): (Inbox, &ReplySender),
) {
    match supervisor.jobs.find(job) {
        Err(fault) => out.say_result(Err(fault)).await,
        Ok(job) => {
            out.say(GuestMessage::Begun(job.begun())).await;
            OutputSubscriber::new(supervisor, job, show, [stdout, stderr]).follow((None, None), inbox, out).await;
        }
    }
}

async fn read_words(ask: &ExecRequest, first: Vec<u8>, inbox: &mut Inbox) -> Result<Words, RpcError> {
    let (words, all, secret) = (ask.words as usize, ask.words as usize + ask.env as usize, ask.secret as usize);
    if all > MAX_COMMAND || secret > MAX_SECRET {
        let message = format!("words and environment have {all} bytes, above {MAX_COMMAND}, or a secret {secret}");
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    if ask.shell && secret > 0 {
        return Err(RpcError::new(ErrorCode::Invalid, "a script is given no secret"));
    }
    let mut bytes = whole(first, all + secret, inbox).await?;
    let secret = (secret > 0).then(|| SecretBytes::new(bytes.split_off(all)));
    let (words, env) = (split_nul(&bytes[..words])?, split_nul(&bytes[words..])?);
    if words.first().is_none_or(Vec::is_empty) || ask.shell && words.len() != 1 {
        return Err(RpcError::new(ErrorCode::Invalid, "a command has at least one word, and a script is one"));
    }
    Ok(Words { words, env, secret })
}

/// A program that is missing is a result of the command, in the words and codes that a shell has for it.
async fn say_not_started(ask: &ExecRequest, why: SpawnError, out: &ReplySender) {
    let (code, reason) = match why {
        SpawnError::NoProgram => (127, "not found in the container".to_owned()),
        SpawnError::NoPermission(reason) => (126, reason),
        SpawnError::Fault(fault) => return out.say_result(Err(fault)).await,
    };
    if ask.life == Lifetime::Job {
        let fault = RpcError::new(ErrorCode::NoProgram, format!("cannot run the command: {reason}"));
        return out.say_result(Err(fault)).await;
    }
    let sentence = format!("cannot run the command: {reason}\n").into_bytes();
    let stderr = sentence.len() as u64;
    out.say_data(GuestMessage::Out { stream: Stream::Stderr, offset: 0 }, sentence).await;
    out.say(GuestMessage::End(ExecStatus {
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
    }))
    .await;
}

type Resize = Box<dyn Fn(TerminalSize) + Send + Sync>;

type Input = (Option<Box<dyn AsyncWrite + Send + Unpin>>, Option<Resize>);

/// Who waits for a command.
struct OutputSubscriber {
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
    fn new(supervisor: &Arc<Supervisor>, job: Arc<Job>, show: OutputMode, sent: [u64; 2]) -> Self {
        let number = job.new_follower();
        Self { supervisor: supervisor.clone(), job, number, show, sent }
    }

    async fn follow(mut self, input: Input, inbox: Inbox, out: &ReplySender) {
        let (job, number) = (self.job.clone(), self.number);
        let end = tokio::select! {
            end = self.until_end(out) => end.ok_or(Disconnect::Gone),
            listener = feed(&job, input, inbox, out) => Err(listener),
        };
        job.follow(number, None);
        match end {
            // Its container ends, which is no end of its own: the connection breaks, and the engine says why.
            Ok(_) if self.supervisor.jobs.leaving() => std::future::pending().await,
            Ok(end) => {
                out.say(GuestMessage::End(end)).await;
                job.is_told();
            }
            Err(Disconnect::Gone) => job.order(Order::Orphan(number)),
            Err(Disconnect::Left) => {
                if !job.is_to_be_kept() {
                    job.order(Order::Cancel(job.grace));
                }
                out.say_result(Err(RpcError::new(ErrorCode::Invalid, "the channel was left"))).await;
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
                if !out.say_data(GuestMessage::Out { stream, offset }, piece).await {
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

fn next_piece(log: &Log, part: StreamSelector, from: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
    if limit == 0 {
        return None;
    }
    let (offset, bytes) = log.read(part, from, limit);
    (!bytes.is_empty()).then_some((offset, bytes))
}

/// Input of a job that nobody waits for: taken to its end, then the channel is done.
async fn feed_job(job: &Arc<Job>, (stdin, resize): Input, inbox: Inbox, out: &ReplySender) {
    let Some(stdin) = stdin else { return };
    let (data, pieces) = queue();
    let mut changes = job.changes();
    let over = async { while !job.ended() && changes.changed().await.is_ok() {} };
    tokio::select! {
        () = pump(stdin, pieces, out) => {}
        _ = obey(job, resize, inbox, data) => {}
        () = over => {}
    }
}

/// What became of who waited for a command.
enum Disconnect {
    /// It does not want to hear any more, and is still there.
    Left,
    /// Its connection is gone.
    Gone,
}

/// Hands over what comes on the channel, until nobody is there any more.
async fn feed(job: &Arc<Job>, (stdin, resize): Input, inbox: Inbox, out: &ReplySender) -> Disconnect {
    let (data, pieces) = queue();
    let pumping = async {
        if let Some(stdin) = stdin {
            pump(stdin, pieces, out).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        listener = obey(job, resize, inbox, data) => listener,
        () = pumping => Disconnect::Gone,
    }
}

/// A command that does not read its input must not keep a cancel from being heard, so data goes another way: never more
/// than a window of it, since the host gets room only for what was written.
async fn obey(job: &Arc<Job>, resize: Option<Resize>, mut inbox: Inbox, data: Sender) -> Disconnect {
    while let Some((head, piece)) = inbox.recv().await {
        match head {
            Request::Data { .. } => drop(data.push(head, piece)),
            Request::Cancel => job.order(Order::Cancel(job.grace)),
            Request::Resize(size) => resize.iter().for_each(|resize| resize(size)),
            Request::Leave => return Disconnect::Left,
            _ => {}
        }
    }
    Disconnect::Gone
}
