//! Reads the output of a running command: retains its end, and reports progress once a second.

use std::time::Duration;

use coracle_types::{Chunk, is_deceptive};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::installed_packages::InstalledPackages;
use crate::Progress;

/// Maximum size of the output in a report.
const MAX_OUTPUT: usize = 4096;

/// Longer lines are truncated.
const LINE: usize = 160;

/// Time between two reports.
const BETWEEN: Duration = Duration::from_secs(1);

/// The kind of progress to report.
#[derive(Debug)]
pub(super) enum Shown {
    /// The number of installed packages.
    Packages(InstalledPackages),
    /// The last line.
    LastLine,
}

pub(super) struct OutputTail<'a> {
    progress: &'a Progress<'a>,
    /// The current step.
    step: &'a str,
    shows: Shown,
    output: Vec<u8>,
    /// The incomplete last line.
    line: Vec<u8>,
    last: String,
    shown: Instant,
}

impl<'a> OutputTail<'a> {
    pub(super) fn new(progress: &'a Progress<'a>, step: &'a str, shows: Shown) -> Self {
        let (output, line) = (Vec::new(), Vec::new());
        Self { progress, step, shows, output, line, last: String::new(), shown: Instant::now() }
    }

    /// Reads until the command ends. Returns the end of both streams in order of arrival.
    pub(super) async fn read(mut self, mut from: mpsc::Receiver<Chunk>) -> String {
        while let Some(chunk) = from.recv().await {
            self.take(&chunk.bytes);
        }
        let cut = self.output.len().saturating_sub(MAX_OUTPUT);
        String::from_utf8_lossy(&self.output[cut..]).trim().to_owned()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
        if self.output.len() > 2 * MAX_OUTPUT {
            self.output.drain(..self.output.len() - MAX_OUTPUT);
        }
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let room = LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") || part.ends_with(b"\r") {
                self.take_line();
            }
        }
        if self.shown.elapsed() >= BETWEEN
            && let Some(text) = self.text()
        {
            (self.progress)(&format!("{}: {text}", self.step));
            self.shown = Instant::now();
        }
    }

    fn take_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        match &mut self.shows {
            Shown::Packages(packages) => packages.take(&line),
            Shown::LastLine if line.trim().is_empty() => {}
            Shown::LastLine => self.last = line.trim().chars().filter(|it| !is_deceptive(*it)).collect(),
        }
    }

    fn text(&mut self) -> Option<String> {
        match &self.shows {
            Shown::Packages(packages) => packages.text(),
            Shown::LastLine => Some(std::mem::take(&mut self.last)).filter(|last| !last.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use coracle_types::Stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_complete_line_is_shown_once_a_second_and_the_end_is_retained() {
        let messages = Mutex::new(Vec::new());
        let report = |it: &str| messages.lock().unwrap().push(it.to_owned());
        let (to, from) = mpsc::channel(1);
        let print = async move {
            for (text, wait_ms) in [("a\nb", 1100), ("c\n\n", 10), ("early\n", 1100), ("x\x1b[1m\rno end", 0)] {
                let (stream, bytes) = (Stream::Stdout, text.as_bytes().to_vec());
                to.send(Chunk { stream, bytes, offset: 0 }).await.unwrap();
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
        };
        let (output, ()) = tokio::join!(OutputTail::new(&report, "step 1 of 2", Shown::LastLine).read(from), print);
        assert_eq!(*messages.lock().unwrap(), ["step 1 of 2: bc", "step 1 of 2: x[1m"]);
        assert_eq!(output, "a\nbc\n\nearly\nx\x1b[1m\rno end");
    }

    #[test]
    fn the_memory_for_a_flood_of_output_is_bounded() {
        let mut watched = OutputTail::new(&|_| {}, "", Shown::LastLine);
        for _ in 0..1000 {
            watched.take(&[b'x'; 1000]);
        }
        assert!(watched.output.len() <= 2 * MAX_OUTPUT && watched.line.len() <= LINE);
    }
}
