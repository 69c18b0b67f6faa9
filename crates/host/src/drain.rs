//! Reads both outputs of a program until it ends, a limit is reached, or the caller cancels.

use std::process::ExitStatus;
use std::time::Duration;
use std::{fmt, io};

use async_trait::async_trait;
use coracle_types::{Capture, Chunk, ExecLimits, Exit, LimitKind, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// The program ended, with its exit status.
    Exited(i32),
    /// It still runs, and one of its limits is reached.
    Limit(LimitKind),
    /// It still runs, and the caller cancelled.
    Cancelled,
}

impl From<DrainOutcome> for Exit {
    fn from(outcome: DrainOutcome) -> Self {
        match outcome {
            DrainOutcome::Exited(code) => Self::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            DrainOutcome::Limit(kind) => Self::TimedOut(kind),
            DrainOutcome::Cancelled => Self::Cancelled,
        }
    }
}

/// After a program ended, how long its pipes have to be silent: a background process may hold them open.
const DRAIN_SILENCE: Duration = Duration::from_millis(200);

/// Time for a program to deliver its remaining output after its process tree was ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// One output of a program.
pub type ProgramPipe = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// A program whose outputs are read and whose end is awaited.
#[async_trait]
pub trait RunningProgram: Send {
    /// Takes its outputs, once.
    fn take_outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>);

    /// Waits for its end and returns its exit status. Safe to abandon and to repeat.
    async fn wait_for_exit(&mut self) -> io::Result<i32>;

    /// Kills it and waits for its end.
    async fn end(&mut self);
}

#[async_trait]
impl RunningProgram for Child {
    fn take_outputs(&mut self) -> (Option<ProgramPipe>, Option<ProgramPipe>) {
        let stdout = self.stdout.take().map(|it| Box::new(it) as ProgramPipe);
        (stdout, self.stderr.take().map(|it| Box::new(it) as ProgramPipe))
    }

    async fn wait_for_exit(&mut self) -> io::Result<i32> {
        self.wait().await.map(exit_of)
    }

    async fn end(&mut self) {
        let _ = self.kill().await;
    }
}

/// The exit status in the form of shells: the exit code, or 128 + the signal.
#[must_use]
pub fn exit_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Reads both outputs of a program into two bounded captures.
#[derive(Debug)]
pub struct Drain {
    stdout: PipeReader,
    stderr: PipeReader,
    live: Option<mpsc::Sender<Chunk>>,
    /// A chunk that is captured, and not yet received.
    pending: Option<Chunk>,
}

struct PipeReader {
    stream: Stream,
    source: Option<ProgramPipe>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeReader").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl PipeReader {
    fn new(stream: Stream, source: Option<ProgramPipe>, keep_bytes: usize) -> Self {
        Self { stream, source, buffer: vec![0; 64 << 10], capture: Capture::new(keep_bytes) }
    }

    /// Returns the next chunk, or `None` at the end of the pipe. Safe to abandon: an abandoned read consumes nothing.
    async fn next(&mut self) -> Option<Chunk> {
        let count = self.source.as_mut()?.read(&mut self.buffer).await.unwrap_or(0);
        if count == 0 {
            self.source = None;
            return None;
        }
        let offset = self.capture.total_bytes();
        self.capture.push(&self.buffer[..count]);
        Some(Chunk { stream: self.stream, bytes: self.buffer[..count].to_vec(), offset })
    }
}

impl Drain {
    /// Takes the outputs of a program that was just started.
    #[must_use]
    pub fn new(program: &mut dyn RunningProgram, keep_bytes: usize, live: Option<mpsc::Sender<Chunk>>) -> Self {
        let (stdout, stderr) = program.take_outputs();
        Self {
            stdout: PipeReader::new(Stream::Stdout, stdout, keep_bytes),
            stderr: PipeReader::new(Stream::Stderr, stderr, keep_bytes),
            live,
            pending: None,
        }
    }

    /// Reads until one of the outcomes. Except for [`DrainOutcome::Exited`], the program still runs: the caller ends
    /// its process tree and then calls [`finish`](Self::finish).
    pub async fn until_end(
        &mut self,
        program: &mut dyn RunningProgram,
        limits: &ExecLimits,
        cancel: &CancellationToken,
    ) -> DrainOutcome {
        let far = Instant::now() + Duration::from_secs(86_400 * 365);
        let total = limits.total.map_or(far, |it| Instant::now() + it);
        let silence_from = |now: Instant| limits.silence.map_or(far, |it| now + it);
        let mut silence = silence_from(Instant::now());
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return DrainOutcome::Cancelled,
                () = sleep_until(total) => return DrainOutcome::Limit(LimitKind::Total),
                status = program.wait_for_exit() => {
                    tokio::select! {
                        biased;
                        () = self.read_until_silent(DRAIN_SILENCE, 10 * DRAIN_SILENCE) => {}
                        // Chunks that were not received by then are only in the captures.
                        () = cancel.cancelled() => {}
                        () = sleep_until(total) => {}
                    }
                    return DrainOutcome::Exited(status.unwrap_or(-1));
                }
                read = self.read_and_forward() => match read {
                    true => silence = silence_from(Instant::now()),
                    false => return self.wait(program, (total, silence), cancel).await,
                },
                // While a chunk waits for the receiver, nothing is read, so the silence is not the program's.
                () = sleep_until(silence) => match self.pending {
                    Some(_) => silence = silence_from(Instant::now()),
                    None => return DrainOutcome::Limit(LimitKind::Silence),
                },
            }
        }
    }

    /// Waits for the program after both pipes were closed.
    async fn wait(
        &self,
        program: &mut dyn RunningProgram,
        (total, silence): (Instant, Instant),
        cancel: &CancellationToken,
    ) -> DrainOutcome {
        tokio::select! {
            biased;
            status = program.wait_for_exit() => DrainOutcome::Exited(status.unwrap_or(-1)),
            () = cancel.cancelled() => DrainOutcome::Cancelled,
            () = sleep_until(total) => DrainOutcome::Limit(LimitKind::Total),
            () = sleep_until(silence) => DrainOutcome::Limit(LimitKind::Silence),
        }
    }

    /// Reads the rest and returns both captures. Kills a program that does not end.
    pub async fn finish(mut self, program: &mut dyn RunningProgram) -> (Capture, Capture) {
        if !self.ends_soon(program).await {
            program.end().await;
        }
        self.into_captures()
    }

    /// Returns both captures, as far as they were read.
    #[must_use]
    pub fn into_captures(self) -> (Capture, Capture) {
        (self.stdout.capture, self.stderr.capture)
    }

    /// Continues reading during `work`. Output is no longer forwarded, since a caller that cancelled may not receive
    /// it.
    pub async fn while_reading<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.live = None;
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = async { while self.read_and_forward().await {} } => {}
        }
        work.await
    }

    /// Whether the program ends by itself within a moment, with its output read completely.
    pub async fn ends_soon(&mut self, program: &mut dyn RunningProgram) -> bool {
        // A slow receiver would use up the time for reading the rest.
        self.live = None;
        let ends = async {
            self.read_until_silent(DRAIN_TIMEOUT, DRAIN_TIMEOUT).await;
            program.wait_for_exit().await
        };
        timeout(DRAIN_TIMEOUT, ends).await.is_ok()
    }

    /// Reads until the pipes are silent for `patience`, or until `total` was spent waiting for them. Waiting for a slow
    /// receiver does not count.
    async fn read_until_silent(&mut self, patience: Duration, total: Duration) {
        let mut left = total;
        loop {
            self.forward_pending().await;
            let begun = Instant::now();
            if !timeout(patience.min(left), self.read()).await.unwrap_or(false) {
                return;
            }
            left = left.saturating_sub(begun.elapsed());
        }
    }

    /// Reads a chunk from either pipe and forwards it; `false` when both are at their end.
    ///
    /// Safe to abandon: a chunk that was not received is forwarded first next time.
    async fn read_and_forward(&mut self) -> bool {
        let has_read = self.pending.is_some() || self.read().await;
        self.forward_pending().await;
        has_read
    }

    async fn read(&mut self) -> bool {
        self.pending = tokio::select! {
            Some(chunk) = self.stdout.next() => Some(chunk),
            Some(chunk) = self.stderr.next() => Some(chunk),
            else => None,
        };
        self.pending.is_some()
    }

    /// Waits until the receiver accepts the pending chunk.
    async fn forward_pending(&mut self) {
        if self.pending.is_some()
            && let Some(live) = &self.live
        {
            // A closed receiver is dropped; the command continues.
            if let (Ok(room), Some(chunk)) = (live.reserve().await, self.pending.take()) {
                room.send(chunk);
            }
        }
        self.pending = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Invocation, Stdin, spawn};

    async fn ends(script: &str, limits: ExecLimits) -> (DrainOutcome, String, String) {
        let mut child = spawn(&Invocation::new("/bin/sh", ["-c", script]), Stdin::Empty).unwrap();
        let mut drain = Drain::new(&mut child, 1000, None);
        let end = drain.until_end(&mut child, &limits, &CancellationToken::new()).await;
        if end != DrainOutcome::Exited(0) {
            let _ = child.start_kill();
        }
        let (stdout, stderr) = drain.finish(&mut child).await;
        (end, stdout.text(), stderr.text())
    }

    fn silence(ms: u64) -> ExecLimits {
        ExecLimits { silence: Some(Duration::from_millis(ms)), ..ExecLimits::default() }
    }

    #[tokio::test]
    async fn output_and_exit_come_back() {
        let (end, stdout, stderr) = ends("echo a; echo b >&2; exit 3", ExecLimits::default()).await;
        assert_eq!((end, stdout.as_str(), stderr.as_str()), (DrainOutcome::Exited(3), "a\n", "b\n"));
    }

    #[tokio::test]
    async fn a_pipe_held_by_a_background_process_is_not_waited_for() {
        let begun = Instant::now();
        let (end, stdout, _) = ends("sleep 20 & echo up", ExecLimits::default()).await;
        assert_eq!((end, stdout.as_str()), (DrainOutcome::Exited(0), "up\n"));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_slow_receiver_of_an_ended_program_gets_all_of_its_output() {
        let mut child = spawn(&Invocation::new("/bin/sh", ["-c", "head -c 400000 /dev/zero"]), Stdin::Empty).unwrap();
        let (live, mut received) = mpsc::channel(1);
        let mut drain = Drain::new(&mut child, 1_000_000, Some(live));
        let reader = tokio::spawn(async move {
            let mut bytes = 0;
            while let Some(chunk) = received.recv().await {
                bytes += chunk.bytes.len();
                tokio::time::sleep(2 * DRAIN_SILENCE).await;
            }
            bytes
        });
        let end = drain.until_end(&mut child, &ExecLimits::default(), &CancellationToken::new()).await;
        let (stdout, _) = drain.finish(&mut child).await;
        assert_eq!((end, stdout.total_bytes()), (DrainOutcome::Exited(0), 400_000));
        assert_eq!(reader.await.unwrap(), 400_000);
    }

    #[tokio::test]
    async fn only_a_silent_program_reaches_the_silence_limit() {
        let talks = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done";
        assert_eq!(ends(talks, silence(2000)).await.0, DrainOutcome::Exited(0));
        let (end, stdout, _) = ends("echo once; sleep 20", silence(300)).await;
        assert_eq!((end, stdout.as_str()), (DrainOutcome::Limit(LimitKind::Silence), "once\n"));
    }

    #[tokio::test]
    async fn a_slow_receiver_does_not_count_as_silence() {
        let script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.05; done; exec sleep 600";
        let mut child = spawn(&Invocation::new("/bin/sh", ["-c", script]), Stdin::Empty).unwrap();
        let (sender, mut receiver) = mpsc::channel(1);
        let mut drain = Drain::new(&mut child, 1000, Some(sender));
        let (limits, cancel) = (silence(300), CancellationToken::new());
        let slow = async {
            // Much longer than the limit.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let mut lines = String::new();
            while let Some(chunk) = receiver.recv().await {
                lines += &String::from_utf8(chunk.bytes).unwrap();
                if lines.contains('9') {
                    break;
                }
            }
            lines
        };
        let (end, lines) = tokio::join!(drain.until_end(&mut child, &limits, &cancel), slow);
        // It printed everything, and was silent only then.
        assert_eq!((end, lines.as_str()), (DrainOutcome::Limit(LimitKind::Silence), "1\n2\n3\n4\n5\n6\n7\n8\n9\n"));
        child.start_kill().unwrap();
    }

    #[tokio::test]
    async fn limits_apply_to_a_program_that_closed_its_outputs() {
        let limits = ExecLimits { total: Some(Duration::from_millis(100)), ..ExecLimits::default() };
        assert_eq!(ends("exec >&- 2>&-; sleep 20", limits).await.0, DrainOutcome::Limit(LimitKind::Total));
    }

    #[tokio::test]
    async fn a_slow_receiver_cannot_delay_the_limit() {
        let mut child = spawn(&Invocation::new("/bin/sh", ["-c", "yes"]), Stdin::Empty).unwrap();
        let (sender, _receiver) = mpsc::channel(1);
        let mut drain = Drain::new(&mut child, 1000, Some(sender));
        let limits = ExecLimits { total: Some(Duration::from_millis(200)), ..ExecLimits::default() };
        let end = drain.until_end(&mut child, &limits, &CancellationToken::new()).await;
        assert_eq!(end, DrainOutcome::Limit(LimitKind::Total));
        child.start_kill().unwrap();
    }
}
