//! Writes the record of a container, in a task of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::exchange::{Missing, RecordedExchange};
use super::files::{ExchangeRecord, RecordSize};
use super::placeholders::Placeholders;

/// The record of a container.
#[derive(Clone)]
pub struct RecordSettings {
    /// Its directory.
    pub dir: PathBuf,
    /// Its limits.
    pub limits: RecordLimits,
    /// Receives each exchange after it was written, in the order of the lines.
    pub observer: Option<RecordObserver>,
}

impl fmt::Debug for RecordSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSettings").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Receives an exchange.
pub type RecordObserver = Arc<dyn Fn(StoredExchange) -> BoxFuture<'static, ()> + Send + Sync>;

/// The size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Maximum size of a body.
    pub body: u64,
    /// Maximum size of all bodies and lines. Exchanges beyond it have no bodies.
    pub total: u64,
    /// Maximum number of exchanges; more are not recorded.
    pub exchanges: u64,
    /// Maximum size of all lines, which have the headers; then nothing more is recorded.
    pub lines: u64,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self { body: 32 << 20, total: 256 << 20, exchanges: 100_000, lines: 64 << 20 }
    }
}

/// An exchange that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredExchange {
    /// When the request began, in microseconds since 1970. No two of a record are equal.
    pub sequence: u64,
    /// The method.
    pub method: String,
    /// The address, with the query.
    pub url: String,
    /// The status of the answer.
    pub status: u16,
    /// Its duration, in milliseconds.
    pub ms: u64,
    /// The SHA-256 of its line; none if it could not be written.
    pub sha256: Option<String>,
    /// Why the proxy itself answered, if it did.
    pub refused: Option<String>,
}

/// An exchange to be written, and its bodies.
pub(super) struct FinishedExchange {
    pub(super) exchange: RecordedExchange,
    pub(super) bodies: [Vec<u8>; 2],
}

/// How long a caller waits for a record at most.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(5);

enum Message {
    Exchange(Box<FinishedExchange>),
    /// All exchanges before it are written.
    Flush(oneshot::Sender<()>),
}

/// Writes exchanges as they end.
pub(crate) struct Recorder {
    pub(crate) placeholders: Placeholders,
    space: Arc<RecordSpace>,
    /// The last sequence number.
    last: AtomicU64,
    count: AtomicU64,
    is_full: AtomicBool,
    /// Exchanges that go on.
    active: AtomicU64,
    sender: mpsc::UnboundedSender<Message>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The space of a record. What is held in memory counts, so that it also bounds that.
#[derive(Debug)]
pub(crate) struct RecordSpace {
    limits: RecordLimits,
    used: AtomicU64,
    lines: AtomicU64,
}

impl RecordSpace {
    /// Takes space for a piece of a body that has `bytes` with it.
    pub(super) fn take(&self, bytes: u64, piece: u64) -> Result<(), Missing> {
        if bytes > self.limits.body {
            return Err(Missing::BodyLimit);
        }
        let fits = |used: u64| used.checked_add(piece).filter(|it| *it <= self.limits.total);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| Missing::RecordLimit)
    }

    /// Gives space back.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes space for a line that is going to be written.
    fn take_line(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.lines.fetch_add(bytes, Ordering::Relaxed);
    }

    fn has_lines(&self) -> bool {
        self.lines.load(Ordering::Relaxed) < self.limits.lines
    }
}

impl Recorder {
    /// Goes on with the record in a directory, or begins one there.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn start(settings: RecordSettings) -> std::io::Result<Arc<Self>> {
        let RecordSettings { dir, limits, observer } = settings;
        let record = ExchangeRecord::at(dir);
        let RecordSize { bodies, lines, exchanges } = record.size()?;
        let (used, lines) = (AtomicU64::new(bodies + lines), AtomicU64::new(lines));
        let space = Arc::new(RecordSpace { limits, used, lines });
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(write_all(receiver, record, space.clone(), observer));
        let placeholders = Placeholders::default();
        Ok(Arc::new(Self {
            placeholders,
            space,
            last: AtomicU64::new(0),
            count: AtomicU64::new(exchanges),
            is_full: AtomicBool::new(false),
            active: AtomicU64::new(0),
            sender,
        }))
    }

    pub(super) fn space(&self) -> &RecordSpace {
        &self.space
    }

    /// Returns the order of an exchange that begins. `None` if the record is full.
    pub(super) fn next(&self) -> Option<u64> {
        let is_counted = self.count.fetch_add(1, Ordering::Relaxed) < self.space.limits.exchanges;
        if is_counted && self.space.has_lines() {
            // By the clock, so that a process that continues the record needs no number of the last one.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            let following = |last: u64| Some(now.max(last + 1));
            let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following);
            return last.ok().and_then(following);
        }
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = self.space.limits.exchanges,
                "the record of a container has no room for more requests"
            );
        }
        None
    }

    pub(super) fn write(&self, finished: FinishedExchange) {
        // Before it is written: what waits is in memory.
        self.space.take_line(finished.exchange.head_bytes());
        let _ = self.sender.send(Message::Exchange(Box::new(finished)));
    }

    /// Notes that an exchange goes on, or no more.
    pub(super) fn is_active(&self, is_active: bool) {
        match is_active {
            true => self.active.fetch_add(1, Ordering::Relaxed),
            false => self.active.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Waits until all exchanges that have ended are written, or for [`FLUSH_TIMEOUT`].
    pub(crate) async fn flush(&self) {
        let (sender, done) = oneshot::channel();
        if self.sender.send(Message::Flush(sender)).is_ok() {
            let _ = timeout(FLUSH_TIMEOUT, done).await;
        }
    }

    /// Waits until no exchange goes on, and all are written.
    pub(crate) async fn end(&self) {
        let ended = async {
            while self.active.load(Ordering::Relaxed) > 0 {
                sleep(POLL).await;
            }
        };
        let _ = timeout(FLUSH_TIMEOUT, ended).await;
        self.flush().await;
    }
}

async fn write_all(
    mut messages: mpsc::UnboundedReceiver<Message>,
    record: ExchangeRecord,
    space: Arc<RecordSpace>,
    observer: Option<RecordObserver>,
) {
    while let Some(message) = messages.recv().await {
        let finished = match message {
            Message::Exchange(finished) => finished,
            Message::Flush(done) => {
                let _ = done.send(());
                continue;
            }
        };
        let (record, space) = (record.clone(), space.clone());
        let stored = tokio::task::spawn_blocking(move || store(&record, &space, *finished)).await;
        if let (Ok(stored), Some(observer)) = (stored, &observer) {
            observer(stored).await;
        }
    }
}

fn store(record: &ExchangeRecord, space: &RecordSpace, finished: FinishedExchange) -> StoredExchange {
    let FinishedExchange { exchange, bodies } = finished;
    let stored = record.append(&exchange, &bodies);
    let sha256 = match stored {
        Ok(appended) => {
            space.take_line(appended.line_bytes.saturating_sub(exchange.head_bytes()));
            space.give_back(appended.known_bytes);
            Some(appended.sha256)
        }
        Err(err) => {
            tracing::error!(%err, dir = %record.dir().display(), "a request cannot be recorded");
            None
        }
    };
    let RecordedExchange { sequence, method, url, status, ms, refused, .. } = exchange;
    StoredExchange { sequence, method, url, status, ms, sha256, refused }
}
