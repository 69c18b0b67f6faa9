//! Traces for OpenTelemetry, sent to the collector that the standard variables name.
//!
//! **Invariant:** an unreachable collector fails no command, and delays none by more than [`LIMIT`].

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::spans::spans_only;

/// Time limit of a request to the collector, and of the flush at the end of a process.
const LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of bytes read of a collector's reply.
const MAX_ANSWER: usize = 64 * 1024;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that sends spans as traces of `service`. Standard variables configure the collector, its headers and the
/// sampling.
///
/// # Errors
/// Invalid variables.
pub fn trace_layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    service: &str,
) -> Result<impl Layer<S> + use<S>, Box<dyn Error>> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(CollectorClient::default())
        // The next batch is the next attempt.
        .with_retry_policy(RetryPolicy::disabled())
        .build()?;
    let resource = Resource::builder().with_service_name(service.to_owned()).build();
    let exporter = NamedSpans(exporter);
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    let provider = PROVIDER.get_or_init(|| provider);
    let layer = OpenTelemetryLayer::new(provider.tracer("coracle"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    Ok(layer.with_filter(spans_only()))
}

/// Sends the remaining spans, for at most two seconds.
pub fn end_traces() {
    let ended = PROVIDER.get().map(|it| it.shutdown_with_timeout(LIMIT));
    if let Some(Err(err)) = ended {
        warn_once(&err);
    }
}

fn warn_once(err: &dyn std::fmt::Display) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!("traces could not be sent to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`: {err}");
    }
}

/// Sends spans under the name of their operation or verb, with the status of their outcome.
#[derive(Debug)]
struct NamedSpans(SpanExporter);

impl opentelemetry_sdk::trace::SpanExporter for NamedSpans {
    fn export(&self, mut batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        batch.iter_mut().for_each(complete);
        self.0.export(batch)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn complete(span: &mut SpanData) {
    let attribute = |names: [&str; 2]| {
        let found = span.attributes.iter().find(|it| names.contains(&it.key.as_str()));
        found.map(|it| it.value.as_str().into_owned())
    };
    let (name, engine) = (attribute(["name", "verb"]), attribute(["engine", ""]));
    let outcome = attribute(["code", "outcome"]);
    let name = engine.into_iter().chain(name).collect::<Vec<_>>().join(" ");
    if let Some(error) = outcome.filter(|it| it != "ok") {
        span.status = Status::error(error);
    }
    span.name = name.into();
}

/// Requests run on the exporter's own thread, each on a new runtime: at the end of a process there is no other.
#[derive(Debug, Default)]
struct CollectorClient(());

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = send(request);
        if let Err(err) = &sent {
            warn_once(err);
        } else if let Ok(response) = &sent
            && !response.status().is_success()
        {
            warn_once(&response.status());
        }
        sent
    }
}

fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = async {
        if request.uri().scheme_str() != Some("https") {
            return answer_of(HttpConnector::new(), request).await;
        }
        // Certificates are loaded here, which is slow.
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new().with_provider_and_platform_verifier(provider)?;
        answer_of(tls.https_only().enable_http1().build(), request).await
    };
    runtime.block_on(async { tokio::time::timeout(LIMIT, answer).await })?
}

async fn answer_of<C>(connector: C, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
