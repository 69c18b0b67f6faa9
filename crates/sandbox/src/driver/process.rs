//! A worker as a command of a guest.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{
    Chunk, Command, ContainerPath, Error, Exec, ExecLimits, ExecOutput, Exit, Ids, Input, Link, Secret, Stream,
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
pub(super) const WAITING: usize = 16;

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
    /// What is told of the network in the system text: `none`, or which hosts are reached by the proxy.
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
            // All of it is read here, so that nobody asks for it later.
            passes_on: Some(usize::MAX),
            ..Exec::new(Command::Argv(words), self.user, ContainerPath::root())
        }
    }
}

/// A worker that serves, in the container at the other end of a link.
pub struct LinkWorker {
    /// None when no request can be sent any more.
    stdin: Option<DuplexStream>,
    output: mpsc::Receiver<Chunk>,
    lines: Lines,
    ended: Option<JoinHandle<coracle_runtime::Result<ExecOutput>>>,
    cancel: CancellationToken,
    /// It said something that it must not, or is gone.
    broken: bool,
}

impl fmt::Debug for LinkWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkWorker").field("alive", &self.alive()).finish_non_exhaustive()
    }
}

impl Drop for LinkWorker {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl LinkWorker {
    /// Starts it. What hinders it is told by the first [`recv`](WorkerProcess::recv).
    #[must_use]
    pub fn spawn(link: &Link, start: WorkerStart) -> Self {
        let (stdin, theirs) = tokio::io::duplex(PIPE);
        let (live, output) = mpsc::channel(WAITING);
        let cancel = CancellationToken::new();
        let exec = Exec {
            stdin: Some(Input::Stream(Box::new(theirs))),
            live: Some(live),
            cancel: cancel.clone(),
            ..start.exec(vec!["serve".to_owned()])
        };
        let link = link.clone();
        let ended = Some(tokio::spawn(async move { link.exec(exec).await }));
        Self { stdin: Some(stdin), output, lines: Lines::default(), ended, cancel, broken: false }
    }

    async fn over(&mut self) -> Result<Option<ResponseFrame>> {
        let within = self.lines.is_within();
        let Some(ended) = self.ended.take() else { return Ok(None) };
        self.broken = true;
        let output = ended.await.map_err(Failure::internal)?.map_err(|err| lost(&err))?;
        if output.exit == Exit::Code(0) && !within { Ok(None) } else { Err(died(&output)) }
    }
}

/// Keeps the next piece of what a worker says. False when it says nothing any more.
pub(super) async fn hear(output: &mut mpsc::Receiver<Chunk>, lines: &mut Lines) -> bool {
    match output.recv().await {
        Some(Chunk { stream: Stream::Stdout, bytes, .. }) => lines.push(&bytes),
        Some(Chunk { stream: Stream::Stderr, bytes, .. }) => {
            tracing::debug!(target: "coracle::worker", "{}", String::from_utf8_lossy(&bytes).escape_debug());
        }
        None => return false,
    }
    true
}

/// Waits until a worker that was told to end is gone, however it ended.
pub(super) async fn gone(ended: JoinHandle<coracle_runtime::Result<ExecOutput>>) -> Result<()> {
    match timeout(GONE, ended).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new(Code::SandboxLost, "The worker is not known to be gone.")),
    }
}

/// Why there is no end to be told.
pub(super) fn lost(err: &Error) -> Failure {
    match err {
        Error::GuestLost { .. } | Error::NotRunning { .. } | Error::NoSuchContainer(_) => {
            Failure::new(Code::SandboxLost, format!("The sandbox was lost: {err}."))
        }
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
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    let frame = ResponseFrame::parse(line);
                    self.broken |= frame.is_err();
                    return frame.map(Some);
                }
                Ok(None) => {}
                Err(failure) => {
                    self.broken = true;
                    return Err(failure);
                }
            }
            if !hear(&mut self.output, &mut self.lines).await {
                return self.over().await;
            }
        }
    }

    async fn close(&mut self) -> Result<()> {
        self.stdin = None;
        self.broken = true;
        let Some(mut ended) = self.ended.take() else { return Ok(()) };
        // Nobody reads what it still says, and it must not wait for that.
        self.output.close();
        if timeout(PATIENCE, &mut ended).await.is_ok() {
            return Ok(());
        }
        self.cancel.cancel();
        gone(ended).await
    }

    fn alive(&self) -> bool {
        !self.broken && self.stdin.is_some() && self.ended.as_ref().is_some_and(|it| !it.is_finished())
    }
}
