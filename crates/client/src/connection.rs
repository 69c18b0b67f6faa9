//! One connection: a task that reads, one that writes what callers could not write directly, and the channels of calls.

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

/// Timeout of the guest's greeting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames with requests or data that are queued. None is longer than [`CHUNK`], so the queue is bounded.
const QUEUE: usize = 32;

/// Replies longer than a frame are collected in memory; this limits their number.
const LONG_REPLIES: usize = 8;

/// A connection whose guest has greeted.
pub(crate) struct Connection {
    shared: Arc<ConnectionInner>,
    reader: AbortHandle,
    pub(crate) run: String,
    /// Names of the calls that the guest knows.
    capabilities: Vec<String>,
    /// The boot id of the guest's kernel, if the guest was locked when it greeted.
    pub(crate) locked: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) peer: Option<ProcessId>,
    liveness: Option<Liveness>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("transport", &self.transport).field("run", &self.run).finish_non_exhaustive()
    }
}

impl Connection {
    /// Exchanges greetings and starts to read.
    ///
    /// # Errors
    /// [`Error::GuestVersion`]; [`Error::GuestFailed`] if the guest does not greet correctly in time.
    pub(crate) async fn handshake(mut dialled: GuestStream, keep: Retention) -> Result<Self> {
        let mut reader = BufReader::with_capacity(CHUNK, dialled.reader);
        let greeted = timeout(HELLO_TIMEOUT, hello(&mut reader, &mut dialled.writer, keep)).await;
        let too_late = |_| Err(HandshakeError::Reason(format!("no greeting within {} s", HELLO_TIMEOUT.as_secs())));
        let Hello { run, capabilities, locked, .. } = match greeted.unwrap_or_else(too_late) {
            Ok(hello) => hello,
            Err(HandshakeError::Version(guest)) => return Err(Error::GuestVersion { guest, host: VERSION }),
            Err(HandshakeError::Reason(mut reason)) => {
                if let Some(output) = dialled.error_output
                    && let Ok(Ok(excerpt)) = timeout(CLOSE_TIMEOUT, output).await
                {
                    reason = format!("{reason}: {excerpt}");
                }
                return Err(Error::GuestFailed { reason });
            }
        };
        let shared = Arc::new(ConnectionInner {
            outgoing: tokio::sync::Mutex::new(Outgoing::new(dialled.writer)),
            received: Mutex::new(Instant::now()),
            channels: Mutex::default(),
            wake: Notify::new(),
            queue_permits: Semaphore::new(QUEUE),
            channel_permits: Arc::new(Semaphore::new(MAX_CHANNELS)),
            long_replies: Arc::new(Semaphore::new(LONG_REPLIES)),
            over: CancellationToken::new(),
            closing: CancellationToken::new(),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared), reader)).abort_handle();
        tokio::spawn(write(Arc::clone(&shared), dialled.hold));
        let (transport, peer, liveness) = (dialled.transport, dialled.peer, dialled.liveness);
        let run = run.chars().take(64).collect();
        Ok(Self { shared, reader, run, capabilities, locked, transport, peer, liveness })
    }

    /// Whether the connection is open, as far as is known.
    pub(crate) fn alive(&self) -> bool {
        !self.shared.over.is_cancelled()
    }

    /// Cancelled when the connection is closed.
    pub(crate) fn over(&self) -> CancellationToken {
        self.shared.over.clone()
    }

    /// Whether a message was received within that time, and the kernel reports no end of the connection.
    pub(crate) fn was_active(&self, within: Duration) -> bool {
        let received = *self.shared.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.elapsed() < within && self.liveness.as_ref().is_some_and(|is_alive| is_alive())
    }

    /// Checks locally whether the guest knows a call.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`ErrorCode::Unsupported`].
    pub(crate) fn check_knows(&self, call: &'static str) -> coracle_types::Result<()> {
        if self.capabilities.iter().any(|it| it == call) {
            return Ok(());
        }
        let message = format!("the guest in the container does not support the call `{call}`");
        Err(Error::Refused(RpcError::new(ErrorCode::Unsupported, message)))
    }

    /// Opens a channel with the first bytes of a request; waits for a while if the limit of open channels is reached.
    pub(crate) async fn open(
        self: &Arc<Self>,
        call: &'static str,
        body: &[u8],
        shape: ReplyShape,
    ) -> Result<Channel, ConnectionLost> {
        let unsent = |_| self.shared.broken(false);
        let turn = async {
            let permit = Arc::clone(&self.shared.channel_permits).acquire_owned().await.map_err(unsent)?;
            Ok((permit, self.shared.queue_permits.acquire().await.map_err(unsent)?))
        };
        let (permit, queue_permit) =
            timeout(QUEUE_TIMEOUT, turn).await.unwrap_or_else(|_| Err(ConnectionLost::full()))?;
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
        queue_permit.forget();
        self.shared.write_now();
        let OpenChannel { number, received, writable, sent, ended } = opened;
        Ok(Channel { to: Sender { connection: Arc::clone(self), number, writable }, received, sent, ended })
    }
}

/// Queued frames are still written: the guest ends commands for which no caller waits.
impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        self.reader.abort();
    }
}

/// A channel, open until its last message. Dropping it closes the channel.
#[derive(Debug)]
pub(crate) struct Channel {
    to: Sender,
    received: Backlog<GuestMessage>,
    sent: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Channel {
    /// The guest's next message. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Incoming, ConnectionLost> {
        let broken = |sent: &AtomicBool| self.to.connection.shared.broken(sent.load(Ordering::Relaxed));
        self.received.recv().await.ok_or_else(|| broken(&self.sent))
    }

    /// As [`next`](Self::next); while `busy`, completes only if the connection breaks before the last message arrived. Queued
    /// output can be requested again, but the guest ends a command that has no connection.
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

    /// Returns credit for consumed output or data.
    pub(crate) fn release(&self, bytes: usize) {
        let shared = &self.to.connection.shared;
        // Waking the writer only if necessary saves the time of a short reply.
        if shared.lock().release(self.to.number, bytes as u64) {
            shared.wake.notify_one();
        }
    }

    /// A permit for reading a long reply.
    pub(crate) async fn reply_permit(&self) -> Result<OwnedSemaphorePermit, ConnectionLost> {
        let shared = &self.to.connection.shared;
        Arc::clone(&shared.long_replies).acquire_owned().await.map_err(|_| shared.broken(true))
    }

    /// Requests the end of the command.
    pub(crate) fn cancel(&self) {
        let shared = &self.to.connection.shared;
        shared.lock().push(self.to.number, HostMessage::Cancel, Vec::new(), false);
        shared.wake.notify_one();
    }

    /// A sender for this channel.
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

/// Sends messages on a channel.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    connection: Arc<Connection>,
    number: u32,
    writable: Arc<Notify>,
}

impl Sender {
    /// Sends a frame that opens no channel; `false` if the channel has ended.
    pub(crate) async fn send(&self, message: HostMessage, payload: Vec<u8>) -> bool {
        let shared = &self.connection.shared;
        let Ok(permit) = shared.queue_permits.acquire().await else { return false };
        let open = shared.lock().push(self.number, message, payload, true);
        if open {
            permit.forget();
            shared.wake.notify_one();
        }
        open
    }

    /// Waits for window for data, at most a chunk; 0 if the channel has ended. Unused window must be
    /// [given back](Self::unreserve). Only one caller at a time.
    pub(crate) async fn reserve(&self) -> usize {
        loop {
            let reserved = self.connection.shared.lock().reserve(self.number, CHUNK as u64);
            match reserved {
                Some(0) => self.writable.notified().await,
                reserved => return usize::try_from(reserved.unwrap_or_default()).expect("at most a chunk"),
            }
        }
    }

    /// Gives back window that was reserved and is not needed.
    pub(crate) fn unreserve(&self, bytes: usize) {
        self.connection.shared.lock().unreserve(self.number, bytes as u64);
    }

    /// Whether the guest has consumed everything that was sent.
    pub(crate) fn all_taken(&self) -> bool {
        self.connection.shared.lock().is_all_taken(self.number)
    }
}

/// Why a handshake failed.
#[derive(Debug)]
enum HandshakeError {
    /// The guest has another protocol version.
    Version(u32),
    /// There was no valid greeting.
    Reason(String),
}

async fn hello(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    retention: Retention,
) -> Result<Hello, HandshakeError> {
    let failed = |reason: &str| Err(HandshakeError::Reason(reason.to_owned()));
    let nonce = random_hex::<16>();
    let mut bytes = Vec::new();
    Frame::new(0, FirstMessage::Hello(Hello::of_host(nonce.clone(), retention))).write_to(&mut bytes);
    let write = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    // If the program has exited, its output has the reason, not the failed write.
    if let Err(err) = write.await {
        tracing::debug!(%err, "the greeting could not be written");
    }
    match codec::read::<FirstMessage>(reader).await {
        // Another program, such as a wrapper, has printed text.
        Err(codec::Error::Length { .. } | codec::Error::FirstMessage(_)) => failed("the response is not from a guest"),
        Err(err) => failed(&with_source(&err)),
        Ok(None) => failed("the connection closed without a greeting"),
        Ok(Some(Frame { channel: 0, head: FirstMessage::Hello(theirs), .. })) if theirs.nonce == nonce => {
            match theirs.version {
                VERSION => Ok(theirs),
                other => Err(HandshakeError::Version(other)),
            }
        }
        Ok(Some(Frame { head: FirstMessage::Failed(fault), .. })) => failed(&fault.message),
        Ok(Some(_)) => failed("the guest did not greet"),
    }
}

async fn read(shared: Arc<ConnectionInner>, mut reader: impl AsyncRead + Unpin) {
    let reason = loop {
        match codec::read::<GuestMessage>(&mut reader).await {
            Ok(Some(frame)) => {
                *shared.received.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                let received = shared.lock().on_frame(frame);
                match received {
                    Err(breach) => break breach.to_string(),
                    // Otherwise the writer would be scheduled before the call that has just got its reply.
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
