//! One connection: a task that reads, one that writes what no caller could, and channels between them and the calls.

mod outgoing;
mod state;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_protocol::mux::Backlog;
use coracle_protocol::{CHUNK, GuestMessage, Hello, MAX_CHANNELS, Request, Retention, VERSION};
use coracle_types::{Error, ProcessId, Result, random_hex};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::outgoing::Outgoing;
pub(crate) use self::state::ConnectionLost;
use self::state::{CLOSE_TIMEOUT, QUEUE_TIMEOUT, Shared};
use self::writer::write;
use crate::channels::{Incoming, Opened, ReplyShape};
use crate::codec::{self, Frame, told};
use crate::dial::{GuestStream, Liveness, Transport};

/// A guest that runs answers within a moment.
const HELLO: Duration = Duration::from_secs(5);

/// Frames with words or data that wait to be written. None is longer than [`CHUNK`], so the queue is bounded.
const QUEUE: usize = 32;

/// Lists are read whole, a mebibyte each, and these many at once.
const LISTS: usize = 8;

/// A connection whose guest said hello.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: AbortHandle,
    pub(crate) run: String,
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
        let run = match greeted.unwrap_or_else(too_late) {
            Ok(run) => run,
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
        let shared = Arc::new(Shared {
            outgoing: tokio::sync::Mutex::new(Outgoing::new(dialled.writer)),
            heard: Mutex::new(Instant::now()),
            channels: Mutex::default(),
            wake: Notify::new(),
            places: Semaphore::new(QUEUE),
            numbers: Arc::new(Semaphore::new(MAX_CHANNELS)),
            lists: Semaphore::new(LISTS),
            over: CancellationToken::new(),
            parting: CancellationToken::new(),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared), reader)).abort_handle();
        tokio::spawn(write(Arc::clone(&shared), dialled.hold));
        Ok(Self { shared, reader, run, transport: dialled.transport, peer: dialled.peer, there: dialled.there })
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

    /// Opens a channel; waits a while when as many are open as may.
    pub(crate) async fn open(
        self: &Arc<Self>,
        ask: Request,
        payload: Vec<u8>,
        talk: ReplyShape,
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
            channels.open(ask, payload, talk, permit)
        };
        place.forget();
        self.shared.write_now();
        let Opened { number, heard, writable, sent, ended } = opened;
        Ok(Channel { to: Sender { connection: Arc::clone(self), number, writable }, heard, sent, ended })
    }

    /// One of the lists that may be read at once.
    pub(crate) async fn list_place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ConnectionLost> {
        self.shared.lists.acquire().await.map_err(|_| self.shared.broken(false))
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

    /// Asks for the end of the command.
    pub(crate) fn cancel(&self) {
        let shared = &self.to.connection.shared;
        shared.lock().push(self.to.number, Request::Cancel, Vec::new(), false);
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
        if shared.lock().leave(self.to.number) {
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
    pub(crate) async fn send(&self, ask: Request, payload: Vec<u8>) -> bool {
        let shared = &self.connection.shared;
        let Ok(place) = shared.places.acquire().await else { return false };
        let open = shared.lock().push(self.number, ask, payload, true);
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
) -> Result<String, HandshakeError> {
    let none = |reason: &str| Err(HandshakeError::Reason(reason.to_owned()));
    let nonce = random_hex::<16>();
    let mut bytes = Vec::new();
    let ours = Hello { version: VERSION, nonce: nonce.clone(), run: String::new(), keep: Some(keep) };
    Frame::new(0, Request::Hello(ours)).write_to(&mut bytes);
    let write = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    // What ended at once has a reason, which stands where it prints to and not in a failed write.
    if let Err(err) = write.await {
        tracing::debug!(%err, "nobody reads the hello");
    }
    match codec::read::<GuestMessage>(reader).await {
        // A program in between says something else than a guest does.
        Err(codec::Error::Length { .. } | codec::Error::Header(_)) => none("what answered is no guest"),
        Err(err) => none(&told(&err)),
        Ok(None) => none("it ended without a hello"),
        Ok(Some(Frame { channel: 0, head: GuestMessage::Hello(theirs), .. })) if theirs.nonce == nonce => {
            match theirs.version {
                VERSION => Ok(theirs.run.chars().take(64).collect()),
                other => Err(HandshakeError::Version(other)),
            }
        }
        Ok(Some(_)) => none("it did not say hello"),
    }
}

async fn read(shared: Arc<Shared>, mut reader: impl AsyncRead + Unpin) {
    let reason = loop {
        match codec::read::<GuestMessage>(&mut reader).await {
            Ok(Some(frame)) => {
                *shared.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                let heard = shared.lock().hear(frame);
                match heard {
                    Err(breach) => break breach.to_string(),
                    // Else the writer would take the turn of the call that was just answered.
                    Ok(owes) if owes => shared.wake.notify_one(),
                    Ok(_) => {}
                }
            }
            Ok(None) => break "the guest closed the connection".to_owned(),
            Err(err) => break told(&err),
        }
    };
    shared.end(&reason);
}
