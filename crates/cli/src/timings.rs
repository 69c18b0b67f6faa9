//! `--timings`: shows the time of a command, from the spans of operations and engine calls.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use coracle_telemetry::{SpanKind, SpanRecord};
use serde_json::{Value, json};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::render;

/// Maximum number of recorded spans. Later ones are counted.
const MAX_SPANS: usize = 10_000;

/// Set for a command with `--timings`.
static TIMINGS: OnceLock<Timings> = OnceLock::new();

#[derive(Debug)]
struct Timings {
    begun: Instant,
    spans: Mutex<SpanTimes>,
}

#[derive(Debug, Default)]
struct SpanTimes {
    stored: Vec<SpanRecord>,
    dropped: usize,
}

/// A command with `--timings`: its spans and total time.
struct TimingReport<'a> {
    begun: Instant,
    total: Duration,
    /// In order of their start.
    spans: Vec<&'a SpanRecord>,
    dropped: usize,
}

impl Timings {
    fn spans(&self) -> MutexGuard<'_, SpanTimes> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts recording.
pub(crate) fn enable() {
    let _ = TIMINGS.set(Timings { begun: Instant::now(), spans: Mutex::default() });
}

/// The layer that records, with `--timings`.
pub(crate) fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S>> {
    TIMINGS.get().map(|timings| coracle_telemetry::layer(|span| timings.spans().add(span)))
}

/// Prints the times to standard error, with `--timings`: a table, or one line of JSON.
pub(crate) fn print(json: bool) {
    let Some(timings) = TIMINGS.get() else { return };
    let (total, spans) = (timings.begun.elapsed(), timings.spans());
    let report = TimingReport::new(timings.begun, total, &spans);
    render::note(&if json { report.json().to_string() } else { report.table() });
}

impl SpanTimes {
    fn add(&mut self, span: SpanRecord) {
        match self.stored.len() < MAX_SPANS {
            true => self.stored.push(span),
            false => self.dropped += 1,
        }
    }
}

impl<'a> TimingReport<'a> {
    fn new(begun: Instant, total: Duration, times: &'a SpanTimes) -> Self {
        let mut spans: Vec<_> = times.stored.iter().collect();
        // Spans are recorded when they end.
        spans.sort_by_key(|it| (it.begun, it.depth));
        Self { begun, total, spans, dropped: times.dropped }
    }

    /// The time outside of engine calls. Overlapping calls count once.
    fn outside_engine(&self) -> Duration {
        let (mut covered, mut end) = (Duration::ZERO, self.begun);
        for call in self.spans.iter().filter(|it| it.kind == SpanKind::EngineCall) {
            let call_end = call.begun + call.took;
            covered += call_end.saturating_duration_since(call.begun.max(end));
            end = end.max(call_end);
        }
        self.total.saturating_sub(covered)
    }

    fn json(&self) -> Value {
        let span = |it: &&SpanRecord| {
            json!({
                "kind": it.kind.as_str(),
                "name": it.name,
                "engine": it.engine,
                "object": it.object,
                "outcome": it.outcome,
                "depth": it.depth,
                "begun_ms": millis(it.begun.saturating_duration_since(self.begun)),
                "took_ms": millis(it.took),
            })
        };
        json!({ "timings": {
            "total_ms": millis(self.total),
            "outside_engine_ms": millis(self.outside_engine()),
            "spans": self.spans.iter().map(span).collect::<Vec<_>>(),
            "dropped": self.dropped,
        } })
    }

    fn table(&self) -> String {
        let row = |took: Duration, depth: usize, text: &str| {
            format!("{:>10.1} ms  {:indent$}{text}", millis(took), "", indent = 2 * depth)
        };
        let mut lines = vec![row(self.total, 0, "total")];
        lines.extend(self.spans.iter().map(|it| row(it.took, 1 + it.depth, &text_of(it))));
        lines.push(row(self.outside_engine(), 0, "outside engine calls"));
        if self.dropped > 0 {
            lines.push(format!("{} more spans are not shown", self.dropped));
        }
        lines.join("\n")
    }
}

/// Name, object and outcome of a span, without a successful outcome.
fn text_of(span: &SpanRecord) -> String {
    let outcome = span.outcome.as_deref().unwrap_or("withdrawn");
    let outcome = (outcome != "ok").then(|| format!("({outcome})"));
    let object = span.object.as_ref().map(|it| coracle_context::document::sanitize(short(it)));
    let parts = [span.engine.clone(), Some(span.name.clone()), object, outcome];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The id of an object, as engines show it.
fn short(object: &str) -> &str {
    let is_id = object.len() == 64 && object.bytes().all(|it| it.is_ascii_hexdigit());
    if is_id { &object[..12] } else { object }
}

/// Milliseconds with tenths.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use coracle_telemetry::{SpanKind, SpanRecord};
    use insta::assert_snapshot;

    use super::{SpanTimes, TimingReport};

    #[test]
    fn calls_stand_below_their_operation_in_the_order_of_their_begin() {
        let begun = Instant::now();
        let span = |kind, name: &str, outcome: Option<&str>, [depth, from, took]: [u64; 3]| SpanRecord {
            kind,
            name: name.to_owned(),
            engine: (kind == SpanKind::EngineCall).then(|| "podman".to_owned()),
            object: (name == "inspect").then(|| "c".repeat(64)),
            outcome: outcome.map(str::to_owned),
            depth: usize::try_from(depth).unwrap(),
            begun: begun + Duration::from_millis(from),
            took: Duration::from_millis(took),
        };
        let mut times = SpanTimes::default();
        times.add(span(SpanKind::EngineCall, "inspect", Some("ok"), [1, 10, 30]));
        times.add(span(SpanKind::EngineCall, "usage", None, [1, 20, 50]));
        times.add(span(SpanKind::EngineCall, "link", Some("failed"), [1, 90, 5]));
        times.add(span(SpanKind::Operation, "status", Some("not_found"), [0, 10, 88]));
        let report = TimingReport::new(begun, Duration::from_millis(100), &times);
        assert_snapshot!(report.table(), @r"
             100.0 ms  total
              88.0 ms    status (not_found)
              30.0 ms      podman inspect cccccccccccc
              50.0 ms      podman usage (withdrawn)
               5.0 ms      podman link (failed)
              35.0 ms  outside engine calls
        ");
        assert_eq!(report.json()["timings"]["outside_engine_ms"], 35.0);
    }
}
