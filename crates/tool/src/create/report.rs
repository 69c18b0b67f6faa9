//! The report while it grows: sent step by step, without secrets.

use std::time::{Duration, Instant};

use coracle_context::progress::Progress;
use coracle_provision::{Report, ReportItem, Status, StepReport};
use coracle_types::{Chunk, Redactor};
use serde_json::Value;
use tokio::sync::mpsc;

/// A command that prints more than the caller reads is not delayed for long.
const CHUNKS: usize = 8;

/// A person reads no faster.
const BETWEEN_NEWS: Duration = Duration::from_millis(250);

/// A line is shown so far.
const MAX_LINE: usize = 200;

/// The last complete line of what comes in pieces.
#[derive(Debug, Default)]
struct LastLine(Vec<u8>);

impl LastLine {
    /// The last line that a piece completes, if it says something.
    fn after(&mut self, piece: &[u8]) -> Option<String> {
        self.0.truncate(MAX_LINE);
        self.0.extend_from_slice(piece);
        let end = self.0.iter().rposition(|it| *it == b'\n' || *it == b'\r')?;
        let rest = self.0.split_off(end + 1);
        let lines = std::mem::replace(&mut self.0, rest);
        let text = String::from_utf8_lossy(&lines);
        let line = text.split(['\n', '\r']).map(str::trim).rfind(|it| !it.is_empty())?;
        Some(line.chars().take(MAX_LINE).collect())
    }
}

/// The steps that are done.
#[derive(Debug)]
pub(super) struct ReportBuilder {
    steps: Vec<StepReport>,
    progress: Progress,
    redactor: Redactor,
}

impl ReportBuilder {
    pub(super) fn new(progress: Progress) -> Self {
        Self { steps: Vec::new(), progress, redactor: Redactor::default() }
    }

    /// From here on these values stand in no step.
    pub(super) fn keep_out(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Whether a text contains one of these values.
    pub(super) fn keeps_out(&self, text: &str) -> bool {
        self.redactor.clean(text) != text
    }

    /// For what commands print: their last line, now and then, as news.
    pub(super) fn live(&self) -> mpsc::Sender<Chunk> {
        let (sender, mut chunks) = mpsc::channel::<Chunk>(CHUNKS);
        let (progress, redactor) = (self.progress.clone(), self.redactor.clone());
        tokio::spawn(async move {
            let (mut lines, mut last_sent) = (LastLine::default(), None::<Instant>);
            while let Some(chunk) = chunks.recv().await {
                let line = lines.after(&chunk.bytes);
                if last_sent.is_none_or(|it| it.elapsed() >= BETWEEN_NEWS)
                    && let Some(line) = line
                {
                    progress.note(&redactor.clean(&line));
                    last_sent = Some(Instant::now());
                }
            }
        });
        sender
    }

    /// Adds a step, and tells it unless there was nothing to do.
    pub(super) async fn add(&mut self, step: StepReport) {
        let step = self.cleaned(step);
        if step.status != Status::Skipped {
            self.progress.step(&step).await;
        }
        self.steps.push(step);
    }

    /// The steps so far.
    pub(super) fn end(self) -> Report {
        Report(self.steps)
    }

    fn cleaned(&self, step: StepReport) -> StepReport {
        let clean = |text: String| self.redactor.clean(&text);
        let item = |it: ReportItem| ReportItem {
            name: clean(it.name),
            error: it.error.map(clean),
            about: it.about.into_iter().map(|(name, value)| (name, self.cleaned_value(value))).collect(),
            ..it
        };
        let items = step.items.into_iter().map(item).collect();
        StepReport { detail: clean(step.detail), error: step.error.map(clean), items, ..step }
    }

    fn cleaned_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.redactor.clean(&text).into(),
            Value::Array(items) => items.into_iter().map(|it| self.cleaned_value(it)).collect(),
            Value::Object(fields) => fields.into_iter().map(|(name, it)| (name, self.cleaned_value(it))).collect(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LastLine;

    #[test]
    fn the_last_complete_line_is_reported_for_any_chunking() {
        let mut lines = LastLine::default();
        let sent: Vec<_> = ["one\ntw", "o\n", "\n \n", "thr", "ee\r10 %\r", "rest"]
            .iter()
            .map(|it| lines.after(it.as_bytes()))
            .collect();
        let expected = [Some("one"), Some("two"), None, None, Some("10 %"), None];
        assert_eq!(sent, expected.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let mut lines = LastLine::default();
        for _ in 0..100 {
            assert_eq!(lines.after(&[b'x'; 10_000]), None);
        }
        assert!(lines.0.len() <= super::MAX_LINE + 10_000);
    }
}
