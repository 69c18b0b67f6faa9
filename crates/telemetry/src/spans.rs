//! Spans of operations, tools and engine calls, as records of their durations.

use std::fmt;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Id, Metadata, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A tool that calls operations.
    ToolCall,
    /// An operation, or a tool that calls none.
    Operation,
    /// A call of an engine.
    EngineCall,
}

impl SpanKind {
    /// The name of its spans.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::Operation => "operation",
            Self::EngineCall => "engine_call",
        }
    }

    fn from_span(metadata: &Metadata<'_>) -> Option<Self> {
        let ours = metadata.is_span() && metadata.target().starts_with("coracle");
        let kinds = [Self::ToolCall, Self::Operation, Self::EngineCall];
        kinds.into_iter().find(|it| ours && it.as_str() == metadata.name())
    }
}

/// An ended span.
#[derive(Clone, Debug)]
pub struct SpanRecord {
    /// Its kind.
    pub kind: SpanKind,
    /// The operation or tool, or the verb of an engine.
    pub name: String,
    /// The engine that was called.
    pub engine: Option<String>,
    /// The id or name of the engine call's object.
    pub object: Option<String>,
    /// `ok`; otherwise the error code of an operation, or `failed` for an engine call. Unset for a cancelled call.
    pub outcome: Option<String>,
    /// The number of enclosing spans of these kinds.
    pub depth: usize,
    /// Its start time.
    pub begun: Instant,
    /// Its duration.
    pub took: Duration,
}

/// A layer that passes each span of these kinds to `observe` at its end. `observe` runs within the call and must not
/// block.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    observe: impl Fn(SpanRecord) + Send + Sync + 'static,
) -> impl Layer<S> {
    SpanLayer(observe).with_filter(spans_only())
}

/// Selects spans of these kinds, and no log events.
pub(crate) fn spans_only() -> FilterFn {
    let is_ours: fn(&Metadata<'_>) -> bool = |metadata| SpanKind::from_span(metadata).is_some();
    FilterFn::new(is_ours).with_max_level_hint(LevelFilter::DEBUG)
}

struct SpanLayer<F>(F);

impl<S: Subscriber + for<'a> LookupSpan<'a>, F: Fn(SpanRecord) + Send + Sync + 'static> Layer<S> for SpanLayer<F> {
    fn on_new_span(&self, attrs: &span::Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some((kind, span)) = SpanKind::from_span(attrs.metadata()).zip(cx.span(id)) else { return };
        let depth = span.scope().skip(1).count();
        let (begun, took) = (Instant::now(), Duration::ZERO);
        let (name, engine, object, outcome) = Default::default();
        let mut record = SpanRecord { kind, name, engine, object, outcome, depth, begun, took };
        attrs.record(&mut record);
        span.extensions_mut().insert(OpenSpan(record, std::marker::PhantomData::<F>));
    }

    fn on_record(&self, id: &Id, values: &span::Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan<F>>()
        {
            values.record(&mut open.0);
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let open = cx.span(&id).and_then(|it| it.extensions_mut().remove::<OpenSpan<F>>());
        if let Some(OpenSpan(record, _)) = open {
            (self.0)(SpanRecord { took: record.begun.elapsed(), ..record });
        }
    }
}

/// The record of a running span, for one of several layers.
struct OpenSpan<F>(SpanRecord, std::marker::PhantomData<F>);

impl Visit for SpanRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "name" | "verb" => value.clone_into(&mut self.name),
            "engine" => self.engine = Some(value.to_owned()),
            "object" => self.object = Some(value.to_owned()),
            "code" | "outcome" => self.outcome = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::Empty;
    use tracing::{debug_span, subscriber};
    use tracing_subscriber::prelude::*;

    use super::layer;

    #[test]
    fn each_span_is_observed_once_with_its_fields_and_depth() {
        let observed: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = observed.clone();
        let first = layer(move |it| {
            let (kind, object, outcome) = (it.kind.as_str(), it.object.as_deref(), it.outcome.as_deref());
            into.lock().unwrap().push(format!("{} {kind} {} {object:?} {outcome:?}", it.depth, it.name));
        });
        let count: Arc<Mutex<usize>> = Arc::default();
        let counted = count.clone();
        let second = layer(move |_| *counted.lock().unwrap() += 1);
        subscriber::with_default(tracing_subscriber::registry().with(first).with(second), || {
            let operation = debug_span!("operation", name = "status", code = Empty);
            operation.in_scope(|| {
                debug_span!("other").in_scope(|| {
                    let call = debug_span!("engine_call", verb = "inspect", object = "web", outcome = Empty);
                    call.record("outcome", "failed");
                });
                drop(debug_span!("engine_call", verb = "list", object = None::<&str>, outcome = Empty));
            });
            operation.record("code", "not_found");
        });
        let expected = [
            r#"1 engine_call inspect Some("web") Some("failed")"#,
            "1 engine_call list None None",
            r#"0 operation status None Some("not_found")"#,
        ];
        assert_eq!(*observed.lock().unwrap(), expected);
        assert_eq!(*count.lock().unwrap(), 3);
    }
}
