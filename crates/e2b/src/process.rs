//! Processes of a sandbox: started, listed, connected to, typed into and ended.
//!
//! **Invariant:** a process goes on when a client that reads its output leaves, and ends at its own time limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle::{PersonSession, audited};
use coracle_client::{InteractiveCommand, start_interactive};
use coracle_context::{Code, Context, Failure};
use coracle_types::{Chunk, Command, Error, ExecOutput, Exit, JobId, Stream, TerminalSize};
use futures_util::future::join_all;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

use crate::filesystem::{at, is_missing, resolved};
use crate::rpc::{self, RpcCode, RpcError};

/// How the audit trail names calls that come this way.
pub(crate) const WAY: &str = "e2b";

/// Messages that a client has not read.
const MESSAGES: usize = 64;

/// Clients that read the events of one process.
const READERS: usize = 16;

/// A client that reads nothing for this long gets no more output: it would hold back the process.
const STALLED: Duration = Duration::from_secs(30);

/// Time between TERM and KILL for a process that gets `SIGTERM`.
const GRACE: Duration = Duration::from_secs(10);

/// The shell that SDKs name. A container may have another one.
const BASH: &str = "/bin/bash";

/// A process to start.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StartRequest {
    process: ProcessConfig,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct ProcessConfig {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Pty {
    size: Option<PtySize>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PtySize {
    #[serde(default)]
    cols: u32,
    #[serde(default)]
    rows: u32,
}

impl Pty {
    fn size(self) -> TerminalSize {
        let or = |given: u32, usual: u16| u16::try_from(given).ok().filter(|it| *it > 0).unwrap_or(usual);
        let size = self.size.unwrap_or(PtySize { cols: 0, rows: 0 });
        TerminalSize { cols: or(size.cols, 80), rows: or(size.rows, 24) }
    }
}

/// Names a process.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProcessSelector {
    pid: Option<u32>,
    tag: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OfProcess {
    process: ProcessSelector,
    pty: Option<Pty>,
    input: Option<ProcessInput>,
    signal: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ProcessInput {
    stdin: Option<String>,
    pty: Option<String>,
}

/// The processes that run in a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<u32, Arc<Running>>>);

/// A running process.
#[derive(Debug)]
struct Running {
    pid: u32,
    job: JobId,
    request: StartRequest,
    input: tokio::sync::Mutex<Option<DuplexStream>>,
    size: Option<watch::Sender<TerminalSize>>,
    /// Those who read its events; `None` when it has ended.
    readers: Mutex<Option<Vec<mpsc::Sender<Bytes>>>>,
}

impl Processes {
    /// Starts a process. Its events arrive in the response, as long as the client reads them.
    pub(crate) async fn start(
        self: &Arc<Self>,
        cx: &Context,
        session: &PersonSession,
        request: StartRequest,
        limits: StreamLimits,
    ) -> Result<mpsc::Receiver<Bytes>, RpcError> {
        let argv = argv(session, &request.process).await;
        let what = json!({ "channel": "process", "command": argv, "cwd": request.process.cwd });
        let mut exec = session.exec(Command::Argv(argv));
        exec.workdir = resolved(session, request.process.cwd.as_deref().unwrap_or_default())?;
        exec.env.extend(request.process.envs.clone());
        exec.limits.total = limits.total;
        let job = JobId::random();
        exec.job = Some(job.clone());
        let (on_start, started) = oneshot::channel();
        exec.started = Some(on_start);
        let size = request.pty.map(|it| {
            let (sender, receiver) = watch::channel(it.size());
            exec.terminal = Some(receiver);
            sender
        });
        let intent = audited::intent(cx, WAY, session, what).await?;
        let InteractiveCommand { input, output, end, stop, .. } = start_interactive(&session.link, exec);
        let Ok(pid) = started.await else {
            let failed = match result_of(end).await {
                Ok(output) => Failure::new(Code::FileNotFound, output.stderr.text()),
                // Only the work directory is looked up before the program is executed.
                Err(failure) if is_missing(failure.code) => Failure::new(Code::InvalidCwd, failure.message.clone()),
                Err(failure) => failure,
            };
            intent.finish_program(Err(&failed)).await;
            return Err(failed.into());
        };
        // A client that leaves does not end it.
        let _ = stop.disarm();
        let (sender, events) = mpsc::channel(MESSAGES);
        let _ = sender.try_send(event(&json!({ "start": { "pid": pid } })));
        let has_input = request.pty.is_some() || request.stdin.unwrap_or(true);
        let running = Arc::new(Running {
            pid,
            job,
            request,
            input: tokio::sync::Mutex::new(has_input.then_some(input)),
            size,
            readers: Mutex::new(Some(vec![sender])),
        });
        self.lock().insert(pid, running.clone());
        if let Some(ping) = limits.keepalive {
            tokio::spawn(keep_alive(Arc::downgrade(&running), ping));
        }
        let all = self.clone();
        tokio::spawn(async move {
            running.pass_on(output).await;
            let ended = result_of(end).await;
            all.forget(&running);
            let code = ended.as_ref().map(|output| match output.exit {
                Exit::Code(code) => Some(code),
                _ => None,
            });
            intent.finish_program(code).await;
            running.end(ended.map_err(RpcError::from)).await;
        });
        Ok(events)
    }

    /// The events of a process from now on.
    pub(crate) fn connect(&self, selector: &OfProcess) -> Result<mpsc::Receiver<Bytes>, RpcError> {
        let running = self.find(&selector.process)?;
        let (sender, events) = mpsc::channel(MESSAGES);
        let _ = sender.try_send(event(&json!({ "start": { "pid": running.pid } })));
        match &mut *running.readers() {
            None => Err(no_process(&selector.process)),
            Some(readers) => {
                readers.retain(|it| !it.is_closed());
                if readers.len() >= READERS {
                    let message = format!("{READERS} clients read the process already");
                    return Err(RpcError::new(RpcCode::ResourceExhausted, message));
                }
                readers.push(sender);
                Ok(events)
            }
        }
    }

    /// Lists those that run.
    pub(crate) fn list(&self) -> Value {
        let all = self.lock();
        let info = |it: &Arc<Running>| {
            let ProcessConfig { cmd, args, envs, cwd } = &it.request.process;
            let mut config = json!({ "cmd": cmd, "args": args, "envs": envs });
            if let Some(cwd) = cwd {
                config["cwd"] = json!(cwd);
            }
            let mut info = json!({ "config": config, "pid": it.pid });
            if let Some(tag) = &it.request.tag {
                info["tag"] = json!(tag);
            }
            info
        };
        json!({ "processes": all.values().map(info).collect::<Vec<_>>() })
    }

    /// Types into a process.
    pub(crate) async fn send_input(&self, request: &OfProcess) -> Result<Value, RpcError> {
        let running = self.find(&request.process)?;
        let input = request.input.as_ref().and_then(|it| it.stdin.as_deref().or(it.pty.as_deref()));
        let bytes = STANDARD.decode(input.unwrap_or_default()).map_err(|err| RpcError::invalid(err.to_string()))?;
        let mut open = running.input.lock().await;
        let closed =
            || RpcError::new(RpcCode::FailedPrecondition, "the process has no standard input, or it was closed");
        let input = open.as_mut().ok_or_else(closed)?;
        let written = timeout(STALLED, input.write_all(&bytes)).await;
        let slow = || RpcError::new(RpcCode::DeadlineExceeded, "the process reads no input");
        written.map_err(|_| slow())?.map_err(|_| closed())?;
        Ok(json!({}))
    }

    /// Ends the input of a process.
    pub(crate) async fn close_stdin(&self, request: &OfProcess) -> Result<Value, RpcError> {
        let running = self.find(&request.process)?;
        if running.size.is_some() {
            return Err(RpcError::new(RpcCode::FailedPrecondition, "a terminal gets Ctrl-D instead"));
        }
        running.input.lock().await.take();
        Ok(json!({}))
    }

    /// Changes the size of a terminal.
    pub(crate) fn update(&self, request: &OfProcess) -> Result<Value, RpcError> {
        let running = self.find(&request.process)?;
        let Some(pty) = request.pty else { return Ok(json!({})) };
        let none = || RpcError::new(RpcCode::FailedPrecondition, "the process has no terminal");
        running.size.as_ref().ok_or_else(none)?.send_replace(pty.size());
        Ok(json!({}))
    }

    /// Ends a process and all that it started.
    pub(crate) async fn send_signal(
        &self,
        cx: &Context,
        session: &PersonSession,
        request: &OfProcess,
    ) -> Result<Value, RpcError> {
        let running = self.find(&request.process)?;
        let grace = match request.signal.as_ref() {
            Some(signal) if *signal == json!("SIGNAL_SIGKILL") || *signal == json!(9) => Duration::ZERO,
            Some(signal) if *signal == json!("SIGNAL_SIGTERM") || *signal == json!(15) => GRACE,
            _ => return Err(RpcError::invalid("the signal is SIGTERM or SIGKILL")),
        };
        let what = json!({ "channel": "process", "action": "signal", "job": running.job });
        let intent = audited::intent(cx, WAY, session, what).await?;
        let cancelled = session.link.cancel(&running.job, grace).await.map_err(Failure::from);
        intent.finish_program(cancelled.as_ref().map(|_| None)).await;
        cancelled?;
        Ok(json!({}))
    }

    /// Removes it, unless another process has its number.
    fn forget(&self, ended: &Arc<Running>) {
        let mut all = self.lock();
        if all.get(&ended.pid).is_some_and(|it| Arc::ptr_eq(it, ended)) {
            all.remove(&ended.pid);
        }
    }

    fn find(&self, selector: &ProcessSelector) -> Result<Arc<Running>, RpcError> {
        let all = self.lock();
        let found = match (selector.pid, &selector.tag) {
            (Some(pid), _) => all.get(&pid),
            (None, Some(tag)) => all.values().find(|it| it.request.tag.as_ref() == Some(tag)),
            (None, None) => return Err(RpcError::invalid("a process is named by `pid` or `tag`")),
        };
        found.cloned().ok_or_else(|| no_process(selector))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits of a stream of events, from the head of its request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamLimits {
    /// The process is ended after this time.
    pub(crate) total: Option<Duration>,
    /// How often an event shows that the stream is alive.
    pub(crate) keepalive: Option<Duration>,
}

impl Running {
    fn readers(&self) -> MutexGuard<'_, Option<Vec<mpsc::Sender<Bytes>>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what it prints.
    async fn pass_on(&self, mut output: mpsc::Receiver<Chunk>) {
        while let Some(chunk) = output.recv().await {
            let name = match chunk.stream {
                _ if self.size.is_some() => "pty",
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            self.send(event(&json!({ "data": { name: STANDARD.encode(&chunk.bytes) } }))).await;
        }
    }

    /// Sends an event to all who read. One who has left, or reads nothing for long, gets no more.
    async fn send(&self, message: Bytes) {
        let readers = self.readers().clone().unwrap_or_default();
        let left = send_to(&readers, &message).await;
        if let Some(readers) = &mut *self.readers() {
            readers.retain(|it| !left.iter().any(|left| it.same_channel(left)));
        }
    }

    async fn end(&self, ended: Result<ExecOutput, RpcError>) {
        // Who connects from now on learns that it has ended.
        let mut readers = self.readers().take().unwrap_or_default();
        for message in end_of(ended) {
            let left = send_to(&readers, &message).await;
            readers.retain(|it| !left.iter().any(|left| it.same_channel(left)));
        }
    }
}

/// Sends an event to all at once, so that none waits for another. Returns those who have left.
async fn send_to(readers: &[mpsc::Sender<Bytes>], message: &Bytes) -> Vec<mpsc::Sender<Bytes>> {
    let send = |reader: mpsc::Sender<Bytes>| async move {
        reader.send_timeout(message.clone(), STALLED).await.is_err().then_some(reader)
    };
    join_all(readers.iter().cloned().map(send)).await.into_iter().flatten().collect()
}

fn no_process(selector: &ProcessSelector) -> RpcError {
    let name = selector.pid.map(|it| it.to_string()).or_else(|| selector.tag.clone()).unwrap_or_default();
    RpcError::new(RpcCode::NotFound, format!("process with pid or tag {name} not found"))
}

/// The last messages of a process.
fn end_of(ended: Result<ExecOutput, RpcError>) -> Vec<Bytes> {
    let output = match ended {
        Ok(output) => output,
        Err(err) => return vec![rpc::end(Err(err))],
    };
    let failed = match (output.exit, output.signal) {
        (Exit::TimedOut(_), _) => {
            return vec![rpc::end(Err(RpcError::new(RpcCode::DeadlineExceeded, "the time of the process is over")))];
        }
        (_, Some(signal)) => (-1, false, format!("signal: {}", signal_name(signal))),
        (Exit::Cancelled, None) => (-1, false, "signal: killed".to_owned()),
        (Exit::Code(code), None) => (i32::from(code), true, format!("exit status {code}")),
        (Exit::Running(_), None) => (0, false, "running".to_owned()),
    };
    let (code, exited, status) = failed;
    let mut end = json!({ "exitCode": code, "exited": exited, "status": status });
    if code != 0 {
        end["error"] = json!(status);
    }
    vec![event(&json!({ "end": end })), rpc::end(Ok(()))]
}

/// The name of a signal, as E2B writes it.
fn signal_name(signal: i32) -> String {
    match signal {
        1 => "hangup".to_owned(),
        2 => "interrupt".to_owned(),
        6 => "aborted".to_owned(),
        9 => "killed".to_owned(),
        11 => "segmentation fault".to_owned(),
        13 => "broken pipe".to_owned(),
        15 => "terminated".to_owned(),
        other => format!("signal {other}"),
    }
}

fn event(event: &Value) -> Bytes {
    rpc::message(&json!({ "event": event }))
}

/// The result of a command that runs in a task.
async fn result_of(end: JoinHandle<Result<ExecOutput, Error>>) -> Result<ExecOutput, Failure> {
    Ok(end.await.map_err(Failure::internal)??)
}

/// The arguments. Where there is no bash, `sh` runs the script.
async fn argv(session: &PersonSession, config: &ProcessConfig) -> Vec<String> {
    let has_none = config.cmd == BASH && session.link.stat(at(session, BASH)).await.is_err();
    let cmd = if has_none { "/bin/sh" } else { config.cmd.as_str() };
    std::iter::once(cmd.to_owned()).chain(config.args.iter().cloned()).collect()
}

async fn keep_alive(running: std::sync::Weak<Running>, every: Duration) {
    let mut ticks = interval(every);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(running) = running.upgrade() else { return };
        running.send(event(&json!({ "keepalive": {} }))).await;
    }
}
