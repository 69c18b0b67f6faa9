//! The protocol on standard input and output: one message per line.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::task::TaskTracker;

use super::message::{IncomingMessage, MessageOutcome};

/// Maximum number of refusals that a client has not read. At the limit the next message waits.
const UNREAD: usize = 32;

/// The two ends of a client's pipes.
pub(super) struct Stdio<R, W> {
    input: BufReader<R>,
    /// The next line so far. An interrupted read continues here.
    line: IncomingMessage,
    output: Arc<Mutex<Option<W>>>,
    refusals: TaskTracker,
    places: Arc<Semaphore>,
}

impl<R: AsyncRead + Unpin, W> Stdio<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self {
            input: BufReader::new(input),
            line: IncomingMessage::default(),
            output: Arc::new(Mutex::new(Some(output))),
            refusals: TaskTracker::new(),
            places: Arc::new(Semaphore::new(UNREAD)),
        }
    }

    /// The next line; `None` at the end of the input. Bytes move from the buffer to the line in one step, so that
    /// cancellation loses none.
    async fn next_line(&mut self) -> Option<IncomingMessage> {
        loop {
            let available = match self.input.fill_buf().await {
                Ok(available) => available,
                Err(err) => {
                    tracing::warn!("standard input cannot be read: {err}");
                    return None;
                }
            };
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|it| *it == b'\n');
            self.line.push(&available[..end.unwrap_or(available.len())]);
            let taken = end.map_or(available.len(), |it| it + 1);
            self.input.consume(taken);
            if end.is_some() {
                return Some(std::mem::take(&mut self.line));
            }
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(output: &Mutex<Option<W>>, message: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    let Some(output) = output.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
    output.write_all(&line).await?;
    output.flush().await
}

impl<R, W> Transport<RoleServer> for Stdio<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let output = self.output.clone();
        async move { write(&output, &item).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let place = self.places.clone().acquire_owned().await.ok()?;
            let Some(line) = self.next_line().await else {
                // A client that sends an invalid message and closes its input still receives the refusal.
                self.refusals.close();
                self.refusals.wait().await;
                return None;
            };
            match line.read() {
                MessageOutcome::Message(message) => return Some(*message),
                MessageOutcome::Nothing => {}
                MessageOutcome::Refused(fault) => {
                    let output = self.output.clone();
                    // This future may be dropped at any time, and an answer must be written completely.
                    self.refusals.spawn(async move {
                        if let Err(err) = write(&output, &fault.answer()).await {
                            tracing::debug!("a refusal could not be sent: {err}");
                        }
                        drop(place);
                    });
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        drop(self.output.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::Transport;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::Stdio;

    #[tokio::test]
    async fn refusals_are_lines_of_their_own_and_the_next_message_is_read() {
        let (mut client, server) = tokio::io::duplex(64);
        let (input, output) = tokio::io::split(server);
        let mut transport = Stdio::new(input, output);
        let server = async {
            let message = transport.receive().await;
            let end = transport.receive().await;
            transport.close().await.unwrap();
            drop(transport);
            (message.is_some(), end.is_none())
        };
        let talk = async {
            let text = "no\n\n{\"id\":1}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\nhalf a line";
            client.write_all(text.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut responses = String::new();
            client.read_to_string(&mut responses).await.unwrap();
            responses
        };
        let (ended, responses) = tokio::join!(server, talk);
        assert_eq!(ended, (true, true));
        let ids: Vec<Value> =
            responses.lines().map(|it| serde_json::from_str::<Value>(it).unwrap()["id"].take()).collect();
        assert_eq!(ids, [Value::Null, Value::from(1)]);
    }
}
