//! News of a call while it runs.

use coracle_provision::StepReport;
use coracle_types::{Chunk, Stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::humanize::bytes;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An entry of the provisioning report.
    Step(Box<StepReport>),
    /// What is being done now.
    Message(String),
    /// How much of it is done.
    Amount(Amount),
    /// A command printed something.
    Output(Chunk),
}

/// Bytes of a whole that went somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// What is done with them: `copied`.
    pub done_what: &'static str,
    /// Bytes so far.
    pub done: u64,
    /// All of them, if that is known.
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

/// Chunks on the way to a reader. Each has at most 64 KiB, so a call buffers less than 1 MiB.
const CHUNKS: usize = 8;

/// Where an operation tells its news. Cloned into what runs beside it.
#[derive(Clone, Debug)]
pub struct Progress(Option<mpsc::Sender<Event>>);

impl Progress {
    /// Events have no listener.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Somebody listens. The receiver ends when the call and everything beside it is done.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        (Self(Some(sender)), receiver)
    }

    /// Says what is being done now. A slow listener holds the operation up.
    pub async fn message(&self, text: impl Into<String> + Send) {
        self.send(Event::Message(text.into())).await;
    }

    /// The same from where nothing can wait. It is left out when the listener is behind.
    pub fn note(&self, text: &str) {
        if let Some(events) = &self.0 {
            let _ = events.try_send(Event::Message(text.to_owned()));
        }
    }

    /// Says how much is done. It is left out when the listener is behind.
    pub fn amount(&self, amount: Amount) {
        if let Some(events) = &self.0 {
            let _ = events.try_send(Event::Amount(amount));
        }
    }

    /// Tells an entry of the provisioning report.
    pub async fn step(&self, step: &StepReport) {
        self.send(Event::Step(Box::new(step.clone()))).await;
    }

    /// For `Exec::live`: output as it comes, or nothing without a listener.
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
            // A listener that has left is told by the cancel token, not here.
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
    async fn the_listener_hears_everything_in_order_and_then_the_end() {
        let (progress, mut events) = Progress::channel();
        progress.message("one").await;
        let live = progress.live().unwrap();
        drop(progress);
        live.send(Chunk { stream: Stream::Stdout, bytes: b"two".to_vec(), offset: 0 }).await.unwrap();
        drop(live);
        let mut heard = Vec::new();
        while let Some(event) = events.recv().await {
            heard.push(event.line().to_string());
        }
        assert_eq!(heard, [r#"{"event":"progress","message":"one"}"#, r#"{"data":"two","event":"stdout","offset":0}"#]);
    }

    #[tokio::test]
    async fn nobody_has_to_listen() {
        Progress::none().message("x").await;
        assert!(Progress::none().live().is_none());
        assert_eq!(Event::Message("x".into()).line()["event"], "progress");
    }
}
