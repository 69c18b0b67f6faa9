//! The same calls over HTTP: `POST /call`, `POST /tools/{name}` and `GET /openapi.json`.
//!
//! **Invariant:** only the head of a request is read before its token is checked.
//! **Invariant:** a call whose client has disconnected is cancelled.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use coracle::{CallInput, MAX_BYTES, parse_object};
use coracle_context::{Code, Failure};
use coracle_prepare::Process;
use coracle_transport::{Http, HttpResponse, HttpService, LEAVING, PATIENCE, Session, Token, refusal, refuse_stranger};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::call::{self, CallTask, EventSender};
use crate::catalog::{Callee, Catalog};
use crate::openapi;

/// Maximum number of events of one call that its client has not read.
const EVENTS: usize = 8;

/// Serves until a signal arrives. Waits for `upkeep` at the end.
pub(crate) async fn serve(http: &Http, process: &Process, upkeep: impl Future<Output = ()>) -> Result<(), Failure> {
    let cx = &process.context;
    let default_file = cx.state()?.serve_token();
    let (listener, token) = http.listen(cx, &default_file).await?;
    let session = Session::new(process.clone());
    let document = openapi::document(process).to_string().into();
    let catalog = Catalog::for_process(process);
    let api = Arc::new(Api { token, session: session.clone(), process: process.clone(), catalog, document });
    let (address, file) = (listener.address, http.token_file(cx, &default_file).display().to_string());
    // A closed standard error is ignored.
    let _ = writeln!(io::stderr(), "serving calls at http://{address}/call; clients need the token in {file}");
    let open = listener.accept(&api, cx).await;
    let leave = async { tokio::join!(open.shutdown(), Box::pin(session.end()), process.end(), upkeep) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("the session's containers were not all removed in time; the next call continues");
    }
    Ok(())
}

/// Answers requests. All clients that know the token share one session.
struct Api {
    token: Token,
    session: Session,
    process: Process,
    catalog: Catalog,
    document: Bytes,
}

/// The route of a request.
enum ApiRoute {
    Document,
    Call(Callee),
    /// An unknown route.
    Refused(HttpResponse),
}

impl HttpService for Api {
    fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
        refuse_stranger(&self.token, head)
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        let (head, body) = request.into_parts();
        let callee = match self.route(&head.method, head.uri.path()) {
            ApiRoute::Call(callee) => callee,
            ApiRoute::Document => return json(StatusCode::OK, self.document.clone()),
            ApiRoute::Refused(response) => return response,
        };
        let text = match tokio::time::timeout(PATIENCE, collected(body)).await {
            Ok(Ok(Some(text))) => text,
            Ok(Ok(None)) => return failed(StatusCode::PAYLOAD_TOO_LARGE, &too_large()),
            Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "the request's body did not come whole"),
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request's body took too long"),
        };
        let arguments = match callee {
            Callee::Operation => CallInput::Text(text),
            Callee::Tool(_) => match arguments(&text) {
                Ok(arguments) => CallInput::Object(arguments),
                Err(failure) => return failed(StatusCode::BAD_REQUEST, &failure),
            },
        };
        let task = CallTask { callee, arguments, input: None };
        let accepted = head.headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
        match accepted.contains(EVENT_STREAM) {
            true => self.stream(task),
            false => self.whole(task).await,
        }
    }
}

const EVENT_STREAM: &str = "text/event-stream";

impl Api {
    fn route(&self, method: &Method, path: &str) -> ApiRoute {
        let (route, allowed) = match path {
            "/openapi.json" => (ApiRoute::Document, Method::GET),
            "/call" => (ApiRoute::Call(Callee::Operation), Method::POST),
            _ => match path.strip_prefix("/tools/").map(|name| self.catalog.tool(name)) {
                Some(Ok(callee)) => (ApiRoute::Call(callee), Method::POST),
                Some(Err(failure)) => return ApiRoute::Refused(failed(StatusCode::NOT_FOUND, &failure)),
                None => {
                    let there_are = "there are /call, /tools/{name} and /openapi.json";
                    return ApiRoute::Refused(refusal(StatusCode::NOT_FOUND, there_are));
                }
            },
        };
        if *method == allowed {
            return route;
        }
        let why = "calls are POST, and /openapi.json is GET";
        ApiRoute::Refused(refusal(StatusCode::METHOD_NOT_ALLOWED, why))
    }

    /// Answers with the result alone. If the client disconnects, this future and its guard are dropped.
    async fn whole(&self, task: CallTask) -> HttpResponse {
        let cancel = self.process.context.call.cancel.child_token();
        let (process, withdrawn) = (self.process.clone(), cancel.clone());
        let guard = cancel.drop_guard();
        let answer = self.session.held().spawn(async move { task.answer::<()>(&process, withdrawn, None).await }).await;
        let _ = guard.disarm();
        let answer = answer.unwrap_or_else(|err| Failure::internal(err).answer(None));
        let is_understood = answer.get("code").is_none_or(|it| it != Code::InvalidJson.word().as_str());
        let status = if is_understood { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        json(status, Value::Object(answer).to_string().into())
    }

    /// Answers with events; the last one is the result.
    fn stream(&self, task: CallTask) -> HttpResponse {
        let cancel = self.process.context.call.cancel.child_token();
        let (sender, events) = mpsc::channel(EVENTS);
        let (process, withdrawn, result) = (self.process.clone(), cancel.clone(), sender.clone());
        drop(self.session.held().spawn(async move {
            let answer = task
                .answer(&process, withdrawn, Some(EventSender { to: sender, form: |event| call::line(&event) }))
                .await;
            let last = Map::from_iter([("event".into(), "result".into()), ("result".into(), answer.into())]);
            // Without a reader the call was cancelled.
            let _ = result.send(Value::Object(last)).await;
        }));
        let mut response = Response::new(EventStream { events, _guard: cancel.drop_guard() }.boxed());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Server-sent events as they occur. Dropping the stream cancels the call if it still runs.
struct EventStream {
    events: mpsc::Receiver<Value>,
    _guard: DropGuard,
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(cx).map(|event| event.map(|it| Ok(Frame::data(server_sent(it)))))
    }
}

/// The event's name, and its other fields as data; for the result, the answer itself.
fn server_sent(mut event: Value) -> Bytes {
    let name = event["event"].take();
    let data = match event.get_mut("result") {
        Some(result) => result.take(),
        None => {
            if let Some(fields) = event.as_object_mut() {
                fields.remove("event");
            }
            event
        }
    };
    format!("event: {}\ndata: {data}\n\n", name.as_str().unwrap_or_default()).into()
}

/// The body, unless it is larger than the largest call.
async fn collected(mut body: Incoming) -> hyper::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(bytes) = frame?.data_ref() {
            if text.len() + bytes.len() > MAX_BYTES {
                return Ok(None);
            }
            text.extend_from_slice(bytes);
        }
    }
    Ok(Some(text))
}

/// The arguments of a tool; an empty body is an empty object.
fn arguments(text: &[u8]) -> Result<Map<String, Value>, Failure> {
    if text.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    parse_object(text).map_err(|failure| failure.hint("send the tool's arguments as one object"))
}

fn too_large() -> Failure {
    Failure::new(Code::InvalidJson, format!("the body is larger than {MAX_BYTES} bytes"))
        .hint("send a file in parts: `write_file` with `mode` `create`, then `append`; or copy it with `copy_in`")
}

fn failed(status: StatusCode, failure: &Failure) -> HttpResponse {
    json(status, Value::Object(failure.answer(None)).to_string().into())
}

fn json(status: StatusCode, text: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(text).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
