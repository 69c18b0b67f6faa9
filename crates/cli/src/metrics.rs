//! `--metrics`: serves metrics to Prometheus.

#[cfg(feature = "metrics")]
use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgMatches};
use coracle_context::{Context, Failure};
#[cfg(feature = "metrics")]
use coracle_telemetry::{Metrics, MetricsServer};
#[cfg(feature = "metrics")]
use coracle_transport::Http;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Set for a server with `--metrics`.
#[cfg(feature = "metrics")]
static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();

/// The option, if this program is built with metrics.
#[cfg(feature = "metrics")]
pub(crate) fn arg() -> Option<Arg> {
    let about = "Serve metrics to Prometheus of this machine over HTTP as well, at 127.0.0.1:PORT";
    Some(crate::operation_args::option("metrics", "ADDRESS:PORT", about))
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn arg() -> Option<Arg> {
    None
}

/// The layer that counts, with `--metrics`.
#[cfg(feature = "metrics")]
pub(crate) fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S>> {
    METRICS.get().map(|metrics| coracle_telemetry::layer(|span| metrics.observe(span)))
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S>> {
    None::<tracing_subscriber::layer::Identity>
}

/// Starts counting, with `--metrics`. Call it before logging starts.
///
/// # Errors
/// An invalid address, or one that other machines can reach.
#[cfg(feature = "metrics")]
pub(crate) fn enable(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(http) = http(matches) {
        http.address()?;
        METRICS.get_or_init(Arc::default);
    }
    Ok(())
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn enable(_: &ArgMatches) -> Result<(), Failure> {
    Ok(())
}

/// Serves the metrics, with `--metrics`, until the process ends or this is dropped.
///
/// # Errors
/// The server cannot listen.
#[cfg(feature = "metrics")]
pub(crate) async fn serve(matches: &ArgMatches, cx: &Context) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    let Some((http, metrics)) = http(matches).zip(METRICS.get()) else { return Ok(None) };
    let server = MetricsServer::open(&http, metrics.clone(), cx).await?;
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(server.run()))))
}

#[cfg(not(feature = "metrics"))]
pub(crate) async fn serve(_: &ArgMatches, _: &Context) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    Ok(None)
}

#[cfg(feature = "metrics")]
fn http(matches: &ArgMatches) -> Option<Http> {
    let address = matches.get_one::<String>("metrics")?.clone();
    Some(Http { flag: "metrics", address, token_file: None })
}
