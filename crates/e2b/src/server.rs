//! Routes requests: those that name a sandbox to its processes and files, all others to the control plane.
//!
//! **Invariant:** only the head of a request is read before its key or token is checked.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle::{PersonSession, audited};
use coracle_context::{Code, Context, Failure};
use coracle_transport::{HttpResponse, HttpService, PATIENCE, Token, is_local, refusal};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{ApiError, answer, no_content, query, value};
use crate::control::{Control, ControlCall};
use crate::filesystem::{MoveRequest, OfPath};
use crate::process::{OfProcess, StartRequest, StreamLimits, WAY};
use crate::rpc::{self, RpcCode, RpcError};
use crate::sandboxes::{Sandbox, Sandboxes};
use crate::signature::{FileSignature, is_same};
use crate::{files, filesystem};

/// The port of a sandbox's `envd`, in E2B's SDKs.
const ENVD_PORT: u16 = 49983;

/// Maximum size of a body that is read as a whole.
const MAX_BODY: usize = 8 << 20;

/// The server.
pub(crate) struct Api {
    pub(crate) key: Token,
    pub(crate) control: Control,
}

/// The sandbox and the port that a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) sandbox: String,
    pub(crate) port: u16,
}

/// The sandbox that the head of a request names: by headers, or by a host such as `49983-ID.localhost`.
pub(crate) fn target(headers: &HeaderMap) -> Option<Target> {
    let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
    if let Some(sandbox) = text("e2b-sandbox-id") {
        let port = text("e2b-sandbox-port").map_or(Some(ENVD_PORT), |it| it.parse().ok())?;
        return Some(Target { sandbox: sandbox.to_owned(), port });
    }
    let label = text("host")?.split('.').next()?;
    let (port, sandbox) = label.split_once('-')?;
    Some(Target { sandbox: sandbox.to_owned(), port: port.parse().ok()? })
}

/// Whether a request is for this machine. Names below `localhost` lead here, too.
fn is_here(headers: &HeaderMap) -> bool {
    let mut own = headers.clone();
    if let Some(host) = headers.get(HOST).and_then(|it| it.to_str().ok()) {
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        if name.ends_with(".localhost") {
            let here = if port.is_empty() { "localhost".to_owned() } else { format!("localhost:{port}") };
            if let Ok(here) = here.parse() {
                own.insert(HOST, here);
            }
        }
    }
    is_local(&own)
}

impl HttpService for Api {
    fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
        if !is_here(&head.headers) {
            return Some(refusal(
                StatusCode::FORBIDDEN,
                "the request is for another machine, or comes from another site",
            ));
        }
        match self.target(head) {
            Some(target) => self.refuse_sandbox(head, &target),
            None if head.method == Method::GET && head.uri.path() == "/health" => None,
            None => {
                let key = head.headers.get("x-api-key").map(HeaderValue::as_bytes);
                let is_known = key.is_some_and(|it| self.key.matches(it)) || self.key.opens(&head.headers);
                (!is_known)
                    .then(|| ApiError::new(StatusCode::UNAUTHORIZED, "the API key is wrong or missing").response())
            }
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        let (head, body) = request.into_parts();
        let answered = match self.target(&head) {
            Some(target) => Box::pin(self.of_sandbox(&head, body, &target)).await,
            None => self.of_control(&head, body).await,
        };
        answered.unwrap_or_else(|err| err.response())
    }
}

impl Api {
    /// The sandbox that a request is for. A signed address of a file does not name it: it is the one whose token has signed.
    fn target(&self, head: &Parts) -> Option<Target> {
        target(&head.headers).or_else(|| {
            let (signature, sandboxes) = (FileSignature::of(head)?, &self.control.sandboxes);
            let has_signed = |id: &str| sandboxes.access_token(id).is_ok_and(|it| signature.is_by(&it));
            let signer = sandboxes.records().into_iter().find(|it| has_signed(&it.id))?;
            Some(Target { sandbox: signer.id, port: ENVD_PORT })
        })
    }

    /// Refuses a request without the token of its sandbox, or a signature by it.
    fn refuse_sandbox(&self, head: &Parts, target: &Target) -> Option<HttpResponse> {
        if self.control.sandboxes.find(&target.sandbox).is_none() {
            return Some(no_sandbox(target));
        }
        if target.port != ENVD_PORT {
            return Some(ApiError::new(StatusCode::NOT_IMPLEMENTED, "ports of sandboxes are not forwarded").response());
        }
        if head.uri.path() == "/health" {
            return None;
        }
        let Ok(token) = self.control.sandboxes.access_token(&target.sandbox) else {
            return Some(refusal(StatusCode::INTERNAL_SERVER_ERROR, "the token cannot be computed"));
        };
        if head.headers.get("x-access-token").is_some_and(|it| is_same(it.as_bytes(), token.as_bytes())) {
            return None;
        }
        let unauthorized = |message: &str| Some(ApiError::new(StatusCode::UNAUTHORIZED, message).response());
        match FileSignature::of(head).filter(|it| it.is_by(&token)) {
            Some(signature) if signature.is_over() => unauthorized("signature is already expired"),
            Some(_) => None,
            None if head.uri.path() == "/files" => {
                unauthorized("the access token or the signature is wrong or missing")
            }
            None => {
                let message = "the access token is wrong or missing";
                Some(RpcError::new(RpcCode::Unauthenticated, message).response())
            }
        }
    }

    async fn of_control(&self, head: &Parts, body: Incoming) -> Result<HttpResponse, ApiError> {
        let body = whole(body).await?;
        let call = ControlCall { method: &head.method, path: head.uri.path(), query: head.uri.query(), body: &body };
        Box::pin(self.control.answer(&call)).await
    }

    async fn of_sandbox(&self, head: &Parts, body: Incoming, target: &Target) -> Result<HttpResponse, ApiError> {
        let sandboxes = &self.control.sandboxes;
        let Some(sandbox) = sandboxes.find(&target.sandbox) else { return Ok(no_sandbox(target)) };
        let path = head.uri.path();
        if path == "/health" {
            return Ok(no_content());
        }
        let pairs = query(head.uri.query());
        let user = match path {
            // A signature covers the query only.
            "/files" => value(&pairs, "username").map(str::to_owned),
            _ => user_of(&head.headers),
        };
        let session = match session(sandboxes, &target.sandbox, user.as_deref()).await {
            Ok(session) => session,
            Err(failure) if failure.code == Code::NotFound => {
                // Its container was removed in another way.
                sandboxes.kill(&target.sandbox).await?;
                return Ok(no_sandbox(target));
            }
            Err(failure) if path.starts_with("/process.") || path.starts_with("/filesystem.") => {
                return Ok(failed(path, RpcError::from(failure)));
            }
            Err(failure) => return Err(failure.into()),
        };
        match (head.method.as_str(), path) {
            ("GET", "/files") => {
                let path = value(&pairs, "path").ok_or_else(|| ApiError::bad_request("`path` is missing"))?;
                files::download(&session, path).await
            }
            ("POST", "/files") => {
                let path = value(&pairs, "path");
                let what = json!({ "channel": "files", "action": "write", "path": path });
                let intent = audited::intent(sandboxes.cx(), WAY, &session, what).await?;
                let written = files::upload(&session, path, &head.headers, body).await;
                intent.finish_program(written.as_ref().map(|_| None)).await;
                Ok(answer(StatusCode::OK, &json!(written?)))
            }
            ("GET", "/metrics" | "/envs") => Ok(answer(StatusCode::OK, &json!({}))),
            ("POST", procedure) => {
                let called = Call { cx: sandboxes.cx(), head, session: &session, sandbox: &sandbox };
                let answered = called.answer(procedure.trim_start_matches('/'), &whole(body).await?).await;
                Ok(answered.unwrap_or_else(|err| failed(procedure, err)))
            }
            _ => Err(ApiError::not_found(&format!("{} {path}", head.method))),
        }
    }
}

/// A procedure that is called.
struct Call<'a> {
    cx: &'a Context,
    head: &'a Parts,
    session: &'a PersonSession,
    sandbox: &'a Sandbox,
}

impl Call<'_> {
    async fn answer(&self, procedure: &str, body: &[u8]) -> Result<HttpResponse, RpcError> {
        let (session, processes) = (self.session, &self.sandbox.processes);
        let kind = self.head.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        if kind.contains("proto") {
            return Err(RpcError::new(RpcCode::Unimplemented, "messages are JSON here, not binary"));
        }
        Ok(match procedure {
            "process.Process/Start" => {
                let request: StartRequest = first(body)?;
                rpc::stream(processes.start(self.cx, session, request, self.limits()).await?)
            }
            "process.Process/Connect" => rpc::stream(processes.connect(&first(body)?)?),
            "process.Process/List" => rpc::json_response(StatusCode::OK, &processes.list()),
            "process.Process/SendInput" => rpc::unary(processes.send_input(&one::<OfProcess>(body)?).await),
            "process.Process/CloseStdin" => rpc::unary(processes.close_stdin(&one::<OfProcess>(body)?).await),
            "process.Process/Update" => rpc::unary(processes.update(&one::<OfProcess>(body)?)),
            "process.Process/SendSignal" => {
                rpc::unary(processes.send_signal(self.cx, session, &one::<OfProcess>(body)?).await)
            }
            "filesystem.Filesystem/Stat" => rpc::unary(filesystem::stat(session, &one(body)?).await),
            "filesystem.Filesystem/ListDir" => rpc::unary(filesystem::list(session, &one(body)?).await),
            "filesystem.Filesystem/MakeDir" => {
                let of: OfPath = one(body)?;
                rpc::unary(self.audited("mkdir", &of.path, filesystem::make_dir(session, &of)).await)
            }
            "filesystem.Filesystem/Move" => {
                let of: MoveRequest = one(body)?;
                rpc::unary(self.audited("rename", &of.source, filesystem::rename(session, &of)).await)
            }
            "filesystem.Filesystem/Remove" => {
                let of: OfPath = one(body)?;
                rpc::unary(self.audited("remove", &of.path, filesystem::remove(session, &of)).await)
            }
            other => {
                return Err(RpcError::new(RpcCode::Unimplemented, format!("there is no procedure `{other}` here")));
            }
        })
    }

    /// Changes files, with a record in the audit trail.
    async fn audited(
        &self,
        action: &str,
        path: &str,
        change: impl Future<Output = Result<Value, Failure>>,
    ) -> Result<Value, Failure> {
        let what = json!({ "channel": "files", "action": action, "path": path });
        let intent = audited::intent(self.cx, WAY, self.session, what).await?;
        let changed = change.await;
        intent.finish_program(changed.as_ref().map(|_| None)).await;
        changed
    }

    fn limits(&self) -> StreamLimits {
        let number = |name: &str| self.head.headers.get(name)?.to_str().ok()?.parse::<u64>().ok().filter(|it| *it > 0);
        StreamLimits {
            total: number("connect-timeout-ms").map(Duration::from_millis),
            keepalive: number("keepalive-ping-interval").map(Duration::from_secs),
        }
    }
}

async fn session(sandboxes: &Sandboxes, id: &str, user: Option<&str>) -> Result<PersonSession, Failure> {
    match user {
        Some("root") => {
            let opened = sandboxes.session(id, true).await;
            if let Err(refused) = &opened {
                audited::root_refused(sandboxes.cx(), WAY, id, refused).await?;
            }
            opened
        }
        None | Some("" | "user") => sandboxes.session(id, false).await,
        Some(other) => {
            Err(Failure::new(Code::UserNotFound, format!("there is no user `{other}`: `user` and `root` are")))
        }
    }
}

/// The name in a `Basic` authorization, which SDKs use for the user of a process.
fn user_of(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
    Some(decoded.split(':').next().unwrap_or_default().to_owned())
}

fn no_sandbox(target: &Target) -> HttpResponse {
    // As E2B's gateway answers: SDKs conclude from the status and the text that it is gone.
    let message = "The sandbox was not found";
    answer(StatusCode::BAD_GATEWAY, &json!({ "sandboxId": target.sandbox, "message": message, "code": 502 }))
}

/// The response of a procedure that failed. Streams have their errors at their end.
fn failed(path: &str, err: RpcError) -> HttpResponse {
    match path {
        "/process.Process/Start" | "/process.Process/Connect" => rpc::failed_stream(err),
        _ => err.response(),
    }
}

async fn whole(body: Incoming) -> Result<Vec<u8>, ApiError> {
    let collected = tokio::time::timeout(PATIENCE, Limited::new(body, MAX_BODY).collect()).await;
    let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request's body took too long");
    let failed = |_| {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {MAX_BODY} bytes, or broke off"))
    };
    Ok(collected.map_err(late)?.map_err(failed)?.to_bytes().to_vec())
}

/// The message of a unary procedure.
fn one<T: DeserializeOwned>(body: &[u8]) -> Result<T, RpcError> {
    let text: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(text).map_err(|err| RpcError::invalid(err.to_string()))
}

/// The only message of a procedure that answers with a stream.
fn first<T: DeserializeOwned>(body: &[u8]) -> Result<T, RpcError> {
    let message = rpc::messages(body)?.into_iter().next().ok_or_else(|| RpcError::invalid("a message is missing"))?;
    serde_json::from_value(message).map_err(|err| RpcError::invalid(err.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_sandbox_is_named_by_a_header_or_by_the_host() {
        let found = |pairs| target(&headers(pairs)).map(|it| (it.sandbox, it.port));
        assert_eq!(found(&[("e2b-sandbox-id", "iabc"), ("host", "localhost:1")]), Some(("iabc".into(), ENVD_PORT)));
        assert_eq!(found(&[("e2b-sandbox-id", "iabc"), ("e2b-sandbox-port", "80")]), Some(("iabc".into(), 80)));
        assert_eq!(found(&[("e2b-sandbox-id", "iabc"), ("e2b-sandbox-port", "x")]), None);
        assert_eq!(found(&[("host", "8000-iabc.localhost:3000")]), Some(("iabc".into(), 8000)));
        assert_eq!(found(&[("host", "localhost:3000")]), None);
        assert_eq!(found(&[("host", "127.0.0.1:3000")]), None);
    }

    #[test]
    fn only_names_of_this_machine_are_served() {
        for host in ["localhost:3000", "127.0.0.1", "8000-iabc.localhost:3000", "api.localhost"] {
            assert!(is_here(&headers(&[("host", host)])), "{host}");
        }
        for host in ["example.org", "8000-iabc.example.org", "localhost.example.org", "xlocalhost"] {
            assert!(!is_here(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_here(&headers(&[("host", "localhost"), ("origin", "https://example.org")])));
    }

    #[test]
    fn the_user_is_in_the_authorization() {
        assert_eq!(user_of(&headers(&[("authorization", "Basic cm9vdDo=")])).as_deref(), Some("root"));
        assert_eq!(user_of(&headers(&[("authorization", "Bearer x")])), None);
        assert_eq!(user_of(&headers(&[])), None);
    }
}
