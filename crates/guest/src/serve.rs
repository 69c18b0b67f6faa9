//! One connection: frames in, frames out, and a task for each channel between them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};

use crate::codec::{self, Frame};
use crate::files::How;
use crate::secrets::Waiting;
use crate::supervisor::Supervisor;
use crate::wire::{Answer, Ask, Fault, FaultCode, Hello, MAX_CHANNELS, MAX_UNKNOWN, Say, VERSION, WINDOW};
use crate::{answer, command, content, door, outlet, relay, session, space, walk, wire};

/// Frames on their way out. Each holds at most [`PIECE`] bytes of data.
const QUEUE: usize = 64;

/// Bytes of data in one frame.
pub(crate) const PIECE: usize = 64 << 10;

/// What is written at once.
const BATCH: usize = 256 << 10;

/// Frames of one channel that wait to be looked at. A host that keeps to the window never fills it.
const INBOX: usize = 1024;

/// Speaks with one host until it goes.
///
/// # Errors
/// What it did against the protocol, or how the connection failed.
pub async fn serve(
    supervisor: Arc<Supervisor>,
    from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), codec::Error> {
    serve_caller(supervisor, from, to, Caller::Host).await
}

/// Who speaks.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The host.
    Host,
    /// Root inside, which may be the host by a program inside or not, and then has no say in what is kept.
    Root,
    /// The worker inside, which gets what the host let it have.
    Worker(Arc<wire::Worker>),
}

/// The same with somebody who may be no host.
pub(crate) async fn serve_caller(
    supervisor: Arc<Supervisor>,
    mut from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
    caller: Caller,
) -> Result<(), codec::Error> {
    let (says, queue) = mpsc::channel(QUEUE);
    let writing = tokio::spawn(write_all(queue, to));
    let talk = Connection { supervisor, caller, says, channels: HashMap::new(), waiting: Vec::new(), unknown: 0 };
    let heard = talk.listen(&mut from).await;
    // What is still to be said is written, unless nobody takes it.
    let _ = writing.await;
    heard
}

async fn write_all(mut queue: mpsc::Receiver<Frame<Say>>, mut to: impl AsyncWrite + Unpin) {
    let mut bytes = Vec::new();
    while let Some(frame) = queue.recv().await {
        frame.say_to(&mut bytes);
        while let Some(frame) = (bytes.len() < BATCH).then(|| queue.try_recv().ok()).flatten() {
            frame.say_to(&mut bytes);
        }
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
        bytes.clear();
        bytes.shrink_to(BATCH);
    }
}

/// A channel's way out.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    channel: u32,
    says: mpsc::Sender<Frame<Say>>,
    /// Bytes of data that the host has room for.
    room: Arc<Semaphore>,
}

impl Outbox {
    /// Whether anybody is there to hear it.
    pub(crate) async fn say(&self, head: Say) -> bool {
        self.say_with(head, Vec::new()).await
    }

    /// The same with bytes that need no room: answers.
    pub(crate) async fn say_with(&self, head: Say, payload: Vec<u8>) -> bool {
        self.says.send(Frame { channel: self.channel, head, payload }).await.is_ok()
    }

    /// The same with data, when the host has room for it.
    pub(crate) async fn say_data(&self, head: Say, payload: Vec<u8>) -> bool {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = self.room.acquire_many(bytes) => room,
            () = self.says.closed() => return false,
        };
        let Ok(room) = room else { return false };
        room.forget();
        self.say_with(head, payload).await
    }

    /// An answer with a content of any length, or what came in its way.
    pub(crate) async fn say_whole(&self, told: Result<(Answer, Vec<u8>), Fault>) {
        let (answer, content) = match told {
            Ok(told) => told,
            Err(fault) => return self.say_result(Err(fault)).await,
        };
        if self.say(Say::Answer(answer)).await {
            let pieces = content.len().div_ceil(PIECE);
            for (index, piece) in content.chunks(PIECE).enumerate() {
                if !self.say_data(Say::Data { last: index + 1 == pieces }, piece.to_vec()).await {
                    return;
                }
            }
        }
    }

    /// Ends the channel with a fault or an answer.
    pub(crate) async fn say_result(&self, result: Result<(Say, Vec<u8>), Fault>) {
        match result {
            Ok((head, payload)) => self.say_with(head, payload).await,
            Err(fault) => self.say(Say::Failed(fault)).await,
        };
    }
}

/// What a channel hears after it was opened.
pub(crate) type Inbox = mpsc::Receiver<Frame<Ask>>;

/// Waits until whoever opened a channel leaves it.
pub(crate) async fn left(inbox: &mut Inbox) -> Fault {
    while let Some(frame) = inbox.recv().await {
        if matches!(frame, Frame { head: Ask::Leave, .. }) {
            break;
        }
    }
    Fault::new(FaultCode::Invalid, "the channel was left")
}

struct Channel {
    inbox: mpsc::Sender<Frame<Ask>>,
    room: Arc<Semaphore>,
    task: tokio::task::JoinHandle<()>,
}

struct Connection {
    supervisor: Arc<Supervisor>,
    caller: Caller,
    says: mpsc::Sender<Frame<Say>>,
    channels: HashMap<u32, Channel>,
    /// Files that are for commands to come.
    waiting: Vec<Arc<Waiting>>,
    unknown: usize,
}

impl Connection {
    async fn listen(mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<(), codec::Error> {
        let Some(first) = codec::read::<Ask>(from).await? else { return Ok(()) };
        let Ask::Hello(hello) = first.head else { return Err(against("the first word is no hello")) };
        self.greet(hello).await;
        while let Some(frame) = codec::read::<Ask>(from).await? {
            self.hear(frame).await?;
        }
        Ok(())
    }

    async fn greet(&self, hello: Hello) {
        if let Some(keep) = hello.keep.filter(|_| matches!(self.caller, Caller::Host)) {
            self.supervisor.keep(keep);
        }
        let run = self.supervisor.run_id().to_owned();
        let head = Say::Hello(Hello { version: VERSION, nonce: hello.nonce, run, keep: None });
        let _ = self.says.send(Frame::new(0, head)).await;
    }

    async fn hear(&mut self, frame: Frame<Ask>) -> Result<(), codec::Error> {
        match frame.head {
            Ask::Unknown => {
                self.unknown += 1;
                if self.unknown > MAX_UNKNOWN {
                    return Err(against("too many words that this version does not know"));
                }
                Ok(())
            }
            Ask::Credit(bytes) => {
                if let Some(channel) = self.channels.get(&frame.channel) {
                    let room = usize::try_from(bytes).unwrap_or(usize::MAX);
                    if bytes > WINDOW || channel.room.available_permits() + room > 2 * WINDOW as usize {
                        return Err(against("more room than a window has"));
                    }
                    channel.room.add_permits(room);
                }
                Ok(())
            }
            Ask::More | Ask::Data { .. } | Ask::Cancel | Ask::Resize(_) | Ask::Leave => self.pass_on(frame),
            _ => self.open(frame),
        }
    }

    /// For a channel that is open. One that has said its last word may not have been heard yet: what comes is dropped.
    fn pass_on(&mut self, frame: Frame<Ask>) -> Result<(), codec::Error> {
        let Some(channel) = self.channels.get(&frame.channel) else { return Ok(()) };
        match channel.inbox.try_send(frame) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(against("more data than a window has")),
            _ => Ok(()),
        }
    }

    fn open(&mut self, frame: Frame<Ask>) -> Result<(), codec::Error> {
        self.channels.retain(|_, channel| !channel.task.is_finished());
        // A channel's last word is said before its task is quite over.
        if self.channels.len() >= 2 * MAX_CHANNELS {
            return Err(against("too many channels"));
        }
        let number = frame.channel;
        let (inbox, heard) = mpsc::channel(INBOX);
        let room = Arc::new(Semaphore::new(usize::try_from(WINDOW).expect("a window fits")));
        let out = Outbox { channel: number, says: self.says.clone(), room: room.clone() };
        let task = match self.allowed(frame) {
            Ok(frame) => {
                let waiting = self.wait_with(&frame.head);
                let attending = attend(self.supervisor.clone(), frame, heard, out);
                tokio::spawn(async move {
                    attending.await;
                    // One that is still being written when the connection is gone goes afterwards.
                    drop(waiting);
                })
            }
            Err(fault) => tokio::spawn(async move { out.say_result(Err(fault)).await }),
        };
        self.channels.insert(number, Channel { inbox, room, task });
        Ok(())
    }
}

impl Connection {
    /// The file that it places for a command to come.
    fn wait_with(&mut self, head: &Ask) -> Option<Arc<Waiting>> {
        let Ask::Secret(ask) = head else { return None };
        let waiting = ask.lent.then(|| Arc::new(Waiting::new(&self.supervisor.secrets, &ask.name)))?;
        self.waiting.retain(|it| it.is_waiting());
        self.waiting.push(waiting.clone());
        Some(waiting)
    }

    /// What this caller may ask, in the form in which it may.
    fn allowed(&self, frame: Frame<Ask>) -> Result<Frame<Ask>, Fault> {
        match &self.caller {
            Caller::Host | Caller::Root => Ok(frame),
            Caller::Worker(given) => Ok(Frame { head: door::narrowed(&self.supervisor, frame.head, given)?, ..frame }),
        }
    }
}

async fn attend(supervisor: Arc<Supervisor>, frame: Frame<Ask>, inbox: Inbox, out: Outbox) {
    match frame.head {
        Ask::Exec(ask) => command::exec(&supervisor, ask, frame.payload, inbox, &out).await,
        Ask::Attach { job, stdout, stderr, show } => {
            command::attach(&supervisor, &job, (stdout, stderr), show, (inbox, &out)).await;
        }
        Ask::Get { at, offset, limit } => content::get(&supervisor, at, (offset, limit), &out).await,
        Ask::Put { at, mode, exact, parents, replace } => {
            content::put(&supervisor, at, How { mode, exact, parents, replace }, inbox, &out).await;
        }
        Ask::Session { bytes } => session::set(&supervisor, bytes, (frame.payload, inbox), &out).await,
        Ask::Secret(ask) => session::put_secret(&supervisor, ask, (frame.payload, inbox), &out).await,
        Ask::Worker(ask) => out.say_result(door::open(&supervisor, ask)).await,
        Ask::Space(ask) => space::space(&supervisor, ask, (frame.payload, inbox), &out).await,
        Ask::Relay(ask) => relay::relay(&supervisor, &ask, (frame.payload, inbox), &out).await,
        Ask::Outlet(port) => outlet::outlet(&supervisor, port, inbox, &out).await,
        Ask::Walk(ask) => walk::walk(&supervisor, ask, (frame.payload, inbox), &out).await,
        Ask::Hello(_) => out.say_result(Err(Fault::new(FaultCode::Invalid, "hello was said already"))).await,
        ask => answer::answer(&supervisor, ask, inbox, &out).await,
    }
}

fn against(what: &str) -> codec::Error {
    codec::Error::Io(std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned()))
}
