//! Progress notifications of a call to the client.

use std::time::{Duration, Instant};

use coracle_context::Event;
use coracle_context::document::is_deceptive;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Minimum time between two notifications of output.
const OUTPUT_EVERY: Duration = Duration::from_millis(250);

/// How long the response waits for notifications reported before it.
const LATE: Duration = Duration::from_millis(200);

/// Sends a call's progress reports in their order.
pub(super) struct ProgressReporter {
    lines: mpsc::UnboundedSender<String>,
    sending: JoinHandle<()>,
    last_output: Option<Instant>,
}

impl ProgressReporter {
    pub(super) fn new(token: ProgressToken, peer: Peer<RoleServer>) -> Self {
        let mut count = 0.0;
        Self::with_sender(move |line| {
            count += 1.0;
            let notification = ProgressNotificationParam::new(token.clone(), count).with_message(line);
            let peer = peer.clone();
            async move { peer.notify_progress(notification).await.is_ok() }
        })
    }

    /// `send` returns whether the client is still connected.
    fn with_sender<F>(mut send: impl FnMut(String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let (lines, mut received) = mpsc::unbounded_channel();
        let sending = tokio::spawn(async move {
            while let Some(line) = received.recv().await {
                if !send(line).await {
                    break;
                }
            }
        });
        Self { lines, sending, last_output: None }
    }

    /// Sends the remaining notifications. The protocol allows no progress after the response, so late ones are dropped.
    pub(super) async fn finish(self) {
        let Self { lines, mut sending, .. } = self;
        drop(lines);
        if tokio::time::timeout(LATE, &mut sending).await.is_err() {
            sending.abort();
        }
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        if let Event::Output(_) = event {
            if self.last_output.is_some_and(|it| it.elapsed() < OUTPUT_EVERY) {
                return;
            }
            self.last_output = Some(Instant::now());
        }
        if let Some(line) = line(event) {
            // The client has disconnected: the call's token cancels it.
            let _ = self.lines.send(line);
        }
    }
}

/// One line for a user who watches.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(message.clone()),
        Event::Amount(amount) => Some(amount.to_string()),
        Event::Step(step) => Some(format!("{}: {}: {}", step.name, step.status, step.detail)),
        Event::Output(chunk) => {
            let text = String::from_utf8_lossy(&chunk.bytes);
            let complete = text.rsplit_once('\n')?.0;
            let last = complete.lines().rev().find(|it| !it.trim().is_empty())?;
            Some(last.chars().filter(|it| !is_deceptive(*it)).take(500).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use coracle_context::Event;
    use coracle_types::{Chunk, Stream};
    use serde_json::json;

    use super::{ProgressReporter, line};

    fn check(event: &Event, expected: Option<&str>) {
        assert_eq!(line(event).as_deref(), expected);
    }

    #[test]
    fn each_event_is_one_line() {
        let output = |text: &str| Event::Output(Chunk { stream: Stream::Stdout, bytes: text.into(), offset: 0 });
        check(&output("one\n\x1b[1mtwo\nthr"), Some("[1mtwo"));
        check(&output("thr"), None);
        let step = serde_json::from_value(json!({ "name": "user", "status": "success", "detail": "1000" })).unwrap();
        check(&Event::Step(Box::new(step)), Some("user: success: 1000"));
        check(&Event::Message("pulling".into()), Some("pulling"));
    }

    /// Number of lines sent before the response, for a call that reports three.
    async fn sent_before_response(each_takes: Duration) -> usize {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let sender = sent.clone();
        let mut reporter = ProgressReporter::with_sender(move |line| {
            let sent = sender.clone();
            async move {
                tokio::time::sleep(each_takes).await;
                sent.lock().unwrap().push(line);
                true
            }
        });
        for line in ["one", "two", "three"] {
            reporter.on_event(&Event::Message(line.into()));
        }
        reporter.finish().await;
        let before = sent.lock().unwrap().len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(sent.lock().unwrap().len(), before, "progress was sent after the response");
        before
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_sent_before_the_response_or_never() {
        assert_eq!(sent_before_response(Duration::from_millis(10)).await, 3);
        assert_eq!(sent_before_response(Duration::from_millis(150)).await, 1);
    }
}
