//! Lines of standard input and output.
//!
//! Each stream has a thread that blocks in the kernel: standard input may be a file, a pipe, a socket or a terminal, and
//! not all of them support asynchronous waiting.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use coracle::MAX_BYTES;
use coracle_transport::MessageScan;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::request::RequestId;

/// Maximum sizes of a frame and of its head.
const MAX_FRAME: usize = 1 << 20;
const MAX_HEAD: u64 = 256;

/// Maximum number of lines that wait to be handled, and that wait to be written.
const WAITING: usize = 64;

/// Interval of the check whether the client reads.
const LOOK: Duration = Duration::from_secs(1);

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    Text(Vec<u8>),
    /// A line that is larger than the largest call, with its id if it has one.
    TooLong(Option<RequestId>),
    /// A frame: bytes of a call's input; empty at its end.
    Frame(RequestId, Vec<u8>),
    /// An invalid frame. It is the last line, because the input after it cannot be parsed.
    WrongFrame,
}

/// The lines of the input; the channel closes at the end. An unterminated last line is dropped: its writer died.
pub(crate) fn read(input: impl Read + Send + 'static) -> mpsc::Receiver<InputLine> {
    let (sender, lines) = mpsc::channel(WAITING);
    thread::spawn(move || {
        let mut input = BufReader::with_capacity(64 << 10, input);
        loop {
            match next(&mut input) {
                Ok(Some(line)) => {
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(err) => {
                    tracing::warn!("standard input cannot be read: {err}");
                    if err.kind() == io::ErrorKind::InvalidData {
                        let _ = sender.blocking_send(InputLine::WrongFrame);
                    }
                    return;
                }
            }
        }
    });
    lines
}

fn next(input: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    let (mut text, mut too_long) = (Vec::new(), None::<MessageScan>);
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err),
        };
        if available.is_empty() {
            return Ok(None);
        }
        if available[0] == b'=' && text.is_empty() && too_long.is_none() {
            return frame(input).map(Some);
        }
        let end = available.iter().position(|it| *it == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if let Some(scan) = &mut too_long {
            scan.feed(part);
        } else if text.len() + part.len() > MAX_BYTES {
            let scan = too_long.insert(MessageScan::default());
            scan.feed(&std::mem::take(&mut text));
            scan.feed(part);
        } else {
            text.extend_from_slice(part);
        }
        let taken = end.map_or(available.len(), |it| it + 1);
        input.consume(taken);
        if end.is_some() {
            return Ok(Some(match too_long {
                Some(scan) => InputLine::TooLong(RequestId::from_scan(&scan)),
                None => InputLine::Text(text),
            }));
        }
    }
}

/// Reads a frame. An invalid one is an error of the input, because the input after it cannot be parsed.
fn frame(input: &mut impl BufRead) -> io::Result<InputLine> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a frame is `=ID COUNT`, a newline and COUNT bytes");
    let mut head = Vec::new();
    input.take(MAX_HEAD).read_until(b'\n', &mut head)?;
    let text = head.strip_prefix(b"=").and_then(|it| it.strip_suffix(b"\n")).ok_or_else(wrong)?;
    let at = text.iter().rposition(|it| *it == b' ').ok_or_else(wrong)?;
    let count = std::str::from_utf8(&text[at + 1..]).ok().and_then(|it| it.parse::<usize>().ok());
    let count = count.filter(|it| *it <= MAX_FRAME).ok_or_else(wrong)?;
    let id = RequestId::from_json(&text[..at]).ok_or_else(wrong)?;
    let mut bytes = vec![0; count];
    input.read_exact(&mut bytes)?;
    Ok(InputLine::Frame(id, bytes))
}

/// Sends lines to the client. Clones share the output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    lines: mpsc::Sender<Vec<u8>>,
    /// Number of written lines.
    written: Arc<AtomicUsize>,
    /// The session ends, and the client does not read.
    unread: CancellationToken,
}

impl Output {
    /// Writes until every clone is dropped; then the receiver ends. If the client stops reading, `gone` fires.
    pub(crate) fn to(
        mut output: impl Write + Send + 'static,
        gone: CancellationToken,
    ) -> (Self, oneshot::Receiver<()>) {
        let (sender, mut lines) = mpsc::channel::<Vec<u8>>(WAITING);
        let (end, ended) = oneshot::channel();
        let written = Arc::<AtomicUsize>::default();
        let count = written.clone();
        thread::spawn(move || {
            // Dropped with the thread.
            let _end: oneshot::Sender<()> = end;
            while let Some(line) = lines.blocking_recv() {
                if let Err(err) = output.write_all(&line).and_then(|()| output.flush()) {
                    tracing::debug!("the client reads no more: {err}");
                    gone.cancel();
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        (Self { lines: sender, written, unread: CancellationToken::new() }, ended)
    }

    /// Returns once calls have waited this long to write and the client has read no line.
    pub(crate) async fn unread_for(&self, time: Duration) {
        let (mut written, mut since) = (self.written.load(Ordering::Relaxed), Instant::now());
        while since.elapsed() < time {
            sleep(LOOK).await;
            let now = self.written.load(Ordering::Relaxed);
            // No call waits while there is room.
            if now != written || self.lines.capacity() > 0 {
                (written, since) = (now, Instant::now());
            }
        }
    }

    /// From now on lines are dropped while the queue is full.
    pub(crate) fn give_up(&self) {
        self.unread.cancel();
    }

    /// The answer to a request; `None` for a line without an id.
    pub(crate) async fn answer(&self, id: Option<&RequestId>, result: Value) {
        self.line(id, "result", result).await;
    }

    /// An event of a running request.
    pub(crate) async fn event(&self, id: &RequestId, event: Value) {
        self.line(Some(id), "event", event).await;
    }

    /// Standard output of a call.
    pub(crate) async fn frame(&self, id: &RequestId, bytes: &[u8]) {
        let mut frame = format!("={} {}\n", id.json(), bytes.len()).into_bytes();
        frame.extend_from_slice(bytes);
        self.send(frame).await;
    }

    async fn line(&self, id: Option<&RequestId>, key: &str, value: Value) {
        let line = format!("{{\"id\":{},\"{key}\":{value}}}\n", id.map_or("null", RequestId::json));
        self.send(line.into_bytes()).await;
    }

    async fn send(&self, bytes: Vec<u8>) {
        tokio::select! {
            biased;
            // Without a reader the session is about to end.
            _ = self.lines.send(bytes) => {}
            () = self.unread.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use coracle::MAX_BYTES;

    use super::{InputLine, read};
    use crate::request::RequestId;

    #[tokio::test]
    async fn a_line_that_is_too_long_does_not_affect_the_next_one() {
        let longest = "x".repeat(MAX_BYTES);
        let with_id = format!("{{\"tool\":\"{longest}\",\"id\":7}}");
        let mut lines = read(Cursor::new(format!("one\n{longest}\n{longest}y\n{with_id}\ntwo\nhalf")));
        let text = |it: &str| Some(InputLine::Text(it.into()));
        assert_eq!(lines.recv().await, text("one"));
        assert!(lines.recv().await == text(&longest));
        assert_eq!(lines.recv().await, Some(InputLine::TooLong(None)));
        assert_eq!(lines.recv().await, Some(InputLine::TooLong(RequestId::from_value(&7.into()))));
        assert_eq!(lines.recv().await, text("two"));
        assert_eq!(lines.recv().await, None);
        for wrong in ["=1 x\nabc", "=1 1048577\nabc", "1 2\n=nothing"] {
            let mut lines = read(Cursor::new(format!("{wrong}\nafter\n")));
            let last = async {
                let mut last = None;
                while let Some(line) = lines.recv().await {
                    last = Some(line);
                }
                last
            };
            assert_eq!(last.await, Some(InputLine::WrongFrame), "{wrong}");
        }
    }
}
