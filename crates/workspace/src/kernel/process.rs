//! The interpreter of a kernel.

use std::time::Duration;

use coracle_client::{InteractiveCommand, start_interactive};
use coracle_types::{Capture, Chunk, Command, ContainerPath, Error, Exec, ExecOutput, Result, Stream, random_hex};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::frames::{FrameReader, KernelFrame};
use super::reply::{DriverReply, KernelReply};
use crate::SessionHandle;
use crate::output::KEEP;

/// The program that runs code and keeps its variables.
const DRIVER: &str = include_str!("driver.py");

/// It is ready by then, or cannot be used.
const STARTING: Duration = Duration::from_secs(20);

/// A run that is interrupted ends within that time, or its interpreter does.
const INTERRUPTING: Duration = Duration::from_secs(3);

/// The rest of the errors follows the reply at once.
const FOLLOWING: Duration = Duration::from_millis(500);

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_millis(500);

/// An interpreter that waits for code. Dropped, it ends with all that it started.
#[derive(Debug)]
pub(crate) struct Kernel {
    command: InteractiveCommand,
    streams: [FrameReader; 2],
    /// The container that it runs in.
    generation: u64,
    runs: u64,
}

/// A run's code and limits.
pub(crate) struct RunRequest<'a> {
    pub(crate) code: &'a str,
    pub(crate) limit: Duration,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) live: Option<&'a mpsc::Sender<Chunk>>,
}

/// Why a run was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    Time,
    Caller,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct KernelRun {
    /// As the kernel tells it; without one the kernel is gone.
    pub(crate) reply: Option<KernelReply>,
    pub(crate) interruption: Option<Interruption>,
    /// How the interpreter ended, if it did by itself.
    pub(crate) end: Option<ExecOutput>,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) duration: Duration,
}

impl Kernel {
    /// Starts an interpreter, and waits until it takes code. Of one that does not, the run has no reply.
    pub(crate) async fn start(session: &SessionHandle, workdir: ContainerPath) -> Result<(Self, KernelRun)> {
        let mark = random_hex::<16>();
        let words = ["python3", "-c", DRIVER, &mark].map(str::to_owned).to_vec();
        let mut exec = Exec::new(Command::Argv(words), session.user, workdir);
        exec.env = session.env.clone();
        exec.limits.grace = GRACE;
        let command = start_interactive(&session.link, exec);
        let streams = [FrameReader::new(&mark), FrameReader::new(&mark)];
        let mut kernel = Self { command, streams, generation: session.generation, runs: 0 };
        let cancel = CancellationToken::new();
        let request = RunRequest { code: "", limit: STARTING, cancel: &cancel, live: None };
        let started = kernel.follow(&request, |it| it.ready.is_some()).await?;
        Ok((kernel, started))
    }

    /// Whether it is in that container and waits for code.
    pub(crate) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.command.end.is_finished()
    }

    /// Runs that it did.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// Runs code. At its limit, or when the caller withdraws, it is interrupted. Without a reply the kernel is of no more use.
    pub(crate) async fn run(&mut self, request: RunRequest<'_>) -> Result<KernelRun> {
        self.runs += 1;
        let number = self.runs;
        self.put(&json!({ "run": number, "code": request.code })).await;
        self.follow(&request, |it| it.run == Some(number)).await
    }

    /// A kernel that does not take it is ended at the limit.
    async fn put(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let put = self.command.input.write_all(line.as_bytes());
        if !matches!(timeout(INTERRUPTING, put).await, Ok(Ok(()))) {
            tracing::debug!("a kernel does not take a request");
        }
    }

    async fn follow(
        &mut self,
        request: &RunRequest<'_>,
        is_awaited: impl Fn(&DriverReply) -> bool,
    ) -> Result<KernelRun> {
        let begun = Instant::now();
        let (mut until, mut interruption) = (begun + request.limit, None);
        let mut printed = PrintedOutput::new(request.live);
        let reply = loop {
            let is_running = interruption.is_none();
            tokio::select! {
                biased;
                () = request.cancel.cancelled(), if is_running => interruption = Some(Interruption::Caller),
                () = sleep_until(until) => match interruption {
                    None => interruption = Some(Interruption::Time),
                    Some(_) => break None,
                },
                chunk = self.command.output.recv() => {
                    let Some(chunk) = chunk else { break None };
                    match printed.take(&mut self.streams, chunk, until).await {
                        Some(reply) if is_awaited(&reply) => break Some(reply),
                        _ => continue,
                    }
                }
            }
            if is_running {
                until = Instant::now() + INTERRUPTING;
                self.put(&json!({ "interrupt": self.runs })).await;
            }
        };
        let is_over = reply.is_none() && self.command.output.is_closed();
        let end = if is_over { Some((&mut self.command.end).await.map_err(lost)??) } else { None };
        if reply.as_ref().is_some_and(|it| it.run.is_some()) {
            self.read_errors(&mut printed).await;
        }
        let [stdout, stderr] = printed.finish(&mut self.streams, reply.is_none());
        let reply = reply.map(DriverReply::into_run);
        Ok(KernelRun { reply, interruption, end, stdout, stderr, duration: begun.elapsed() })
    }

    async fn read_errors(&mut self, printed: &mut PrintedOutput<'_>) {
        let until = Instant::now() + FOLLOWING;
        while !printed.has_all_errors
            && let Ok(Some(chunk)) = timeout_at(until, self.command.output.recv()).await
        {
            printed.take(&mut self.streams, chunk, until).await;
        }
    }
}

fn lost(err: impl std::fmt::Display) -> Error {
    Error::GuestLost { reason: err.to_string(), output: None }
}

/// What a run has printed so far.
struct PrintedOutput<'a> {
    captures: [Capture; 2],
    offsets: [u64; 2],
    live: Option<&'a mpsc::Sender<Chunk>>,
    has_all_errors: bool,
}

impl<'a> PrintedOutput<'a> {
    fn new(live: Option<&'a mpsc::Sender<Chunk>>) -> Self {
        Self { captures: [Capture::new(KEEP), Capture::new(KEEP)], offsets: [0; 2], live, has_all_errors: false }
    }

    async fn take(&mut self, streams: &mut [FrameReader; 2], chunk: Chunk, until: Instant) -> Option<DriverReply> {
        let stream = chunk.stream;
        let mut reply = None;
        for frame in streams[stream as usize].push(&chunk.bytes) {
            match frame {
                KernelFrame::Printed(bytes) => self.add(stream, bytes, until).await,
                KernelFrame::Reply(_) if stream == Stream::Stderr => self.has_all_errors = true,
                KernelFrame::Reply(bytes) => reply = DriverReply::parse(&bytes),
            }
        }
        reply
    }

    async fn add(&mut self, stream: Stream, bytes: Vec<u8>, until: Instant) {
        let (at, length) = (stream as usize, bytes.len() as u64);
        self.captures[at].push(&bytes);
        if let Some(live) = self.live {
            let piece = Chunk { stream, bytes, offset: self.offsets[at] };
            // A slow listener must not hold up the limit.
            let _ = timeout_at(until, live.send(piece)).await;
        }
        self.offsets[at] += length;
    }

    fn finish(mut self, streams: &mut [FrameReader; 2], is_over: bool) -> [Capture; 2] {
        for (capture, stream) in self.captures.iter_mut().zip(streams).filter(|_| is_over) {
            capture.push(&stream.end());
        }
        self.captures
    }
}
