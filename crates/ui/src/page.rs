//! The server of the page: files, calls and terminals.

use std::sync::Arc;

use coracle::MAX_BYTES;
use coracle_context::config::Config;
use coracle_context::{Code, Event, Failure};
use coracle_prepare::Process;
use coracle_transport::{HttpResponse, HttpService, PATIENCE, refusal};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, HeaderName, HeaderValue, LOCATION, SET_COOKIE, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

use crate::access::{Admission, PageAccess};
use crate::calls::PageCall;
use crate::responses::{content, json, streamed, with_type};
use crate::samples::{EVERY, UsageHistory};
use crate::{assets, files, terminal};

/// Headers of each answer. The terminal writes its colours as rules of a style sheet, so inline styles are allowed;
/// inline scripts are not.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The media type of a stream of events and an answer, one JSON object per line.
const LINES: &str = "application/x-ndjson";

/// Number of buffered events.
const EVENTS: usize = 256;

/// The server, shared by its connections.
pub(crate) struct PageServer {
    process: Process,
    access: PageAccess,
    history: UsageHistory,
    /// Running calls: they are finished or undone, also after the page is closed.
    calls: TaskTracker,
}

impl PageServer {
    pub(crate) fn new(process: Process, access: PageAccess, history: UsageHistory) -> Self {
        Self { process, access, history, calls: TaskTracker::new() }
    }

    /// Takes samples until the process ends.
    pub(crate) async fn sample(self: Arc<Self>) {
        let mut turns = interval(EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.process.context.call.cancel.run_until_cancelled(turns.tick()).await.is_some() {
            self.history.machines(&self.process, false).await;
        }
    }

    /// Waits for calls and terminals.
    pub(crate) async fn end(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    async fn route(&self, path: &str, request: Request<Incoming>) -> HttpResponse {
        let is_upgrade = request.headers().contains_key(UPGRADE);
        match (request.method(), path) {
            (&Method::GET, "terminal") if is_upgrade => terminal::upgrade(&self.process, &self.calls, request),
            (&Method::GET, "machines") => json(self.history.machines(&self.process, false).await),
            (&Method::POST, "machines") => json(self.history.machines(&self.process, true).await),
            (&Method::GET, "purposes") => json(purposes(&self.process.context.config)),
            (&Method::GET, path) if path.starts_with("usage/") => {
                json(self.history.of_container(path.trim_start_matches("usage/")))
            }
            (&Method::GET, path) if path.starts_with("terminals/") => {
                json(terminal::list(&self.process, path.trim_start_matches("terminals/")).await)
            }
            (&Method::GET, path) if path.starts_with("files/") => {
                files::list(&self.process, path.trim_start_matches("files/"), request.uri().query()).await
            }
            (&Method::GET, path) if path.starts_with("file/") => {
                files::content(&self.process, path.trim_start_matches("file/"), request.uri().query()).await
            }
            (&Method::POST, "call") => self.call(request).await,
            (&Method::GET, path) => match assets::find(path) {
                Some(asset) => content(asset.media_type, Bytes::from_static(asset.content.as_bytes())),
                None => refusal(StatusCode::NOT_FOUND, "there is no such page"),
            },
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "pages are GET, and calls are POST"),
        }
    }

    async fn call(&self, request: Request<Incoming>) -> HttpResponse {
        let is_streamed = request.headers().get(ACCEPT).is_some_and(|it| it == LINES);
        let body = Limited::new(request.into_body(), MAX_BYTES).collect();
        let body = match tokio::time::timeout(PATIENCE, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "the call is too large, or did not come whole"),
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the call took too long to come"),
        };
        let call = match PageCall::parse(&body) {
            Ok(call) => call,
            Err(failure) => return json(failure.answer(None)),
        };
        if is_streamed {
            return self.stream(call);
        }
        let process = self.process.clone();
        let answer = self.calls.spawn(async move { Box::pin(call.answer(&process, None)).await }).await;
        json(answer.unwrap_or_else(|err| Failure::new(Code::Internal, err.to_string()).answer(None)))
    }

    /// Answers with a line for each event, the last of which contains the answer. If the page is closed, the call
    /// continues.
    fn stream(&self, call: PageCall) -> HttpResponse {
        let (sender, lines) = mpsc::channel::<Bytes>(EVENTS);
        let line = |event: &Value| Bytes::from(format!("{event}\n"));
        let process = self.process.clone();
        self.calls.spawn(async move {
            // A slow page misses events, but not the answer.
            let mut on_event = |event: Event| drop(sender.try_send(line(&event.line())));
            let answer = Box::pin(call.answer(&process, Some(&mut on_event))).await;
            drop(sender.send(line(&json!({ "event": "result", "result": answer }))).await);
        });
        with_type(LINES, streamed(lines))
    }
}

impl HttpService for PageServer {
    fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
        let refused = match self.access.admit(head) {
            Admission::Path(_) | Admission::SetCookie => return None,
            Admission::Foreign => foreign(),
            Admission::NoToken => no_token(),
        };
        Some(with_headers(refused))
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        let (head, body) = request.into_parts();
        let response = match self.access.admit(&head) {
            Admission::Path(path) => self.route(&path, Request::from_parts(head, body)).await,
            Admission::SetCookie => redirect(&self.access),
            Admission::Foreign => foreign(),
            Admission::NoToken => no_token(),
        };
        with_headers(response)
    }
}

/// Lists the purposes for the dialog that creates a container, which has no field for a repository to inspect.
fn purposes(config: &Config) -> Map<String, Value> {
    let purposes = config.purposes().into_iter().filter(|purpose| !purpose.is_detected());
    let names = purposes.map(|purpose| Value::from(purpose.as_str())).collect();
    Map::from_iter([("success".to_owned(), true.into()), ("purposes".to_owned(), names)])
}

fn foreign() -> HttpResponse {
    refusal(StatusCode::FORBIDDEN, "the request means another server")
}

fn no_token() -> HttpResponse {
    refusal(StatusCode::UNAUTHORIZED, "open the address that `coracle ui` printed: it has the token")
}

fn with_headers(mut response: HttpResponse) -> HttpResponse {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn redirect(access: &PageAccess) -> HttpResponse {
    let mut response = refusal(StatusCode::SEE_OTHER, "");
    let headers = [(SET_COOKIE, access.cookie()), (LOCATION, access.prefix().to_owned())];
    for (name, text) in headers {
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_offers_built_in_and_configured_purposes_except_the_detected_one() {
        let config = Config::read("[profiles.mine]\nimage = \"debian:12\"\n", false).unwrap();
        let names = purposes(&config).remove("purposes").unwrap();
        let has = |name: &str| names.as_array().unwrap().contains(&name.into());
        assert!(has("python") && has("mine") && !has("try-repo"), "{names}");
    }
}
