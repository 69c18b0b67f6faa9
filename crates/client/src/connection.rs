//! One connection: a task that reads, one that writes what no caller could, and channels between them and the calls.

mod outgoing;
mod state;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_protocol::mux::Backlog;
use coracle_protocol::{
    CHUNK, ErrorCode, FirstMessage, GuestMessage, Hello, HostMessage, MAX_CHANNELS, Retention, RpcError, VERSION,
};
use coracle_types::{Error, ProcessId, Result, random_hex};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::outgoing::Outgoing;
pub(crate) use self::state::ConnectionLost;
use self::state::{CLOSE_TIMEOUT, ConnectionInner, QUEUE_TIMEOUT};
use self::writer::write;
use crate::channels::{Incoming, OpenChannel, ReplyShape};
use crate::codec::{self, Frame, with_source};
use crate::dial::{GuestStream, Liveness, Transport};

/// A guest that runs answers within a moment.
const HELLO: Duration = Duration::from_secs(5);

/// Frames with words or data that wait to be written. None is longer than [`CHUNK`], so the queue is bounded.
const QUEUE: usize = 32;

/// Replies of more than a frame are read whole, and these many at once.
const LONG_REPLIES: usize = 8;

/// A connection whose guest said hello.
pub(crate) struct Connection {
    shared: Arc<ConnectionInner>,
    reader: AbortHandle,
    pub(crate) run: String,
    /// Names of the calls that the guest knows.
    capabilities: Vec<String>,
    /// The boot id of the guest's kernel, if it was locked when it said hello.
    pub(crate) locked: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) peer: Option<ProcessId>,
    there: Option<Liveness>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("transport", &self.transport).field("run", &self.run).finish_non_exhaustive()
    }
}

impl Connection {
    /// Says hello and begins to listen.
    ///
    /// # Errors
    /// [`Error::GuestVersion`]; [`Error::GuestFailed`] when no proper hello comes back in time.
    pub(crate) async fn handshake(mut dialled: GuestStream, keep: Retention) -> Result<Self> {
        let mut reader = BufReader::with_capacity(CHUNK, dialled.reader);
        let greeted = timeout(HELLO, hello(&mut reader, &mut dialled.writer, keep)).await;
        let too_late = |_| Err(HandshakeError::Reason(format!("no hello within {} s", HELLO.as_secs())));
        let Hello { run, capabilities, locked, .. } = match greeted.unwrap_or_else(too_late) {
            Ok(hello) => hello,
            Err(HandshakeError::Version(guest)) => return Err(Error::GuestVersion { guest, host: VERSION }),
            Err(HandshakeError::Reason(mut reason)) => {
                if let Some(words) = dialled.last_words
                    && let Ok(Ok(excerpt)) = timeout(CLOSE_TIMEOUT, words).await
                {
                    reason = format!("{reason}: {excerpt}");
                }
                return Err(Error::GuestFailed { reason });
            }
        };
        let shared = Arc::new(ConnectionInner {
            outgoing: tokio::sync::Mutex::new(Outgoing::new(dialled.writer)),
            heard: Mutex::new(Instant::now()),
            channels: Mutex::default(),
            wake: Notify::new(),
            places: Semaphore::new(QUEUE),
            numbers: Arc::new(Semaphore::new(MAX_CHANNELS)),
            long_replies: Arc::new(Semaphore::new(LONG_REPLIES)),
            over: CancellationToken::new(),
            parting: CancellationToken::new(),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared), reader)).abort_handle();
        tokio::spawn(write(Arc::clone(&shared), dialled.hold));
        let (transport, peer, there) = (dialled.transport, dialled.peer, dialled.there);
        let run = run.chars().take(64).collect();
        Ok(Self { shared, reader, run, capabilities, locked, transport, peer, there })
    }

    /// Whether it still stands, as far as is known.
    pub(crate) fn alive(&self) -> bool {
        !self.shared.over.is_cancelled()
    }

    /// Whether the guest said something within that time and its end of the connection is still there.
    pub(crate) fn was_heard(&self, within: Duration) -> bool {
        let heard = *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.elapsed() < within && self.there.as_ref().is_some_and(|there| there())
    }

    /// Checks that the guest knows a call, which costs it nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`ErrorCode::Unsupported`].
    pub(crate) fn check_knows(&self, call: &'static str) -> coracle_types::Result<()> {
        if self.capabilities.iter().any(|it| it == call) {
            return Ok(());
        }
        let message = format!("the guest in the container does not know the request `{call}`");
        Err(Error::Refused(RpcError::new(ErrorCode::Unsupported, message)))
    }

    /// Opens a channel with the first bytes of a request; waits a while when as many are open as may.
    pub(crate) async fn open(
        self: &Arc<Self>,
        call: &'static str,
        body: &[u8],
        shape: ReplyShape,
    ) -> Result<Channel, ConnectionLost> {
        let unsent = |_| self.shared.broken(false);
        let turn = async {
            let permit = Arc::clone(&self.shared.numbers).acquire_owned().await.map_err(unsent)?;
            Ok((permit, self.shared.places.acquire().await.map_err(unsent)?))
        };
        let (permit, place) = timeout(QUEUE_TIMEOUT, turn).await.unwrap_or_else(|_| Err(ConnectionLost::full()))?;
        let opened = {
            let mut channels = self.shared.lock();
            if channels.over.is_some() {
                drop(channels);
                return Err(self.shared.broken(false));
            }
            let bytes = u32::try_from(body.len()).expect("a request is within its limit");
            let first = body[..body.len().min(CHUNK)].to_vec();
            channels.open(HostMessage::Open { call: call.to_owned(), bytes }, first, shape, permit)
        };
        place.forget();
        self.shared.write_now();
        let OpenChannel { number, heard, writable, sent, ended } = opened;
        Ok(Channel { to: Sender { connection: Arc::clone(self), number, writable }, heard, sent, ended })
    }
}

/// What waits is still written: the guest ends at once what nobody waits for.
impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.parting.cancel();
        self.reader.abort();
    }
}

/// A channel, open until its last word. To drop it is to leave it.
#[derive(Debug)]
pub(crate) struct Channel {
    to: Sender,
    heard: Backlog<GuestMessage>,
    sent: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Channel {
    /// What the guest says next. Safe to abandon.
    pub(crate) async fn next(&mut self) -> Result<Incoming, ConnectionLost> {
        let broken = |sent: &AtomicBool| self.to.connection.shared.broken(sent.load(Ordering::Relaxed));
        self.heard.recv().await.ok_or_else(|| broken(&self.sent))
    }

    /// As [`next`](Self::next); when something else has to be done first, only that the connection broke before the last
    /// word came: what waits to be taken can be asked for again, but a command that nobody is connected to is ended.
    pub(crate) async fn next_unless(&mut self, busy: bool) -> Result<Incoming, ConnectionLost> {
        if !busy {
            return self.next().await;
        }
        let shared = &self.to.connection.shared;
        shared.over.cancelled().await;
        if self.ended.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Err(shared.broken(self.sent.load(Ordering::Relaxed)))
    }

    /// Output or data was taken: so much more may come.
    pub(crate) fn release(&self, bytes: usize) {
        let shared = &self.to.connection.shared;
        // Who writes is not woken for nothing: that takes as long as a small answer.
        if shared.lock().release(self.to.number, bytes as u64) {
            shared.wake.notify_one();
        }
    }

    /// One of the long replies that may be read at once.
    pub(crate) async fn reply_place(&self) -> Result<OwnedSemaphorePermit, ConnectionLost> {
        let shared = &self.to.connection.shared;
        Arc::clone(&shared.long_replies).acquire_owned().await.map_err(|_| shared.broken(true))
    }

    /// Asks for the end of the command.
    pub(crate) fn cancel(&self) {
        let shared = &self.to.connection.shared;
        shared.lock().push(self.to.number, HostMessage::Cancel, Vec::new(), false);
        shared.wake.notify_one();
    }

    /// The way to the guest, for a second hand.
    pub(crate) fn sender(&self) -> Sender {
        self.to.clone()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let shared = &self.to.connection.shared;
        if shared.lock().close(self.to.number) {
            shared.wake.notify_one();
        }
    }
}

/// The way to the guest on a channel.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    connection: Arc<Connection>,
    number: u32,
    writable: Arc<Notify>,
}

impl Sender {
    /// Sends a frame that opens no channel; `false` when nobody listens any more.
    pub(crate) async fn send(&self, message: HostMessage, payload: Vec<u8>) -> bool {
        let shared = &self.connection.shared;
        let Ok(place) = shared.places.acquire().await else { return false };
        let open = shared.lock().push(self.number, message, payload, true);
        if open {
            place.forget();
            shared.wake.notify_one();
        }
        open
    }

    /// Waits for window for data, at most a piece; 0 when nobody listens any more. What is not used has to be
    /// [given back](Self::unreserve). One caller at a time.
    pub(crate) async fn reserve(&self) -> usize {
        loop {
            let reserved = self.connection.shared.lock().reserve(self.number, CHUNK as u64);
            match reserved {
                Some(0) => self.writable.notified().await,
                reserved => return usize::try_from(reserved.unwrap_or_default()).expect("at most a piece"),
            }
        }
    }

    /// Window that was reserved and is not needed.
    pub(crate) fn unreserve(&self, bytes: usize) {
        self.connection.shared.lock().unreserve(self.number, bytes as u64);
    }

    /// Everything that was sent has been taken by the guest.
    pub(crate) fn all_taken(&self) -> bool {
        self.connection.shared.lock().is_all_taken(self.number)
    }
}

/// Why a guest is not spoken to.
#[derive(Debug)]
enum HandshakeError {
    /// It speaks another version.
    Version(u32),
    /// What came is no hello.
    Reason(String),
}

async fn hello(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    keep: Retention,
) -> Result<Hello, HandshakeError> {
    let none = |reason: &str| Err(HandshakeError::Reason(reason.to_owned()));
    let nonce = random_hex::<16>();
    let mut bytes = Vec::new();
    Frame::new(0, FirstMessage::Hello(Hello::of_host(nonce.clone(), keep))).write_to(&mut bytes);
    let write = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    // What ended at once has a reason, which stands where it prints to and not in a failed write.
    if let Err(err) = write.await {
        tracing::debug!(%err, "nobody reads the hello");
    }
    match codec::read::<FirstMessage>(reader).await {
        // A program in between says something else than a guest does.
        Err(codec::Error::Length { .. } | codec::Error::FirstMessage(_)) => none("what answered is no guest"),
        Err(err) => none(&with_source(&err)),
        Ok(None) => none("it ended without a hello"),
        Ok(Some(Frame { channel: 0, head: FirstMessage::Hello(theirs), .. })) if theirs.nonce == nonce => {
            match theirs.version {
                VERSION => Ok(theirs),
                other => Err(HandshakeError::Version(other)),
            }
        }
        Ok(Some(Frame { head: FirstMessage::Failed(fault), .. })) => none(&fault.message),
        Ok(Some(_)) => none("it did not say hello"),
    }
}

async fn read(shared: Arc<ConnectionInner>, mut reader: impl AsyncRead + Unpin) {
    let reason = loop {
        match codec::read::<GuestMessage>(&mut reader).await {
            Ok(Some(frame)) => {
                *shared.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                let heard = shared.lock().on_frame(frame);
                match heard {
                    Err(breach) => break breach.to_string(),
                    // Else the writer would take the turn of the call that was just answered.
                    Ok(owes) if owes => shared.wake.notify_one(),
                    Ok(_) => {}
                }
            }
            Ok(None) => break "the guest closed the connection".to_owned(),
            Err(err) => break with_source(&err),
        }
    };
    shared.end(&reason);
}
