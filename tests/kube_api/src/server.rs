//! The handler of all requests: checks faults and credentials, then calls the part that serves it.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Response, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::audit::AuditLine;
use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::kinds::{Target, discovery};
use crate::query::Query;
use crate::status::{Refusal, json_response};
use crate::verbs::{self, ObjectRequest};
use crate::{control, log, registry, stream, watch};

/// As of a real server.
const MAX_BODY: usize = 3 << 20;

/// Serves a cluster until it is dropped.
pub(crate) async fn serve(cluster: Arc<Cluster>, listener: std::net::TcpListener) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let router = axum::Router::new().fallback(handle).with_state(cluster);
    axum::serve(listener.tap_nodelay(), router).await
}

/// Answers of a few bytes must not wait for each other.
trait NoDelay {
    type Listener;
    fn tap_nodelay(self) -> Self::Listener;
}

impl NoDelay for TcpListener {
    type Listener = axum::serve::TapIo<Self, fn(&mut tokio::net::TcpStream)>;

    fn tap_nodelay(self) -> Self::Listener {
        use axum::serve::ListenerExt as _;
        let set: fn(&mut tokio::net::TcpStream) = |stream| {
            // Slower, and no other.
            let _ = stream.set_nodelay(true);
        };
        self.tap_io(set)
    }
}

async fn handle(State(cluster): State<Arc<Cluster>>, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let (method, uri) = (parts.method.to_string(), parts.uri.to_string());
    let body = to_bytes(body, MAX_BODY).await;
    let text = body.as_ref().map(|it| String::from_utf8_lossy(it).into_owned()).unwrap_or_default();
    let response = match body {
        Ok(_) => serve_one(&cluster, &mut parts, &text).await,
        Err(_) => Err(Refusal::new(413, "RequestEntityTooLarge", "the request is too large")),
    };
    let response = response.unwrap_or_else(|refusal| refusal.response());
    cluster.audit.note(AuditLine { method, uri, body: text, code: response.status().as_u16() });
    response
}

async fn serve_one(cluster: &Arc<Cluster>, parts: &mut Parts, body: &str) -> Result<Response<Body>, Refusal> {
    let path = parts.uri.path().to_owned();
    if let Some(rest) = path.strip_prefix("/v2/") {
        let login = parts.headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        return match cluster.registry_login.get() {
            Some(wanted) if login != Some(wanted) => Ok(registry::refuse()),
            _ => registry::serve(cluster, rest).await,
        };
    }
    if ["/healthz", "/readyz", "/livez"].contains(&path.as_str()) {
        return Ok(Response::new(Body::from("ok")));
    }
    let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
    if bearer.and_then(|it| it.strip_prefix("Bearer ")) != Some(cluster.token.as_str()) {
        return Err(Refusal::new(401, "Unauthorized", "Unauthorized"));
    }
    if let Some(verb) = path.strip_prefix("/test/") {
        return control::serve(cluster, verb, body);
    }
    let mut cut = None;
    for fault in cluster.faults.meet(parts.method.as_str(), &parts.uri.to_string()) {
        if let Fault::Slow(delay) = fault {
            tokio::time::sleep(delay).await;
        }
        if let Fault::CutStream(after) = fault {
            cut = Some(after);
        }
        if let Some(refusal) = fault.refusal() {
            return Err(refusal);
        }
    }
    if path == "/version" {
        return Ok(json_response(200, &version()));
    }
    if let Some(answer) = discovery(&path) {
        return Ok(json_response(200, &answer));
    }
    let missing = || Refusal::new(404, "NotFound", "the server could not find the requested resource");
    let installed = |it: &Target| cluster.has_agent_sandbox() || !it.kind.is_of_agent_sandbox();
    let target = Target::parse(&path).filter(installed).ok_or_else(missing)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    match target.subresource.as_deref() {
        None | Some("status") => {}
        Some("exec" | "attach") => {
            return stream::serve(cluster, &target, stream::StreamRequest { query, cut, parts }).await;
        }
        Some("log") => return log::serve(cluster, &target, &query).await,
        Some(_) => return Err(missing()),
    }
    if parts.method == "GET" && query.is_set("watch") {
        return watch::serve(cluster, &target, &query);
    }
    let body: Value = match body {
        "" => json!({}),
        text => {
            serde_json::from_str(text).map_err(|err| Refusal::bad_request(format!("the body is no JSON: {err}")))?
        }
    };
    let accept = parts.headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let metadata_only = accept.contains("as=PartialObjectMetadata");
    let request = ObjectRequest { cluster, target: &target, query: &query, body, metadata_only };
    verbs::serve(parts.method.as_str(), &request)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0-fake", "gitCommit": "0", "gitTreeState": "clean",
        "buildDate": "2025-04-23T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
