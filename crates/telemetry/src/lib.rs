//! Consumers of the spans of operations and engine calls: durations, metrics for Prometheus (feature `metrics`), and
//! traces for OpenTelemetry (feature `otel`).
//!
//! **Invariant:** telemetry does not change the effect or the answer of an operation.

#[cfg(feature = "metrics")]
mod metrics;
mod spans;
#[cfg(feature = "otel")]
mod traces;
#[cfg(not(feature = "otel"))]
#[path = "without_traces.rs"]
mod traces;

#[cfg(feature = "metrics")]
pub use self::metrics::{Metrics, MetricsServer};
pub use self::spans::{SpanKind, SpanRecord, layer};
pub use self::traces::{end_traces, trace_layer};
