//! The control plane: creates, lists, extends, forks and kills sandboxes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_transport::HttpResponse;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{ApiError, answer, decoded, fields, no_content, query, value};
use crate::sandboxes::{NewSandbox, Sandbox, SandboxRecord, Sandboxes};

/// The version of E2B's `envd` whose procedures this server has. SDKs choose by it what they call.
pub(crate) const ENVD_VERSION: &str = "0.5.6";

/// Time to live without a request for another one, as in E2B's API.
const TIMEOUT: u64 = 15;

/// The same for a connection to a sandbox, and in the second version of the API, as in E2B's SDKs.
const CONNECTED: u64 = 300;

/// Largest number of sandboxes on a page, and of forks in a call.
const PAGE: usize = 100;

#[derive(Debug, Deserialize)]
struct CreateRequest {
    #[serde(rename = "templateID", default)]
    template: String,
    timeout: Option<u64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(rename = "envVars", default)]
    env: BTreeMap<String, String>,
    allow_internet_access: Option<bool>,
    /// Whatever else is given.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct TimeoutRequest {
    timeout: Option<u64>,
    duration: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct SnapshotRequest {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ForkRequest {
    timeout: Option<u64>,
    count: Option<usize>,
}

/// A request of the control plane.
pub(crate) struct ControlCall<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// The control plane of a server.
pub(crate) struct Control {
    pub(crate) sandboxes: Arc<Sandboxes>,
    /// What follows the id in the name of a sandbox's host, with the port of the server.
    pub(crate) domain: String,
}

impl Control {
    pub(crate) async fn answer(&self, call: &ControlCall<'_>) -> Result<HttpResponse, ApiError> {
        let segments: Vec<&str> = call.path.trim_matches('/').split('/').collect();
        match (call.method.as_str(), segments.as_slice()) {
            ("GET", ["health"]) => Ok(no_content()),
            ("POST", ["sandboxes"]) => self.create(fields(call.body)?, TIMEOUT).await,
            ("POST", ["v2", "sandboxes"]) => self.create(fields(call.body)?, CONNECTED).await,
            ("GET", ["sandboxes"]) => Ok(answer(StatusCode::OK, &json!(self.listed(call)?))),
            ("GET", ["v2", "sandboxes"]) => page(&query(call.query), &self.listed(call)?),
            ("GET", ["snapshots"]) => self.snapshots(call).await,
            ("POST", ["sandboxes", id, "snapshots"]) => {
                let request: SnapshotRequest = fields(call.body)?;
                self.find(id)?;
                Ok(answer(StatusCode::CREATED, &self.sandboxes.snapshot(id, request.name).await?))
            }
            ("DELETE", ["templates", id]) => match self.sandboxes.remove_snapshot(&decoded(id)).await? {
                true => Ok(no_content()),
                false => Err(ApiError::not_found(&format!("template \"{id}\""))),
            },
            ("GET", ["sandboxes", "metrics"]) => Ok(answer(StatusCode::OK, &json!({ "sandboxes": {} }))),
            ("GET", ["sandboxes", id]) => {
                let sandbox = self.find(id)?;
                Ok(answer(StatusCode::OK, &self.detail(&sandbox.record())?))
            }
            ("DELETE", ["sandboxes", id]) => {
                self.find(id)?;
                if self.sandboxes.kill(id).await? { Ok(no_content()) } else { Err(missing(id)) }
            }
            ("GET", ["sandboxes", id, "metrics"]) => self.find(id).map(|_| answer(StatusCode::OK, &json!([]))),
            ("GET", ["sandboxes", id, "logs"] | ["v2", "sandboxes", id, "logs"]) => {
                self.find(id).map(|_| answer(StatusCode::OK, &json!({ "logs": [], "logEntries": [] })))
            }
            ("POST", ["sandboxes", id, "timeout"]) => {
                let request: TimeoutRequest = fields(call.body)?;
                let timeout = request.timeout.ok_or_else(|| ApiError::bad_request("`timeout` is missing"))?;
                let sandbox = self.find(id)?;
                self.sandboxes.set_timeout(&sandbox, Duration::from_secs(timeout), false).await?;
                Ok(no_content())
            }
            ("POST", ["sandboxes", id, "refreshes"]) => {
                let request: TimeoutRequest = fields(call.body)?;
                let duration = Duration::from_secs(request.duration.unwrap_or(TIMEOUT));
                let sandbox = self.find(id)?;
                self.sandboxes.set_timeout(&sandbox, duration, true).await?;
                Ok(no_content())
            }
            ("POST", ["sandboxes", id, "connect" | "resume"] | ["v2", "sandboxes", id, "connect"]) => {
                let request: TimeoutRequest = fields(call.body)?;
                let sandbox = self.find(id)?;
                let timeout = Duration::from_secs(request.timeout.unwrap_or(CONNECTED));
                self.sandboxes.set_timeout(&sandbox, timeout, true).await?;
                Ok(answer(StatusCode::OK, &self.described(&sandbox.record())?))
            }
            ("POST", ["sandboxes", id, "fork"]) => self.fork(id, fields(call.body)?).await,
            (_, ["sandboxes", _, "pause" | "network"] | ["templates" | "volumes" | "secrets", ..]) => {
                let message = format!("{} {} is not served by Coracle", call.method, call.path);
                Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, message))
            }
            _ => Err(ApiError::not_found(&format!("{} {}", call.method, call.path))),
        }
    }

    async fn create(&self, request: CreateRequest, timeout: u64) -> Result<HttpResponse, ApiError> {
        // What is left out silently could be a limit that the caller relies on.
        let is_nothing = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let is_off = |value: &Value| is_nothing(value) || value["enabled"] == json!(false);
        let is_known = |name: &str, value: &Value| match name {
            // Tokens are always required, and there is no pause that this would be about.
            "secure" | "autoPauseMemory" => true,
            "autoResume" => is_off(value),
            _ => is_nothing(value),
        };
        if let Some((name, _)) = request.others.iter().find(|(name, value)| !is_known(name, value)) {
            return Err(ApiError::bad_request(format!("`{name}` is not supported by Coracle's server of E2B's API")));
        }
        let new = NewSandbox {
            template: request.template,
            timeout: Duration::from_secs(request.timeout.unwrap_or(timeout)),
            metadata: request.metadata,
            env: request.env,
            internet: request.allow_internet_access,
        };
        let record = self.sandboxes.create(new).await?;
        Ok(answer(StatusCode::CREATED, &self.described(&record)?))
    }

    async fn fork(&self, id: &str, request: ForkRequest) -> Result<HttpResponse, ApiError> {
        let count = request.count.unwrap_or(1);
        if !(1..=PAGE).contains(&count) {
            return Err(ApiError::bad_request(format!("`count` is from 1 to {PAGE}")));
        }
        let of = self.find(id)?;
        let timeout = Duration::from_secs(request.timeout.unwrap_or(TIMEOUT));
        let mut results = Vec::new();
        for _ in 0..count {
            results.push(match self.sandboxes.fork(&of, timeout).await {
                Ok(record) => json!({ "sandbox": self.described(&record)? }),
                Err(failure) => json!({ "error": { "code": 500, "message": failure.message } }),
            });
        }
        Ok(answer(StatusCode::CREATED, &json!(results)))
    }

    fn find(&self, id: &str) -> Result<Arc<Sandbox>, ApiError> {
        self.sandboxes.find(id).ok_or_else(|| missing(id))
    }

    /// Those that a query selects, newest first.
    fn listed(&self, call: &ControlCall<'_>) -> Result<Vec<Value>, ApiError> {
        let pairs = query(call.query);
        // SDKs encode the names and values within this value once more.
        let wanted: Vec<_> =
            query(value(&pairs, "metadata")).iter().map(|(name, value)| (decoded(name), decoded(value))).collect();
        let states = value(&pairs, "state").unwrap_or_default();
        let is_running = states.is_empty() || states.split(',').any(|it| it == "running");
        let template = value(&pairs, "template").filter(|it| !it.is_empty());
        let after = match value(&pairs, "startedAfter").filter(|it| !it.is_empty()) {
            None => Timestamp::MIN,
            Some(text) => text.parse().map_err(|_| ApiError::bad_request("`startedAfter` is not a time"))?,
        };
        let mut records = self.sandboxes.records();
        records.retain(|it| {
            is_running
                && it.started >= after
                && template.is_none_or(|template| template == it.template)
                && wanted.iter().all(|(name, value)| it.metadata.get(name) == Some(value))
        });
        records.sort_by(|one, other| (other.started, &other.id).cmp(&(one.started, &one.id)));
        match value(&pairs, "order") {
            None | Some("" | "desc") => {}
            Some("asc") => records.reverse(),
            Some(_) => return Err(ApiError::bad_request("`order` is `asc` or `desc`")),
        }
        Ok(records.iter().map(listed).collect())
    }

    async fn snapshots(&self, call: &ControlCall<'_>) -> Result<HttpResponse, ApiError> {
        let pairs = query(call.query);
        let text = |name: &str| value(&pairs, name).filter(|it| !it.is_empty());
        page(&pairs, &self.sandboxes.snapshots(text("sandboxID"), text("name")).await?)
    }

    fn described(&self, record: &SandboxRecord) -> Result<Value, ApiError> {
        let mut described = json!({
            "templateID": record.template,
            "sandboxID": record.id,
            "clientID": "coracle",
            "envdVersion": ENVD_VERSION,
            "domain": self.domain,
        });
        described["envdAccessToken"] = json!(self.sandboxes.access_token(&record.id)?);
        Ok(described)
    }

    fn detail(&self, record: &SandboxRecord) -> Result<Value, ApiError> {
        let mut detail = listed(record);
        detail["domain"] = json!(self.domain);
        detail["allowInternetAccess"] = json!(record.internet);
        detail["envdAccessToken"] = json!(self.sandboxes.access_token(&record.id)?);
        Ok(detail)
    }
}

fn listed(record: &SandboxRecord) -> Value {
    let time = |it: Timestamp| it.to_string();
    json!({
        "templateID": record.template,
        "alias": record.template,
        "sandboxID": record.id,
        "clientID": "coracle",
        "startedAt": time(record.started),
        "endAt": time(record.ends),
        "cpuCount": record.cpus.ceil().max(1.0) as u64,
        "memoryMB": record.memory_bytes >> 20,
        "diskSizeMB": 0,
        "metadata": record.metadata,
        "state": "running",
        "envdVersion": ENVD_VERSION,
    })
}

/// A page of a list, as a query selects it.
fn page(query: &[(String, String)], all: &[Value]) -> Result<HttpResponse, ApiError> {
    let number = |name: &str, usual: usize| match value(query, name) {
        None | Some("") => Ok(usual),
        Some(text) => text.parse().map_err(|_| ApiError::bad_request(format!("`{name}` is not a number"))),
    };
    let (from, limit) = (number("nextToken", 0)?, number("limit", PAGE)?.clamp(1, PAGE));
    let page: Vec<_> = all.iter().skip(from).take(limit).collect();
    let mut response = answer(StatusCode::OK, &json!(page));
    let headers = response.headers_mut();
    headers.insert("x-total-running", all.len().into());
    if from.saturating_add(limit) < all.len() {
        headers.insert("x-next-token", (from + limit).into());
    }
    Ok(response)
}

fn missing(id: &str) -> ApiError {
    ApiError::not_found(&format!("sandbox \"{id}\""))
}
