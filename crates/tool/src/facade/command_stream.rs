//! The output of a command while it runs.

use std::pin::Pin;
use std::task::{Context, Poll};

use coracle_context::failure::Failure;
use coracle_context::progress::{Event, Progress};
use coracle_types::Chunk;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::results::CommandResult;
use super::session::{CallFields, CallStreams, Session, Typed};
use crate::commands::ExecResponse;

/// A running command and its output: a [`Stream`] of [`Chunk`]s, each from standard output or standard error. It ends when
/// the command does; [`result`](Self::result) returns how. Dropping it ends the command.
#[derive(Debug)]
pub struct CommandStream {
    events: mpsc::Receiver<Event>,
    call: AbortOnDropHandle<Result<CommandResult, Failure>>,
}

impl CommandStream {
    pub(super) fn start(session: Session, fields: CallFields) -> Self {
        let (progress, events) = Progress::channel();
        let call = tokio::spawn(async move {
            let streams = CallStreams { progress, input: None };
            let Typed { response, warnings } = session.typed::<ExecResponse>("exec", fields, streams).await?;
            Ok(CommandResult::new(response, warnings))
        });
        Self { events, call: AbortOnDropHandle::new(call) }
    }

    /// Waits for the end of the command and discards unread output. The result has the beginning and the end of each
    /// stream.
    ///
    /// # Errors
    /// Those of `exec`.
    pub async fn result(mut self) -> Result<CommandResult, Failure> {
        while self.next().await.is_some() {}
        self.call.await.map_err(Failure::internal)?
    }
}

impl Stream for CommandStream {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        loop {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(Event::Output(chunk))) => return Poll::Ready(Some(chunk)),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
