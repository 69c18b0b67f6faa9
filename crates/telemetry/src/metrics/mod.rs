//! Metrics for Prometheus: counted from spans, and read from engines when Prometheus asks.

mod containers;
mod server;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use self::server::MetricsServer;
use crate::spans::{SpanKind, SpanRecord};

/// Upper bounds of the duration buckets, in seconds: a link replies in a millisecond, an image build takes minutes.
const BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];

/// The outcome of a cancelled call.
const WITHDRAWN: &str = "cancelled";

/// Names and values of labels.
type Labels<const N: usize> = [(&'static str, String); N];

/// The counters of a process. No label has the name or id of a container, so their number is bounded.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    operations: Family<Labels<2>, Counter>,
    operation_durations: Family<Labels<1>, Histogram>,
    engine_calls: Family<Labels<3>, Counter>,
    engine_call_durations: Family<Labels<2>, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations = || Histogram::new(BUCKETS);
        let (operations, engine_calls) = (Family::default(), Family::default());
        let operation_durations: Family<Labels<1>, _> = Family::new_with_constructor(durations as fn() -> _);
        let engine_call_durations: Family<Labels<2>, _> = Family::new_with_constructor(durations as fn() -> _);
        let mut registry = Registry::with_prefix("coracle");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The version of the program", Info::new(version));
        registry.register("operations", "Operations and tools by the code of their error, or `ok`", operations.clone());
        let help = "How long operations and tools took";
        registry.register_with_unit("operation_duration", help, Unit::Seconds, operation_durations.clone());
        registry.register("engine_calls", "Calls to engines by verb and outcome", engine_calls.clone());
        let help = "How long calls to engines took";
        registry.register_with_unit("engine_call_duration", help, Unit::Seconds, engine_call_durations.clone());
        Self { registry, operations, operation_durations, engine_calls, engine_call_durations }
    }
}

impl Metrics {
    /// Counts an ended span. A tool that calls operations is not counted, because the operations are.
    pub fn observe(&self, span: SpanRecord) {
        let SpanRecord { kind, name, engine, outcome, took, .. } = span;
        let (outcome, seconds) = (outcome.unwrap_or_else(|| WITHDRAWN.to_owned()), took.as_secs_f64());
        match kind {
            SpanKind::ToolCall => {}
            SpanKind::Operation => {
                self.operations.get_or_create(&[("operation", name.clone()), ("code", outcome)]).inc();
                self.operation_durations.get_or_create(&[("operation", name)]).observe(seconds);
            }
            SpanKind::EngineCall => {
                let [engine, verb] = [("engine", engine.unwrap_or_default()), ("verb", name)];
                let labels = [engine.clone(), verb.clone(), ("outcome", outcome)];
                self.engine_calls.get_or_create(&labels).inc();
                self.engine_call_durations.get_or_create(&[engine, verb]).observe(seconds);
            }
        }
    }

    /// All metrics in the OpenMetrics text format, including those of containers if they could be read.
    fn text(&self, containers: Option<&[coracle::UsageReading]>) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)?;
        text::encode_registry(&mut text, &containers::registry(containers))?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use coracle::UsageReading;
    use insta::assert_snapshot;

    use super::Metrics;
    use crate::spans::{SpanKind, SpanRecord};

    #[test]
    fn spans_are_counted_and_containers_shown() {
        let metrics = Metrics::default();
        let span = |kind, name: &str, outcome: Option<&str>| SpanRecord {
            kind,
            name: name.to_owned(),
            engine: Some("podman".to_owned()),
            object: Some("web".to_owned()),
            outcome: outcome.map(str::to_owned),
            depth: 0,
            begun: Instant::now(),
            took: Duration::from_millis(20),
        };
        metrics.observe(span(SpanKind::ToolCall, "bash", Some("ok")));
        metrics.observe(span(SpanKind::Operation, "exec", Some("ok")));
        metrics.observe(span(SpanKind::Operation, "exec", None));
        metrics.observe(span(SpanKind::EngineCall, "inspect", Some("failed")));
        let reading = |name: &str, state: &str, cpu_seconds| UsageReading {
            name: name.to_owned(),
            session: "a\"b".to_owned(),
            engine: "podman",
            state: state.to_owned(),
            cpu_seconds,
            memory_bytes: cpu_seconds.map(|_| 4096),
            processes: cpu_seconds.map(|_| 3),
            jobs_running: usize::from(cpu_seconds.is_some()),
        };
        let readings =
            [reading("web", "running", Some(1.5)), reading("db", "running", None), reading("old", "exited", None)];
        let text = metrics.text(Some(&readings)).unwrap();
        let is_counted =
            |it: &&str| !it.starts_with('#') && !it.contains("_bucket{") && !it.starts_with("coracle_build_info");
        let mut lines: Vec<_> = text.lines().filter(is_counted).collect();
        lines.sort_unstable();
        assert_snapshot!(lines.join("\n"), @r#"
        coracle_container_cpu_seconds_total{container="web",session="a\"b",engine="podman"} 1.5
        coracle_container_memory_bytes{container="web",session="a\"b",engine="podman"} 4096
        coracle_container_processes{container="web",session="a\"b",engine="podman"} 3
        coracle_containers_readable 1
        coracle_containers{engine="podman",state="exited"} 1
        coracle_containers{engine="podman",state="running"} 2
        coracle_engine_call_duration_seconds_count{engine="podman",verb="inspect"} 1
        coracle_engine_call_duration_seconds_sum{engine="podman",verb="inspect"} 0.02
        coracle_engine_calls_total{engine="podman",verb="inspect",outcome="failed"} 1
        coracle_jobs_running 1
        coracle_operation_duration_seconds_count{operation="exec"} 2
        coracle_operation_duration_seconds_sum{operation="exec"} 0.04
        coracle_operations_total{operation="exec",code="cancelled"} 1
        coracle_operations_total{operation="exec",code="ok"} 1
        "#);
        assert!(
            text.ends_with("# EOF\n") && text.contains("# UNIT coracle_operation_duration_seconds seconds\n"),
            "{text}"
        );
        assert!(text.contains(r#"coracle_operation_duration_seconds_bucket{le="0.05",operation="exec"} 2"#), "{text}");
        let unread = metrics.text(None).unwrap();
        assert!(unread.contains("coracle_containers_readable 0\n") && !unread.contains("{container="), "{unread}");
    }
}
