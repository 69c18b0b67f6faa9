//! One connection: frames in, frames out, and a task for each channel between them.
//!
//! **Invariant:** what is received is held within what was reserved for it: a caller that sends more is cut off, and one
//! that asks for more than is left is refused.

mod demand;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use self::demand::Demand;
use crate::files::How;
use crate::protocol;
use crate::protocol::mux::{Opening, Part, Pushed, Received, Violation};
use crate::protocol::{ErrorCode, GuestMessage, Hello, MAX_UNKNOWN, Request, RpcError, VERSION};
use crate::secrets::Waiting;
use crate::server::channel::{ChannelState, Channels, Direct, Inbox, ReplySender, busy, inbox};
use crate::server::codec::{self, Frame};
use crate::server::quota::{Quota, Reservation};
use crate::server::services::Supervisor;
use crate::server::{egress, exec, requests, scan, session_env, transfer, worker_socket, workspace};

/// Frames on their way out. Each holds at most [`CHUNK`](crate::protocol::CHUNK) bytes of data.
const QUEUE: usize = 64;

/// What is written at once.
const BATCH: usize = 256 << 10;

/// How long the last word to a caller that is cut off may take.
const PARTING: Duration = Duration::from_secs(1);

/// Speaks with one host until it goes.
///
/// # Errors
/// What it did against the protocol, or how the connection failed.
pub async fn serve(
    supervisor: Arc<Supervisor>,
    from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), codec::Error> {
    serve_caller(supervisor, (from, to), Arc::default(), Caller::Host).await
}

/// Who speaks.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The host.
    Host,
    /// Root inside, which may be the host by a program inside or not, and then has no say in what is kept.
    Root,
    /// The worker inside, which gets what the host let it have.
    Worker(Arc<protocol::OpenWorkerSocket>),
}

/// The same on a socket, for any caller. Short answers are written by the threads that make them.
pub(crate) async fn serve_socket(
    supervisor: Arc<Supervisor>,
    stream: UnixStream,
    caller: Caller,
) -> Result<(), codec::Error> {
    let direct = Arc::new(Direct::of(&stream));
    let (from, to) = stream.into_split();
    serve_caller(supervisor, (BufReader::new(from), to), direct, caller).await
}

async fn serve_caller(
    supervisor: Arc<Supervisor>,
    (mut from, to): (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin + 'static),
    direct: Arc<Direct>,
    caller: Caller,
) -> Result<(), codec::Error> {
    let (says, queue) = mpsc::channel(QUEUE);
    let mut writing = tokio::spawn(write_all(queue, to, direct.clone()));
    let quota = match caller {
        Caller::Host => supervisor.quotas.host(),
        Caller::Root => supervisor.quotas.root(),
        Caller::Worker(_) => supervisor.quotas.worker(),
    };
    let (channels, waiting) = (Channels::new(), Vec::new());
    let talk =
        Connection { supervisor, caller, says: says.clone(), direct, quota, channels, waiting, unknown: 0, highest: 0 };
    let heard = talk.listen(&mut from).await;
    match &heard {
        // Answers that wait are still written, unless the peer has gone.
        Ok(()) => {
            drop(says);
            let _ = writing.await;
        }
        Err(why) => {
            let last = Frame::new(0, GuestMessage::Failed(RpcError::new(ErrorCode::Invalid, why.to_string())));
            let parting = async {
                let _ = says.send(last).await;
                drop(says);
                (&mut writing).await
            };
            if timeout(PARTING, parting).await.is_err() {
                writing.abort();
            }
        }
    }
    heard
}

async fn write_all(
    mut queue: mpsc::Receiver<Frame<GuestMessage>>,
    mut to: impl AsyncWrite + Unpin,
    direct: Arc<Direct>,
) {
    let mut bytes = Vec::new();
    loop {
        let (next, over) = tokio::select! {
            next = queue.recv() => { let over = next.is_none(); (next, over) }
            () = direct.is_cut() => (None, false),
        };
        let mut rest = direct.turn().await;
        bytes.append(&mut rest);
        if let Some(frame) = next {
            frame.say_to(&mut bytes);
        }
        while let Some(frame) = (bytes.len() < BATCH).then(|| queue.try_recv().ok()).flatten() {
            frame.say_to(&mut bytes);
        }
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() || over {
            return;
        }
        bytes.clear();
        bytes.shrink_to(BATCH);
    }
}

/// A request that may be attended to.
struct Admitted {
    frame: Frame<Request>,
    demand: Demand,
    channel: Reservation,
    payload: Reservation,
}

struct Connection {
    supervisor: Arc<Supervisor>,
    caller: Caller,
    says: mpsc::Sender<Frame<GuestMessage>>,
    direct: Arc<Direct>,
    quota: Quota,
    channels: Channels,
    /// Files that are for commands to come.
    waiting: Vec<Arc<Waiting>>,
    unknown: usize,
    /// The highest channel that was opened: a host's numbers only rise.
    highest: u32,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.channels.end_all();
    }
}

impl Connection {
    async fn listen(mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<(), codec::Error> {
        let Some(first) = codec::read::<Request>(from).await? else { return Ok(()) };
        let Request::Hello(hello) = first.head else { return Err(against("the first word is no hello")) };
        let version = hello.version;
        self.greet(hello).await;
        if version != VERSION {
            let what = "make the container anew, or use the program that made it";
            return Err(against(format!(
                "the host speaks version {version} of the protocol, this guest {VERSION}: {what}"
            )));
        }
        while let Some(frame) = codec::read::<Request>(from).await? {
            self.hear(frame).await?;
        }
        Ok(())
    }

    async fn greet(&self, hello: Hello) {
        if let Some(keep) = hello.keep.filter(|_| matches!(self.caller, Caller::Host) && hello.version == VERSION) {
            self.supervisor.jobs.keep(keep);
        }
        let run = self.supervisor.run_id().to_owned();
        let head = GuestMessage::Hello(Hello { version: VERSION, nonce: hello.nonce, run, keep: None });
        let _ = self.says.send(Frame::new(0, head)).await;
    }

    async fn hear(&mut self, frame: Frame<Request>) -> Result<(), codec::Error> {
        match frame.head {
            // A request is refused; what a later version adds to one that was opened, and may just have ended, is let go.
            Request::Unknown if frame.channel <= self.highest => {
                self.unknown += 1;
                if self.unknown > MAX_UNKNOWN {
                    return Err(against("too many words that this version does not know"));
                }
                Ok(())
            }
            Request::Credit(credit) => self.pass_on(Part::WindowUpdate(credit), frame),
            Request::More => self.pass_on(Part::Chunk, frame),
            Request::Data { last } => self.pass_on(Part::Data { last }, frame),
            Request::Cancel | Request::Resize(_) | Request::Leave => self.pass_on(Part::Message, frame),
            _ => self.open(frame),
        }
    }

    /// For a channel that is open.
    fn pass_on(&mut self, part: Part, frame: Frame<Request>) -> Result<(), codec::Error> {
        let Frame { channel, head, payload } = frame;
        let pushed = match self.channels.lock().receive(channel, part, payload.len() as u64).map_err(violation)? {
            Received::Deliver(state) => state.inbox.push(head, payload),
            Received::Credit(state) => {
                state.writable.notify_one();
                Pushed::Waits
            }
            Received::Discard => Pushed::Closed,
        };
        if pushed == Pushed::Full { Err(violation(Violation::Backlog(channel))) } else { Ok(()) }
    }

    fn open(&mut self, frame: Frame<Request>) -> Result<(), codec::Error> {
        let (number, first) = (frame.channel, frame.payload.len());
        self.highest = self.highest.max(number);
        let admitted = self.admit(frame);
        let announced = admitted.as_ref().map_or(first, |it| it.demand.payload);
        let (sender, mut heard) = inbox();
        let writable = Arc::<Notify>::default();
        let opening = Opening { announced: announced as u64, first: first as u64 };
        let state = ChannelState { inbox: sender, writable: writable.clone() };
        self.channels.lock().accept(number, opening, state).map_err(violation)?;
        let channels = self.channels.clone();
        let (says, direct, quota) = (self.says.clone(), self.direct.clone(), self.quota.clone());
        let out = ReplySender { channel: number, says, direct, channels: channels.clone(), writable, quota };
        match admitted {
            Ok(Admitted { frame, channel, payload, .. }) => {
                heard.hold_payload(payload);
                let waiting = self.wait_with(&frame.head);
                let attending = attend(self.supervisor.clone(), frame, heard, out);
                tokio::spawn(async move {
                    attending.await;
                    channels.lock().end(number);
                    // One that is still being written when the connection is gone goes afterwards.
                    drop((waiting, channel));
                });
            }
            Err(fault) => {
                channels.lock().close(number);
                tokio::spawn(async move {
                    out.say_result(Err(fault)).await;
                    channels.lock().end(number);
                });
            }
        }
        Ok(())
    }

    /// A request that this guest knows, from a caller that may ask it, with room for what it sends.
    fn admit(&self, frame: Frame<Request>) -> Result<Admitted, RpcError> {
        if frame.head == Request::Unknown {
            let what = format!("this guest, of version {}, does not know that request", env!("CARGO_PKG_VERSION"));
            return Err(RpcError::new(ErrorCode::Unsupported, what));
        }
        let frame = self.allowed(frame)?;
        let demand = Demand::of(&frame)?;
        let reserve = |bytes| self.quota.reserve(bytes).ok_or_else(busy);
        let (channel, payload) = (reserve(demand.channel)?, reserve(demand.payload)?);
        Ok(Admitted { frame, demand, channel, payload })
    }
}

impl Connection {
    /// The file that it places for a command to come.
    fn wait_with(&mut self, head: &Request) -> Option<Arc<Waiting>> {
        let Request::Secret(ask) = head else { return None };
        let waiting = ask.lent.then(|| Arc::new(Waiting::new(&self.supervisor.secrets, &ask.name)))?;
        self.waiting.retain(|it| it.is_waiting());
        self.waiting.push(waiting.clone());
        Some(waiting)
    }

    /// What this caller may ask, in the form in which it may.
    fn allowed(&self, frame: Frame<Request>) -> Result<Frame<Request>, RpcError> {
        match &self.caller {
            Caller::Host | Caller::Root => Ok(frame),
            Caller::Worker(given) => {
                Ok(Frame { head: worker_socket::narrowed(&self.supervisor, frame.head, given)?, ..frame })
            }
        }
    }
}

async fn attend(supervisor: Arc<Supervisor>, frame: Frame<Request>, inbox: Inbox, out: ReplySender) {
    match frame.head {
        Request::Exec(ask) => exec::exec(&supervisor, ask, frame.payload, inbox, &out).await,
        Request::Attach { job, stdout, stderr, show } => {
            exec::attach(&supervisor, &job, (stdout, stderr), show, (inbox, &out)).await;
        }
        Request::Get { at, offset, limit } => transfer::get(&supervisor, at, (offset, limit), &out).await,
        Request::Put { at, mode, exact, parents, replace } => {
            transfer::put(&supervisor, at, How { mode, exact, parents, replace }, inbox, &out).await;
        }
        Request::Session { bytes } => session_env::set(&supervisor, bytes, (frame.payload, inbox), &out).await,
        Request::Secret(ask) => session_env::put_secret(&supervisor, ask, (frame.payload, inbox), &out).await,
        Request::Worker(ask) => out.say_result(worker_socket::open(&supervisor, ask)).await,
        Request::Space(ask) => workspace::space(&supervisor, ask, (frame.payload, inbox), &out).await,
        Request::Relay(ask) => egress::relay(&supervisor, &ask, (frame.payload, inbox), &out).await,
        Request::Outlet(port) => egress::outlet(&supervisor, port, inbox, &out).await,
        Request::Walk(ask) => scan::walk(&supervisor, ask, (frame.payload, inbox), &out).await,
        Request::Hello(_) => out.say_result(Err(RpcError::new(ErrorCode::Invalid, "hello was said already"))).await,
        ask => requests::answer(&supervisor, ask, inbox, &out).await,
    }
}

fn violation(it: Violation) -> codec::Error {
    against(it.to_string())
}

fn against(what: impl Into<String>) -> codec::Error {
    codec::Error::Protocol(what.into())
}
