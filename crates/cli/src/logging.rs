//! Logging.

use std::fmt::{self, Debug};

use coracle_context::config::Level;
use coracle_context::document::sanitize;
use coracle_context::{Context, Frontend};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

#[cfg(feature = "serve")]
use crate::metrics;
use crate::timings;

/// Logs to standard error. Other crates log from warnings on. So does Coracle at the command line, where the user sees
/// progress, and beside a program, which owns standard error.
pub(crate) fn start(cx: &Context) {
    let level = match (cx.config.log.level, cx.call.frontend) {
        (Level::Off, _) => LevelFilter::OFF,
        (Level::Error, _) => LevelFilter::ERROR,
        (Level::Warn, _) | (Level::Info, Frontend::Cli | Frontend::Ui | Frontend::Serve) => LevelFilter::WARN,
        (Level::Info, _) => LevelFilter::INFO,
        (Level::Debug, _) => LevelFilter::DEBUG,
        (Level::Trace, _) => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(cx.host.stderr_is_terminal);
    // With details, lines have the place in the code; otherwise a terminal gets sentences.
    let lines = match cx.host.stderr_is_terminal && level < LevelFilter::DEBUG {
        true => lines.event_format(PlainSentences).boxed(),
        false => lines.boxed(),
    };
    // It logs requests of disconnected clients as errors, which are not failures.
    let answers = if level >= LevelFilter::DEBUG { others } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(others).with_target("coracle", level);
    let targets = targets.with_target("rmcp::service", answers);
    // A second call in the same process (a test) has no effect.
    let traces = cx.host.trace_service().map(|it| coracle_telemetry::trace_layer(&it)).transpose();
    let (traces, fault) = traces.map_or_else(|err| (None, Some(err)), |layer| (layer, None));
    let layers = tracing_subscriber::registry().with(lines.with_filter(targets));
    let layers = layers.with(timings::layer());
    #[cfg(feature = "serve")]
    let layers = layers.with(metrics::layer());
    let _ = layers.with(traces).try_init();
    if let Some(err) = fault {
        tracing::warn!("no traces are sent: {err}");
    }
}

/// Formats events as sentences, without time and place: `warning: the network stays: it is in use (network web)`.
struct PlainSentences;

impl<S, N> FormatEvent<S, N> for PlainSentences
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut sentence = EventSentence::default();
        event.record(&mut sentence);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warning",
            _ => "note",
        };
        let EventSentence { mut text, cause, others } = sentence;
        if !cause.is_empty() {
            text = format!("{text}: {cause}");
        }
        if !others.is_empty() {
            text = format!("{text} ({})", others.join(", "));
        }
        writeln!(writer, "{level}: {}", sanitize(&text).split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The parts of an event.
#[derive(Debug, Default)]
struct EventSentence {
    text: String,
    cause: String,
    others: Vec<String>,
}

impl Visit for EventSentence {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.text = value,
            "err" | "error" | "failure" | "why" | "reason" => self.cause = value,
            // Fields of events from the crate `log`.
            name if name.starts_with("log.") => {}
            name => self.others.push(format!("{} {value}", name.replace('_', " "))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::prelude::*;

    use super::PlainSentences;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_gets_sentences_without_a_path_of_the_code() {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber = tracing_subscriber::registry().with(layer.event_format(PlainSentences));
        tracing::subscriber::with_default(subscriber, || {
            let err = io::Error::other("it is in use");
            tracing::warn!(network = "web", %err, "the network stays");
            tracing::error!("the trail\nis \u{1b}[2Jfull");
            tracing::info!(container_name = %"db", "it is there");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let expected = "warning: the network stays: it is in use (network web)\n\
            error: the trail is \u{fffd}[2Jfull\nnote: it is there (container name db)\n";
        assert_eq!(written, expected);
    }
}
