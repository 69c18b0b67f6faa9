//! Events of a call while it runs.

use coracle_provision::StepReport;
use coracle_types::{Chunk, Stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::humanize::bytes;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An entry of the provisioning report.
    Step(Box<StepReport>),
    /// The current activity.
    Message(String),
    /// The progress of the current activity.
    Amount(Amount),
    /// Output of a command.
    Output(Chunk),
}

/// Processed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The activity: `copied`.
    pub done_what: &'static str,
    /// Bytes so far.
    pub done: u64,
    /// The total, if it is known.
    pub total: Option<u64>,
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done_what, done, total } = self;
        match total {
            Some(total) => write!(f, "{done_what} {} of {}", bytes(*done), bytes(*total)),
            None => write!(f, "{done_what} {}", bytes(*done)),
        }
    }
}

/// Number of buffered events. Each has at most 64 KiB, so a call buffers less than 1 MiB.
const CHUNKS: usize = 8;

/// Sends the events of an operation. Clones are passed to concurrent work.
#[derive(Clone, Debug)]
pub struct Progress(Option<mpsc::Sender<Event>>);

impl Progress {
    /// A sender without a listener.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// A sender with a listener. The receiver ends when the call and all its concurrent work is done.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        (Self(Some(sender)), receiver)
    }

    /// Reports the current activity. Waits for a slow listener.
    pub async fn message(&self, text: impl Into<String> + Send) {
        self.send(Event::Message(text.into())).await;
    }

    /// Reports the current activity without waiting. The event is dropped if the listener is behind.
    pub fn note(&self, text: &str) {
        if let Some(events) = &self.0 {
            let _ = events.try_send(Event::Message(text.to_owned()));
        }
    }

    /// Reports progress. The event is dropped if the listener is behind.
    pub fn amount(&self, amount: Amount) {
        if let Some(events) = &self.0 {
            let _ = events.try_send(Event::Amount(amount));
        }
    }

    /// Reports an entry of the provisioning report.
    pub async fn step(&self, step: &StepReport) {
        self.send(Event::Step(Box::new(step.clone()))).await;
    }

    /// For `Exec::live`: receives output while it is printed; none without a listener.
    #[must_use]
    pub fn live(&self) -> Option<mpsc::Sender<Chunk>> {
        let events = self.0.clone()?;
        let (sender, mut chunks) = mpsc::channel(CHUNKS);
        tokio::spawn(async move {
            while let Some(chunk) = chunks.recv().await {
                if events.send(Event::Output(chunk)).await.is_err() {
                    break;
                }
            }
        });
        Some(sender)
    }

    async fn send(&self, event: Event) {
        if let Some(events) = &self.0 {
            // A listener that has left is handled by the cancel token.
            let _ = events.send(event).await;
        }
    }
}

impl Event {
    /// Standard output of a command, or content of a file.
    #[must_use]
    pub fn stdout(&self) -> Option<&[u8]> {
        match self {
            Self::Output(Chunk { stream: Stream::Stdout, bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    /// The line of `coracle call --stream`.
    #[must_use]
    pub fn line(&self) -> Value {
        match self {
            Self::Step(step) => json!({ "event": "step", "step": step }),
            Self::Message(message) => json!({ "event": "progress", "message": message }),
            Self::Amount(amount) => {
                let Amount { done, total, .. } = amount;
                json!({ "event": "progress", "message": amount.to_string(), "done": done, "total": total })
            }
            Self::Output(chunk) => {
                let name = if chunk.stream == Stream::Stdout { "stdout" } else { "stderr" };
                json!({ "event": name, "data": String::from_utf8_lossy(&chunk.bytes), "offset": chunk.offset })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::{Chunk, Stream};

    use super::{Event, Progress};

    #[tokio::test]
    async fn the_listener_receives_everything_in_order_and_then_the_end() {
        let (progress, mut events) = Progress::channel();
        progress.message("one").await;
        let live = progress.live().unwrap();
        drop(progress);
        live.send(Chunk { stream: Stream::Stdout, bytes: b"two".to_vec(), offset: 0 }).await.unwrap();
        drop(live);
        let mut received = Vec::new();
        while let Some(event) = events.recv().await {
            received.push(event.line().to_string());
        }
        assert_eq!(
            received,
            [r#"{"event":"progress","message":"one"}"#, r#"{"data":"two","event":"stdout","offset":0}"#]
        );
    }

    #[tokio::test]
    async fn events_are_dropped_without_a_listener() {
        Progress::none().message("x").await;
        assert!(Progress::none().live().is_none());
        assert_eq!(Event::Message("x".into()).line()["event"], "progress");
    }
}
