//! Serves requests one after the other until the channel closes.

use std::collections::VecDeque;

use coracle_sandbox::protocol::{Mode, Requests, ResponseFrame, WorkerMessage, WorkerRequest};
use coracle_sandbox::{Code, Failure, Result};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::Worker;
use crate::run::run;
use crate::stop::StopSignal;

/// Number of bytes per read.
const CHUNK: usize = 64 << 10;

/// Maximum number of waiting requests; at the limit no more are read.
const WAITING: usize = 8;

/// Capacity of the channel of messages to send.
const MESSAGES: usize = 16;

/// Serves requests until the sender closes the channel, and executes those already received. `quit` cancels the current
/// run, and then the function returns.
///
/// # Errors
/// `invalid_request_length`, `truncated_request`: the rest of the input cannot be parsed. `cancelled`: by `quit`.
/// `worker_died`: the reader of the messages is gone.
pub async fn serve(
    worker: &Worker,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin,
    quit: tokio_util::sync::CancellationToken,
) -> Result<()> {
    let (sender, incoming) = mpsc::channel(WAITING);
    let reading = tokio::spawn(read(from, sender));
    let served = WorkerServer { worker, incoming, waiting: VecDeque::new(), end: None, to, quit }.serve().await;
    // A pending read must not delay the exit.
    reading.abort();
    served
}

/// A message from the host.
enum HostMessage {
    Request(Vec<u8>),
    /// The input ended, or cannot be read further.
    End(Result<()>),
}

async fn read(mut from: impl AsyncRead + Unpin, sender: mpsc::Sender<HostMessage>) {
    let (mut requests, mut piece) = (Requests::default(), vec![0; CHUNK]);
    loop {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => {
                let _ = sender.send(HostMessage::End(requests.end())).await;
                return;
            }
            Ok(count) => requests.push(&piece[..count]),
        }
        loop {
            match requests.next_request() {
                Ok(Some(request)) => {
                    if sender.send(HostMessage::Request(request)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(failure) => {
                    let _ = sender.send(HostMessage::End(Err(failure))).await;
                    return;
                }
            }
        }
    }
}

struct WorkerServer<'a, W> {
    worker: &'a Worker,
    incoming: mpsc::Receiver<HostMessage>,
    waiting: VecDeque<Vec<u8>>,
    /// Set when no request follows those that wait.
    end: Option<Result<()>>,
    to: W,
    quit: tokio_util::sync::CancellationToken,
}

impl<W: AsyncWrite + Unpin> WorkerServer<'_, W> {
    async fn serve(mut self) -> Result<()> {
        while let Some(request) = self.next().await? {
            self.handle(&request).await?;
        }
        Ok(())
    }

    /// The next request; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(request) = self.waiting.pop_front() {
            return Ok(Some(request));
        }
        if let Some(end) = self.end.take() {
            return end.map(|()| None);
        }
        tokio::select! {
            biased;
            () = self.quit.cancelled() => Err(quitted()),
            incoming = self.incoming.recv() => match incoming {
                Some(HostMessage::Request(request)) => Ok(Some(request)),
                Some(HostMessage::End(end)) => end.map(|()| None),
                None => Ok(None),
            },
        }
    }

    /// Handles one request while receiving others.
    async fn handle(&mut self, bytes: &[u8]) -> Result<()> {
        let request = match WorkerRequest::parse(bytes) {
            Ok(request) => request,
            Err(failure) => return self.over(&id_of(bytes), (Err(failure), 0)).await,
        };
        let id = request.id.clone().unwrap_or_else(|| id_of(bytes));
        if request.mode == Mode::Cancel {
            // The run to cancel has already ended, and its last message was sent.
            return Ok(());
        }
        tracing::info!(mode = ?request.mode, "a run starts");
        let (worker, stop) = (self.worker, StopSignal::default());
        let (to, mut messages) = mpsc::channel(MESSAGES);
        let running = run(worker, &request, to, &stop);
        tokio::pin!(running);
        let (mut done, mut count, mut quitting) = (None, 0, false);
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => {
                        count += 1;
                        self.send(&message, &id).await?;
                    }
                    // Its sender is dropped with the run.
                    None => break,
                },
                result = &mut running, if done.is_none() => done = Some(result),
                () = self.quit.cancelled(), if !quitting => {
                    stop.fire(Code::Cancelled, "Cancelled.");
                    quitting = true;
                }
                incoming = self.incoming.recv(), if self.end.is_none() && self.waiting.len() < WAITING => match incoming {
                    Some(HostMessage::Request(bytes)) => self.while_running(bytes, &id, &stop),
                    Some(HostMessage::End(end)) => self.end = Some(end),
                    None => self.end = Some(Ok(())),
                },
            }
        }
        let done = match done {
            Some(done) => done,
            None => running.await,
        };
        tracing::info!(ok = done.is_ok(), messages = count, "a run ended");
        self.over(&id, (done, count)).await?;
        if quitting { Err(quitted()) } else { Ok(()) }
    }

    fn while_running(&mut self, bytes: Vec<u8>, id: &str, stop: &StopSignal) {
        let is_cancel =
            WorkerRequest::parse(&bytes).is_ok_and(|it| it.mode == Mode::Cancel && it.id.as_deref() == Some(id));
        if is_cancel {
            stop.fire(Code::Cancelled, "Cancelled.");
        } else {
            self.waiting.push_back(bytes);
        }
    }

    async fn send(&mut self, message: &WorkerMessage, id: &str) -> Result<()> {
        let text = serde_json::to_string(message).map_err(Failure::internal)?;
        self.write(&ResponseFrame::Msg { text, id: id.to_owned() }).await
    }

    async fn over(&mut self, id: &str, (done, messages): (Result<()>, u64)) -> Result<()> {
        let id = id.to_owned();
        if let Err(Failure { code, message: text, .. }) = done {
            self.write(&ResponseFrame::Error { text, code: code.word(), id: id.clone() }).await?;
        }
        self.write(&ResponseFrame::Done { messages, id }).await
    }

    async fn write(&mut self, frame: &ResponseFrame) -> Result<()> {
        let line = frame.to_line();
        let gone = |err| Failure::new(Code::WorkerDied, format!("The reader of the messages is gone: {err}."));
        self.to.write_all(&line).await.map_err(gone)?;
        self.to.flush().await.map_err(gone)
    }
}

fn quitted() -> Failure {
    Failure::new(Code::Cancelled, "The worker was stopped.")
}

/// The id of an invalid request, so that its sender can match the error to it.
fn id_of(bytes: &[u8]) -> String {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let id = value["id"].as_str().filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    id.map_or_else(|| "0".repeat(32), str::to_lowercase)
}
