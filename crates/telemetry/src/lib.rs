//! What is made of the spans of operations and engine calls: how long each took, metrics for Prometheus (feature
//! `metrics`), and traces for OpenTelemetry (feature `otel`).
//!
//! **Invariant:** nothing here changes what an operation does or answers.

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
