//! What we log, and where to.

use coracle::config::Level;
use coracle::{Context, Frontend};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::{metrics, timings};

/// Writes what we log to standard error. Other people's libraries are heard from warnings on, and so are we on the
/// command line, where the person sees progress of its own, and beside a program, whose standard error it is.
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
    // Of the requests of a client that has gone it says that they failed, as errors: an end of theirs like another.
    let answers = if level >= LevelFilter::DEBUG { others } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(others).with_target("coracle", level);
    let targets = targets.with_target("rmcp::service", answers);
    // A second one in the same process (a test) keeps the first.
    let traces = cx.host.trace_service().map(|it| coracle_telemetry::trace_layer(&it)).transpose();
    let (traces, fault) = traces.map_or_else(|err| (None, Some(err)), |layer| (layer, None));
    let layers = tracing_subscriber::registry().with(lines.with_filter(targets));
    let _ = layers.with(timings::layer()).with(metrics::layer()).with(traces).try_init();
    if let Some(err) = fault {
        tracing::warn!("no traces are sent: {err}");
    }
}
