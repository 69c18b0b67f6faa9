//! One connection: a task that reads, one that writes what no caller could, and channels between them and the calls.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coracle_protocol::{Ask, CHUNK, Hello, Keep, MAX_CHANNELS, Say, VERSION};
use coracle_types::{Error, ProcessId, Result, random_hex};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::channels::{Channels, Heard, Opened, Talk};
use crate::codec::{self, Frame};
use crate::dial::{Dialled, There, Transport};
use crate::inbox::Inbox;
use crate::writer::{Outgoing, write};

/// A guest that runs answers within a moment.
const HELLO: Duration = Duration::from_secs(5);

/// Frames with words or data that wait to be written. None is longer than [`CHUNK`], so the queue is bounded.
const QUEUE: usize = 32;

/// Lists are read whole, a mebibyte each, and these many at once.
const LISTS: usize = 8;

/// How long a call waits until it may be put to the guest: calls that hang must not hang all others.
const TURN: Duration = Duration::from_secs(10);

/// How long the last words to a guest may take.
pub(crate) const PARTING: Duration = Duration::from_secs(1);

/// A call whose connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) reason: String,
    /// The guest may have got what was asked.
    pub(crate) sent: bool,
    /// The connection stands, and takes no more calls.
    pub(crate) full: bool,
}

impl Broken {
    fn full() -> Self {
        let reason = format!("no place for another call within {} s", TURN.as_secs());
        Self { reason, sent: false, full: true }
    }

    /// What it is to who asked for `verb`.
    pub(crate) fn of(self, verb: &'static str) -> Error {
        if self.full {
            return Error::TimedOut { verb, after: TURN };
        }
        Error::GuestLost { reason: self.reason, output: None }
    }
}

impl From<Broken> for Error {
    fn from(it: Broken) -> Self {
        it.of("link")
    }
}

/// A connection whose guest said hello.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: AbortHandle,
    pub(crate) run: String,
    pub(crate) transport: Transport,
    pub(crate) peer: Option<ProcessId>,
    there: Option<There>,
}

pub(crate) struct Shared {
    pub(crate) outgoing: tokio::sync::Mutex<Outgoing>,
    /// When the guest last said something.
    heard: Mutex<Instant>,
    channels: Mutex<Channels>,
    /// Something waits to be written.
    pub(crate) wake: Notify,
    pub(crate) places: Semaphore,
    numbers: Arc<Semaphore>,
    lists: Semaphore,
    pub(crate) over: CancellationToken,
    /// Nobody will ask anything any more.
    pub(crate) parting: CancellationToken,
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
    pub(crate) async fn greet(mut dialled: Dialled, keep: Keep) -> Result<Self> {
        let mut reader = BufReader::with_capacity(CHUNK, dialled.reader);
        let greeted = timeout(HELLO, hello(&mut reader, &mut dialled.writer, keep)).await;
        let too_late = |_| Err(NoHello::Reason(format!("no hello within {} s", HELLO.as_secs())));
        let run = match greeted.unwrap_or_else(too_late) {
            Ok(run) => run,
            Err(NoHello::Version(guest)) => return Err(Error::GuestVersion { guest, host: VERSION }),
            Err(NoHello::Reason(mut reason)) => {
                if let Some(words) = dialled.last_words
                    && let Ok(Ok(excerpt)) = timeout(PARTING, words).await
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
    pub(crate) async fn open(self: &Arc<Self>, ask: Ask, payload: Vec<u8>, talk: Talk) -> Result<Channel, Broken> {
        let unsent = |_| self.shared.broken(false);
        let turn = async {
            let permit = Arc::clone(&self.shared.numbers).acquire_owned().await.map_err(unsent)?;
            Ok((permit, self.shared.places.acquire().await.map_err(unsent)?))
        };
        let (permit, place) = timeout(TURN, turn).await.unwrap_or_else(|_| Err(Broken::full()))?;
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
        let Opened { number, heard, room, sent, ended } = opened;
        Ok(Channel { to: Sender { connection: Arc::clone(self), number, room }, heard, sent, ended })
    }

    /// One of the lists that may be read at once.
    pub(crate) async fn list_place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Broken> {
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
    heard: Inbox,
    sent: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Channel {
    /// What the guest says next. Safe to abandon.
    pub(crate) async fn next(&mut self) -> Result<Heard, Broken> {
        let broken = |sent: &AtomicBool| self.to.connection.shared.broken(sent.load(Ordering::Relaxed));
        self.heard.next().await.ok_or_else(|| broken(&self.sent))
    }

    /// As [`next`](Self::next); when something else has to be done first, only that the connection broke before the last
    /// word came: what waits to be taken can be asked for again, but a command that nobody is connected to is ended.
    pub(crate) async fn next_unless(&mut self, busy: bool) -> Result<Heard, Broken> {
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
    pub(crate) fn took(&self, bytes: usize) {
        let shared = &self.to.connection.shared;
        // Who writes is not woken for nothing: that takes as long as a small answer.
        if shared.lock().took(self.to.number, bytes as u64) {
            shared.wake.notify_one();
        }
    }

    /// Asks for the end of the command.
    pub(crate) fn cancel(&self) {
        let shared = &self.to.connection.shared;
        shared.lock().push(self.to.number, Ask::Cancel, Vec::new(), false);
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
    room: Arc<Semaphore>,
}

impl Sender {
    /// Sends a frame that opens no channel; `false` when nobody listens any more.
    pub(crate) async fn send(&self, ask: Ask, payload: Vec<u8>) -> bool {
        let shared = &self.connection.shared;
        let Ok(place) = shared.places.acquire().await else { return false };
        let open = shared.lock().push(self.number, ask, payload, true);
        if open {
            place.forget();
            shared.wake.notify_one();
        }
        open
    }

    /// Waits for room for data, at most a piece; 0 when nobody listens any more. What is not used has to be
    /// [given back](Self::spare).
    pub(crate) async fn reserve(&self) -> usize {
        let Ok(first) = self.room.acquire().await else { return 0 };
        first.forget();
        let more = self.room.available_permits().min(CHUNK - 1);
        match u32::try_from(more).map(|more| self.room.try_acquire_many(more)) {
            Ok(Ok(rest)) => {
                rest.forget();
                more + 1
            }
            _ => 1,
        }
    }

    /// Room that was reserved and is not needed.
    pub(crate) fn spare(&self, bytes: usize) {
        self.room.add_permits(bytes);
    }

    /// Everything that was sent has been taken by the guest.
    pub(crate) fn all_taken(&self) -> bool {
        self.room.available_permits() as u64 == coracle_protocol::WINDOW
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, sent: bool) -> Broken {
        let reason = self.lock().over.clone().unwrap_or_else(|| "the guest had said its last word".into());
        Broken { reason, sent, full: false }
    }

    pub(crate) fn end(&self, reason: &str) {
        tracing::debug!(reason, "the link is over");
        self.lock().end(reason);
        self.places.close();
        self.numbers.close();
        self.lists.close();
        self.over.cancel();
    }
}

/// Why a guest is not spoken to.
#[derive(Debug)]
enum NoHello {
    /// It speaks another version.
    Version(u32),
    /// What came is no hello.
    Reason(String),
}

async fn hello(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    keep: Keep,
) -> Result<String, NoHello> {
    let none = |reason: &str| Err(NoHello::Reason(reason.to_owned()));
    let nonce = random_hex::<16>();
    let mut bytes = Vec::new();
    let ours = Hello { version: VERSION, nonce: nonce.clone(), run: String::new(), keep: Some(keep) };
    Frame::new(0, Ask::Hello(ours)).write_to(&mut bytes);
    let write = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    // What ended at once has a reason, which stands where it prints to and not in a failed write.
    if let Err(err) = write.await {
        tracing::debug!(%err, "nobody reads the hello");
    }
    match codec::read::<Say>(reader).await {
        // A program in between says something else than a guest does.
        Err(codec::Error::Length { .. } | codec::Error::Header(_)) => none("what answered is no guest"),
        Err(err) => none(&told(&err)),
        Ok(None) => none("it ended without a hello"),
        Ok(Some(Frame { channel: 0, head: Say::Hello(theirs), .. })) if theirs.nonce == nonce => match theirs.version {
            VERSION => Ok(theirs.run.chars().take(64).collect()),
            other => Err(NoHello::Version(other)),
        },
        Ok(Some(_)) => none("it did not say hello"),
    }
}

pub(crate) fn told(err: &codec::Error) -> String {
    match std::error::Error::source(err) {
        Some(source) => format!("{err}: {source}"),
        None => err.to_string(),
    }
}

async fn read(shared: Arc<Shared>, mut reader: impl AsyncRead + Unpin) {
    let reason = loop {
        match codec::read::<Say>(&mut reader).await {
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
