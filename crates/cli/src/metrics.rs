//! `--metrics`: serves metrics to Prometheus.

use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgMatches};
use coracle_context::{Context, Failure};
use coracle_telemetry::{Metrics, MetricsServer};
use coracle_transport::Http;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Set for a server with `--metrics`.
static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();

/// The option.
pub(crate) fn arg() -> Arg {
    let about = "Serve metrics to Prometheus of this machine over HTTP as well, at 127.0.0.1:PORT";
    crate::operation_args::option("metrics", "ADDRESS:PORT", about)
}

/// The layer that counts, with `--metrics`.
pub(crate) fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S>> {
    METRICS.get().map(|metrics| coracle_telemetry::layer(|span| metrics.observe(span)))
}

/// Starts counting, with `--metrics`. Call it before logging starts.
///
/// # Errors
/// An invalid address, or one that other machines can reach.
pub(crate) fn enable(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(http) = http(matches) {
        http.address()?;
        METRICS.get_or_init(Arc::default);
    }
    Ok(())
}

/// Serves the metrics, with `--metrics`, until the process ends or this is dropped.
///
/// # Errors
/// The server cannot listen.
pub(crate) async fn serve(matches: &ArgMatches, cx: &Context) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    let Some((http, metrics)) = http(matches).zip(METRICS.get()) else { return Ok(None) };
    let server = MetricsServer::open(&http, metrics.clone(), cx).await?;
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(server.run()))))
}

fn http(matches: &ArgMatches) -> Option<Http> {
    let address = matches.get_one::<String>("metrics")?.clone();
    Some(Http { flag: "metrics", address, token_file: None })
}
