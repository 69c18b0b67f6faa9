//! The output of a running command: its end is kept, and its last line is reported once a second.

use std::time::Duration;

use coracle_runtime::{Chunk, is_deceptive};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Progress;

/// Bytes of output in a report.
const KEPT: usize = 4096;

/// Longer lines are cut.
const LINE: usize = 160;

/// Time between two reported lines.
const BETWEEN: Duration = Duration::from_secs(1);

pub(super) struct OutputTail<'a> {
    progress: &'a Progress<'a>,
    kept: Vec<u8>,
    /// The incomplete last line.
    line: Vec<u8>,
    shown: Instant,
}

impl<'a> OutputTail<'a> {
    pub(super) fn new(progress: &'a Progress<'a>) -> Self {
        Self { progress, kept: Vec::new(), line: Vec::new(), shown: Instant::now() }
    }

    /// Reads until the command ends; returns the end of both streams in order of arrival.
    pub(super) async fn read(mut self, mut from: mpsc::Receiver<Chunk>) -> String {
        while let Some(chunk) = from.recv().await {
            self.take(&chunk.bytes);
        }
        let cut = self.kept.len().saturating_sub(KEPT);
        String::from_utf8_lossy(&self.kept[cut..]).trim().to_owned()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > 2 * KEPT {
            self.kept.drain(..self.kept.len() - KEPT);
        }
        let last = bytes.iter().rposition(|it| matches!(it, b'\n' | b'\r'));
        let Some(last) = last else {
            self.line.extend_from_slice(bytes);
            self.line.truncate(LINE);
            return;
        };
        self.line.extend_from_slice(&bytes[..last]);
        let whole = std::mem::replace(&mut self.line, bytes[last + 1..].to_vec());
        self.line.truncate(LINE);
        if self.shown.elapsed() < BETWEEN {
            return;
        }
        let line = whole.rsplit(|it| matches!(it, b'\n' | b'\r')).find(|it| !it.trim_ascii().is_empty());
        if let Some(line) = line {
            let text = String::from_utf8_lossy(&line[..line.len().min(LINE)]);
            let plain: String = text.trim().chars().filter(|it| !is_deceptive(*it)).collect();
            (self.progress)(&plain);
            self.shown = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use coracle_runtime::Stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_whole_line_is_shown_once_a_second_and_the_end_is_kept() {
        let said = Mutex::new(Vec::new());
        let tell = |it: &str| said.lock().unwrap().push(it.to_owned());
        let (to, from) = mpsc::channel(1);
        let print = async move {
            for (text, wait_ms) in [("a\nb", 1100), ("c\n\n", 10), ("early\n", 1100), ("x\x1b[1m\rno end", 0)] {
                let (stream, bytes) = (Stream::Stdout, text.as_bytes().to_vec());
                to.send(Chunk { stream, bytes, offset: 0 }).await.unwrap();
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
        };
        let (kept, ()) = tokio::join!(OutputTail::new(&tell).read(from), print);
        assert_eq!(*said.lock().unwrap(), ["bc", "x[1m"]);
        assert_eq!(kept, "a\nbc\n\nearly\nx\x1b[1m\rno end");
    }

    #[test]
    fn a_flood_costs_no_more_than_its_end() {
        let mut watched = OutputTail::new(&|_| {});
        for _ in 0..1000 {
            watched.take(&[b'x'; 1000]);
        }
        assert!(watched.kept.len() <= 2 * KEPT && watched.line.len() <= LINE);
    }
}
