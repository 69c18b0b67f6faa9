//! News of a call on its way to the client.

use std::time::{Duration, Instant};

use coracle::Event;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use tokio::sync::mpsc;

/// Output is told at most this often.
const OUTPUT_EVERY: Duration = Duration::from_millis(250);

/// Tells what a call reports, in the order of its coming.
pub(super) struct ProgressReporter {
    lines: mpsc::UnboundedSender<String>,
    told_output: Option<Instant>,
}

impl ProgressReporter {
    pub(super) fn new(token: ProgressToken, peer: Peer<RoleServer>) -> Self {
        let (lines, mut received) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            let mut count = 0.0;
            while let Some(line) = received.recv().await {
                count += 1.0;
                let told = ProgressNotificationParam::new(token.clone(), count).with_message(line);
                if peer.notify_progress(told).await.is_err() {
                    break;
                }
            }
        });
        Self { lines, told_output: None }
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        if let Event::Output(_) = event {
            if self.told_output.is_some_and(|it| it.elapsed() < OUTPUT_EVERY) {
                return;
            }
            self.told_output = Some(Instant::now());
        }
        if let Some(line) = line(event) {
            // The client has gone: the call ends by its token.
            let _ = self.lines.send(line);
        }
    }
}

/// One line for a person who watches.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(message.clone()),
        Event::Amount(amount) => Some(amount.to_string()),
        Event::Step(step) => {
            let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
            Some(format!("{}: {}: {}", text("name"), text("status"), text("detail")))
        }
        Event::Output(chunk) => {
            let text = String::from_utf8_lossy(&chunk.bytes);
            let complete = text.rsplit_once('\n')?.0;
            let last = complete.lines().rev().find(|it| !it.trim().is_empty())?;
            Some(last.chars().filter(|it| !it.is_control()).take(500).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle::Event;
    use coracle_runtime::{Chunk, Stream};
    use serde_json::json;

    use super::line;

    fn check(event: &Event, told: Option<&str>) {
        assert_eq!(line(event).as_deref(), told);
    }

    #[test]
    fn news_are_one_line_each() {
        let output = |text: &str| Event::Output(Chunk { stream: Stream::Stdout, bytes: text.into(), offset: 0 });
        check(&output("one\n\x1b[1mtwo\nthr"), Some("[1mtwo"));
        check(&output("thr"), None);
        check(
            &Event::Step(json!({ "name": "user", "status": "success", "detail": "1000" })),
            Some("user: success: 1000"),
        );
        check(&Event::Message("pulling".into()), Some("pulling"));
    }
}
