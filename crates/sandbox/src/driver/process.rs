//! A worker as a command of a guest.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_types::{
    Chunk, Command, ContainerPath, Error, Exec, ExecLimits, ExecOutput, Exit, Ids, Input, Secret, Stream,
};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::protocol::{self, Lines, ResponseFrame, WorkerRequest};
use crate::provider::WorkerProcess;
use crate::{Code, Failure, Result};

/// Bytes of a request on their way.
const PIPE: usize = 256 << 10;

/// Pieces of output that wait to be looked at.
const WAITING: usize = 16;

/// Bytes of what a worker logs that a failure tells, from its end.
const LOG: usize = 2 << 10;

/// How long a worker may take to end by itself, and after TERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// After that time a worker that got KILL is not waited for.
const GONE: Duration = Duration::from_secs(15);

/// How a worker is started.
#[derive(Debug)]
pub struct WorkerStart {
    /// The program inside.
    pub program: ContainerPath,
    /// As whom.
    pub user: Ids,
    /// `LLM_PROXY_URL`: where the way to a model begins, on the sandbox's own loopback.
    pub proxy_url: String,
    /// How the system prompt describes the network: `none`, or which hosts are reached by the proxy.
    pub network: String,
    /// The `llm` token.
    pub token: Secret,
}

impl WorkerStart {
    /// Where the guest places the program.
    pub const PROGRAM: &str = "/.coracle/worker";

    /// The socket at which the guest serves it.
    pub const SOCKET: &str = "/.coracle/run/worker.sock";

    /// It with these words behind its name.
    pub(super) fn exec(self, words: Vec<String>) -> Exec {
        let words = std::iter::once(self.program.to_string()).chain(words).collect();
        let env = [
            ("LLM_PROXY_URL", self.proxy_url),
            ("CORACLE_GUEST_SOCKET", Self::SOCKET.to_owned()),
            ("CORACLE_NETWORK", self.network),
            ("HOME", "/nonexistent".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        Exec {
            env: env.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>(),
            bare: true,
            secret: Some(self.token),
            limits: ExecLimits { grace: PATIENCE, ..ExecLimits::default() },
            keep_bytes: LOG,
            // All of it is read here, so that no later read is needed.
            passes_on: Some(usize::MAX),
            ..Exec::new(Command::Argv(words), self.user, ContainerPath::root())
        }
    }
}

/// The program of a worker, and what it prints. It ends when this is dropped.
pub(super) struct WorkerProgram {
    output: mpsc::Receiver<Chunk>,
    lines: Lines,
    ended: Option<JoinHandle<coracle_types::Result<ExecOutput>>>,
    cancel: CancellationToken,
}

impl Drop for WorkerProgram {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl WorkerProgram {
    pub(super) fn spawn(link: &Link, exec: Exec) -> Self {
        let (live, output) = mpsc::channel(WAITING);
        let cancel = CancellationToken::new();
        let exec = Exec { live: Some(live), cancel: cancel.clone(), ..exec };
        let link = link.clone();
        let ended = Some(tokio::spawn(async move { link.exec(exec).await }));
        Self { output, lines: Lines::default(), ended, cancel }
    }

    /// The next line that it prints; `None` when it prints nothing any more.
    pub(super) async fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(Some(line.to_vec()));
            }
            match self.output.recv().await {
                Some(Chunk { stream: Stream::Stdout, bytes, .. }) => self.lines.push(&bytes),
                Some(Chunk { stream: Stream::Stderr, bytes, .. }) => {
                    tracing::debug!(target: "coracle::worker", "{}", String::from_utf8_lossy(&bytes).escape_debug());
                }
                None => return Ok(None),
            }
        }
    }

    /// How it ended, the first time; a line without an end is `worker_died`.
    pub(super) async fn wait(&mut self) -> Result<Option<ExecOutput>> {
        let Some(ended) = self.ended.take() else { return Ok(None) };
        let output = ended.await.map_err(Failure::internal)?.map_err(|err| lost(&err))?;
        if self.lines.is_within() { Err(died(&output)) } else { Ok(Some(output)) }
    }

    /// Ends it by TERM.
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits so long for its end, then ends it by TERM, and waits until it is gone.
    pub(super) async fn close(&mut self, patience: Duration) -> Result<()> {
        // Further output is discarded, so that it does not block on a full pipe.
        self.output.close();
        let Some(mut ended) = self.ended.take() else { return Ok(()) };
        if timeout(patience, &mut ended).await.is_ok() {
            return Ok(());
        }
        self.cancel.cancel();
        let gone = timeout(GONE, ended).await;
        gone.map(drop).map_err(|_| Failure::new(Code::SandboxLost, "The worker is not known to be gone."))
    }

    fn runs(&self) -> bool {
        self.ended.as_ref().is_some_and(|it| !it.is_finished())
    }
}

/// A worker that serves, in the container at the other end of a link.
pub struct LinkWorker {
    /// None when no request can be sent any more.
    stdin: Option<DuplexStream>,
    program: WorkerProgram,
    /// It sent an invalid message, or has ended.
    broken: bool,
}

impl fmt::Debug for LinkWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkWorker").field("alive", &self.alive()).finish_non_exhaustive()
    }
}

impl LinkWorker {
    /// Starts it. An error is reported by the first [`recv`](WorkerProcess::recv).
    #[must_use]
    pub fn spawn(link: &Link, start: WorkerStart) -> Self {
        let (stdin, theirs) = tokio::io::duplex(PIPE);
        let exec = Exec { stdin: Some(Input::Stream(Box::new(theirs))), ..start.exec(vec!["serve".to_owned()]) };
        Self { stdin: Some(stdin), program: WorkerProgram::spawn(link, exec), broken: false }
    }

    async fn next(&mut self) -> Result<Option<ResponseFrame>> {
        if let Some(line) = self.program.next_line().await? {
            return ResponseFrame::parse(&line).map(Some);
        }
        self.broken = true;
        match self.program.wait().await? {
            Some(output) if output.exit != Exit::Code(0) => Err(died(&output)),
            _ => Ok(None),
        }
    }
}

/// Why the run has no result.
fn lost(err: &Error) -> Failure {
    match err {
        Error::GuestLost { .. }
        | Error::NotRunning { .. }
        | Error::LifetimeOver { .. }
        | Error::NodeLost { .. }
        | Error::NoSuchContainer(_) => Failure::new(Code::SandboxLost, format!("The sandbox was lost: {err}.")),
        err => Failure::new(Code::WorkerDied, format!("The worker cannot be run: {err}.")),
    }
}

pub(super) fn died(output: &ExecOutput) -> Failure {
    let how = match output.exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::TimedOut(_) | Exit::Cancelled | Exit::Running(_) => "it was ended".to_owned(),
    };
    let log = String::from_utf8_lossy(&output.stderr.tail()).into_owned();
    Failure::new(Code::WorkerDied, format!("The worker ended before its run did: {how}.")).detail("log", log)
}

#[async_trait]
impl WorkerProcess for LinkWorker {
    async fn send(&mut self, request: &WorkerRequest) -> Result<()> {
        let bytes = protocol::encode(request)?;
        let gone = || Failure::new(Code::WorkerDied, "The worker takes no request any more.");
        let stdin = self.stdin.as_mut().ok_or_else(gone)?;
        let sent = stdin.write_all(&bytes).await;
        if sent.is_err() {
            // Half a request is none that anything could follow.
            self.stdin = None;
        }
        sent.map_err(|_| gone())
    }

    async fn recv(&mut self) -> Result<Option<ResponseFrame>> {
        let next = self.next().await;
        self.broken |= next.is_err();
        next
    }

    async fn close(&mut self) -> Result<()> {
        self.stdin = None;
        self.broken = true;
        self.program.close(PATIENCE).await
    }

    fn alive(&self) -> bool {
        !self.broken && self.stdin.is_some() && self.program.runs()
    }
}
