//! The port for models and repositories: what is asked is found out, allowed or not, passed on, and logged.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::body::ByteCounter;
use super::grants::Grants;
use super::llm::scrub::Scrub;
use super::llm::usage::{Usage, UsageReader};
use super::log::{RequestLogLine, ms_since, now};
use super::response::{Body, BodyError, Rejection, json_answer, streamed};
use super::{Caller, ProxyInner, git, llm};
use crate::Scope;

/// Where all routes lie.
const BELOW: &str = "/proxy/v1/";

/// Where models of Google's form lie, as their clients know it.
const BELOW_GOOGLE: &str = "/proxy/v1beta/models/";

/// What is asked for.
enum Route {
    Model(llm::ModelRequest),
    Health,
    Git(git::GitRequest),
    Credentials,
    Unknown,
}

impl Route {
    fn from_request(request: &Request<Incoming>) -> Self {
        let (method, uri) = (request.method(), request.uri());
        if let Some(path) = uri.path().strip_prefix(BELOW_GOOGLE) {
            return llm::ModelRequest::parse_method(method, path).map_or(Self::Unknown, Self::Model);
        }
        let Some(path) = uri.path().strip_prefix(BELOW) else { return Self::Unknown };
        if let Some(path) = path.strip_prefix("git/http/") {
            return git::GitRequest::parse(method, path, uri.query()).map_or(Self::Unknown, Self::Git);
        }
        match (method, path) {
            (&Method::GET, "health") => Self::Health,
            (&Method::POST, "git/credentials") => Self::Credentials,
            _ => llm::ModelRequest::parse(method, path).map_or(Self::Unknown, Self::Model),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Model(asked) => asked.route(),
            Self::Health => "health",
            Self::Git(asked) => asked.route(),
            Self::Credentials => "git/credentials",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of a request that was not refused.
pub(super) enum Accepted {
    Whole(Response<Body>),
    Passing(Box<UpstreamResponse>),
}

/// An answer of somebody else's, on its way through.
pub(super) struct UpstreamResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
    pub(super) scrub: Scrub,
    /// Reads what it cost.
    pub(super) reader: Option<UsageReader>,
    /// Given back when it is through.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// Answers one request.
pub(super) async fn answer(caller: Caller, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let route = Route::from_request(&request);
    let mut entry = Entry::new(&caller.shared, route.name());
    Ok(match respond(&caller, route, request, &mut entry).await {
        Ok(Accepted::Whole(answer)) => {
            entry.line.status = answer.status().as_u16();
            answer
        }
        Ok(Accepted::Passing(passing)) => passing.through(entry),
        Err(no) => {
            if no == Rejection::Token {
                caller.shared.misused();
            }
            (entry.line.status, entry.line.code) = (no.status().as_u16(), Some(no.code()));
            no.answer()
        }
    })
}

/// In the order of what is checked: who asks, for what, and only then with what.
async fn respond(
    caller: &Caller,
    route: Route,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Accepted, Rejection> {
    let grants = caller.grants().ok_or(Rejection::Token)?;
    entry.line.policy_generation = grants.generation;
    entry.line.scope = Some("net");
    let token = request.headers().get("x-coracle-token");
    match (&route, token) {
        (Route::Model(_), Some(token)) if !caller.opens_models(token.as_bytes()) => return Err(Rejection::Token),
        (Route::Model(_), None) if !grants.llm_for_agent => return Err(Rejection::Token),
        (Route::Model(_), _) => entry.line.scope = Some("llm"),
        // The first question of a worker that looks whether it is known.
        (Route::Health, Some(token)) if !caller.knows(|it| it.knows(Scope::Llm, token.as_bytes())) => {
            return Err(Rejection::Token);
        }
        _ => {}
    }
    let mut profiles = request.headers().get_all("x-coracle-profile").iter();
    if profiles.any(|it| it.as_bytes() != grants.profile.as_str().as_bytes()) {
        return Err(Rejection::Profile);
    }
    match route {
        Route::Model(asked) => {
            let suits = grants.provider.as_ref().is_none_or(|it| asked.suits(it.kind));
            if !suits {
                return Err(Rejection::Route);
            }
            llm::pass(&caller.shared, &grants, asked, request, entry).await
        }
        Route::Health => {
            let state = json!({ "status": "ok", "profile": grants.profile.as_str() });
            Ok(Accepted::Whole(json_answer(StatusCode::OK, &state)))
        }
        Route::Git(asked) => {
            entry.line.host = Some(super::log::shown(&asked.host));
            git::pass(&caller.shared, grants.git.as_ref(), &asked, request, &entry.sent).await
        }
        Route::Credentials => git::credentials(grants.git.as_ref(), request).await,
        Route::Unknown => Err(Rejection::NotFound),
    }
}

impl Caller {
    fn opens_models(&self, token: &[u8]) -> bool {
        self.knows(|it| it.knows(Scope::Llm, token) || (it.llm_for_agent && it.knows(Scope::Net, token)))
    }

    fn knows(&self, knows: impl Fn(&Grants) -> bool) -> bool {
        self.shared.knowing(knows).is_some()
    }
}

impl UpstreamResponse {
    /// Passes it on as it comes: what waits is only what may be the beginning of a key.
    fn through(self, mut entry: Entry) -> Response<Body> {
        let Self { status, headers, body, scrub, reader, place } = self;
        let mut answer = Response::new(());
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        entry.line.status = status.as_u16();
        entry.reader = reader;
        let flow = Flow { body, scrub, entry, _place: place };
        answer.map(|()| streamed(stream::unfold(Some(flow), |flow| async { flow?.next().await })))
    }
}

struct Flow {
    body: Incoming,
    scrub: Scrub,
    entry: Entry,
    _place: Option<OwnedSemaphorePermit>,
}

impl Flow {
    async fn next(mut self) -> Option<(Result<Bytes, BodyError>, Option<Self>)> {
        loop {
            let silence = self.entry.shared.pace.silence;
            match timeout(silence, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    let Ok(piece) = frame.into_data() else { continue }; // trailers are not passed on
                    self.entry.on_response_chunk(&piece);
                    let passes = self.scrub.push(&piece);
                    if !passes.is_empty() {
                        return Some((Ok(passes.into()), Some(self)));
                    }
                }
                Ok(None) => {
                    self.entry.is_whole();
                    let rest = self.scrub.finish();
                    return (!rest.is_empty()).then(|| (Ok(rest.into()), None));
                }
                Ok(Some(Err(_))) => return self.breaks(Rejection::Failed),
                Err(_) => return self.breaks(Rejection::Late),
            }
        }
    }

    /// The head is out, so that the body ends early is all that can be told.
    fn breaks(mut self, no: Rejection) -> Option<(Result<Bytes, BodyError>, Option<Self>)> {
        self.entry.line.code = Some(no.code());
        Some((Err(no.code().into()), None))
    }
}

/// A request that is logged when it is over, however it ends, and then costs what it costs.
pub(super) struct Entry {
    shared: Arc<ProxyInner>,
    begun: Instant,
    pub(super) line: RequestLogLine,
    pub(super) sent: ByteCounter,
    reader: Option<UsageReader>,
    /// It was asked of a provider that may take money for it.
    charged: bool,
    whole: bool,
}

impl Entry {
    pub(super) fn new(shared: &Arc<ProxyInner>, route: &'static str) -> Self {
        // Who goes away before there is an answer leaves this one.
        let line = RequestLogLine {
            ts: now(),
            container: shared.container.clone(),
            route,
            status: 499,
            ..RequestLogLine::default()
        };
        let sent = ByteCounter::default();
        Self { shared: shared.clone(), begun: Instant::now(), line, sent, reader: None, charged: false, whole: false }
    }

    pub(super) fn charge(&mut self) {
        self.charged = true;
    }

    pub(super) fn is_free(&mut self) {
        self.charged = false;
    }

    pub(super) fn on_response_chunk(&mut self, piece: &[u8]) {
        self.line.bytes_out += piece.len() as u64;
        if let Some(reader) = &mut self.reader {
            reader.push(piece);
        }
    }

    fn is_whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.line.duration_ms = ms_since(self.begun);
        self.line.bytes_in = self.line.bytes_in.max(self.sent.get());
        if self.charged {
            let usage = self.reader.as_mut().map_or_else(Usage::default, UsageReader::finish);
            let (bytes_in, bytes_out) = (self.line.bytes_in, self.line.bytes_out);
            let whole = self.whole || self.reader.as_ref().is_some_and(UsageReader::has_ended);
            self.line.tokens = Some(self.shared.meter.add(&usage, bytes_in, bytes_out, whole));
        }
        self.shared.log.write(&self.line);
    }
}
