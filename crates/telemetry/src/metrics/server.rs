//! `GET /metrics`.
//!
//! **Invariant:** a request without a loopback host and the token receives only a refusal.
//! **Invariant:** reads for an answer are not counted, traced or logged.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use coracle::UsageReading;
use coracle_context::{Context, Failure};
use coracle_transport::{Http, HttpResponse, HttpService, Listener, Token, refusal, refuse_stranger};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use super::Metrics;

/// Time limit for engines. Prometheus waits ten seconds by default.
const READING: Duration = Duration::from_secs(5);

const PATH: &str = "/metrics";

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// A server that listens for Prometheus.
#[derive(Debug)]
pub struct MetricsServer {
    listener: Listener,
    endpoint: Arc<MetricsEndpoint>,
}

#[derive(Debug)]
struct MetricsEndpoint {
    token: Token,
    metrics: Arc<Metrics>,
    cx: Context,
}

impl MetricsServer {
    /// Listens, and prints the address for the user.
    ///
    /// # Errors
    /// Why the server cannot listen.
    pub async fn open(http: &Http, metrics: Arc<Metrics>, cx: &Context) -> Result<Self, Failure> {
        let default_file = cx.state()?.metrics_token();
        let (listener, token) = http.listen(cx, &default_file).await?;
        let (address, file) = (listener.address, http.token_file(cx, &default_file).display().to_string());
        // A closed standard error is ignored.
        let _ = writeln!(io::stderr(), "serving metrics at http://{address}{PATH}; clients need the token in {file}");
        Ok(Self { listener, endpoint: Arc::new(MetricsEndpoint { token, metrics, cx: cx.clone() }) })
    }

    /// Serves until the process is to end.
    pub async fn run(self) {
        let open = self.listener.accept(&self.endpoint, &self.endpoint.cx).await;
        open.shutdown().await;
    }
}

impl HttpService for MetricsEndpoint {
    fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
        refuse_stranger(&self.token, head)
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "metrics are at /metrics");
        }
        if request.method() != Method::GET {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "metrics are read by GET");
        }
        let Ok(text) = self.metrics.text(self.readings().await.as_deref()) else {
            return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written");
        };
        let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
        response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
        response
    }
}

impl MetricsEndpoint {
    /// The containers of all sessions; none if an engine does not reply.
    async fn readings(&self) -> Option<Vec<UsageReading>> {
        let read = Box::pin(coracle::read_usage(&self.cx)).with_subscriber(Dispatch::none());
        tokio::time::timeout(READING, read).await.ok()?.ok()
    }
}
