//! Connections whose requests the proxy sees: it ends TLS if there is any, checks each request, fills in secrets, and
//! forwards it over TLS of its own.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, HOST, HeaderName, HeaderValue, TE, UPGRADE};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;

use super::client_connection::ClientConnection;
use super::connect::EgressConnection;
use super::denial::{EgressDenial, Refusal};
use super::recorded::OptionalExchange;
use super::server::{Protocol, Server};
use super::target::EgressTarget;
use crate::body;
use crate::caller::Caller;
use crate::entry::Entry;
use crate::passing_body::PassingBody;
use crate::policy::{EgressHost, EgressPolicy, FilledSecret, fill, refuse_in_plain};
use crate::response::Body;
use crate::scrub::Scrub;

/// The requests of one connection.
struct Requests {
    caller: Caller,
    target: EgressTarget,
    protocol: Protocol,
    server: Server,
    /// What the connection continues with after it has changed its protocol.
    switched: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// Checks a request without TLS.
pub(crate) async fn check_plain(caller: &Caller, target: &EgressTarget, parts: &Parts) -> Result<(), Refusal> {
    check_rules(caller, target, parts).await?;
    let grants = caller.grants().ok_or((EgressDenial::TOKEN, None))?;
    refuse_in_plain(&grants.secrets, &parts.headers, &parts.uri).map_err(|no| (no.into(), None))
}

/// Headers by which some servers take another method, path or host than those of the request.
const OVERRIDES: [&str; 7] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-forwarded-host",
    "x-http-host-override",
];

/// Checks a request by the rules, and asks the user about one that they refuse.
async fn check_rules(caller: &Caller, target: &EgressTarget, parts: &Parts) -> Result<(), Refusal> {
    let grants = caller.grants().ok_or((EgressDenial::TOKEN, None))?;
    let policy = grants.egress.as_ref().ok_or((EgressDenial::POLICY, None))?;
    if policy.checks_requests(&target.host, target.port) && OVERRIDES.iter().any(|it| parts.headers.contains_key(*it)) {
        return Err((EgressDenial::OVERRIDE, None));
    }
    if policy.allows_request(&target.host, target.port, &parts.method, parts.uri.path()) {
        return Ok(());
    }
    let refusal = EgressDenial::METHOD;
    let rule = EgressPolicy::rule_for(&parts.method, &target.rule(), parts.uri.path());
    let approved = caller.approved(refusal.code, target.shown(), rule.as_deref()).await;
    approved.map(drop).ok_or((refusal, rule))
}

/// Serves a connection to its end.
pub(crate) async fn serve(caller: Caller, target: EgressTarget, client: ClientConnection, first: EgressConnection) {
    let (protocol, silence) = (client.protocol, caller.shared.pace.silence);
    let server = Server::new(caller.clone(), target.clone(), protocol, first);
    let requests = Arc::new(Requests { caller, target, protocol, server, switched: Mutex::default() });
    let answered = requests.clone();
    let served = client.serve(silence, move |request| {
        let requests = answered.clone();
        async move { requests.answer(request).await }
    });
    let served = served.await;
    let switched = requests.switched.lock().unwrap_or_else(PoisonError::into_inner).take();
    match served {
        Ok(()) => futures_util::future::OptionFuture::from(switched).await.unwrap_or_default(),
        Err(err) => tracing::debug!(%err, "a connection whose requests the proxy sees failed"),
    }
}

impl Requests {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let mut entry = Entry::new(&self.caller.shared, "request");
        entry.line.scope = Some("net");
        entry.line.host = Some(self.target.shown());
        entry.line.request = Some(crate::log::shown(&format!("{} {}", request.method(), request.uri().path())));
        entry.line.policy_generation = self.caller.grants().map_or(0, |it| it.generation);
        let exchange = OptionalExchange::begin(&self.caller, &self.target, self.protocol.scheme(), &request);
        match self.pass(request, &entry, &exchange).await {
            Ok((response, scrub)) => {
                entry.line.status = response.status().as_u16();
                let silence = self.caller.shared.pace.silence;
                exchange.answer(response.map(|it| PassingBody::response(it, entry, scrub, silence).boxed()), None)
            }
            Err((refusal, rule)) => {
                let answer = refusal.refuse(&self.caller, entry, &self.target, rule.as_deref());
                exchange.answer(answer, Some(refusal.code))
            }
        }
    }

    async fn pass(
        &self,
        mut request: Request<Incoming>,
        entry: &Entry,
        exchange: &OptionalExchange,
    ) -> Result<(Response<Incoming>, Option<Scrub>), Refusal> {
        let upgrade = is_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (mut parts, incoming) = request.into_parts();
        let filled = self.check(&mut parts).await?;
        let mut headers = std::mem::take(&mut parts.headers);
        if !filled.is_empty() {
            // The filter cannot find a secret in a compressed answer.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let mut forwarded = body::passing(&headers);
        if upgrade.is_some() {
            copy(&headers, &mut forwarded, &UPGRADE);
            forwarded.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        if headers.get(TE).is_some_and(|it| it.as_bytes() == b"trailers") {
            copy(&headers, &mut forwarded, &TE);
        }
        parts.headers = forwarded;
        parts.extensions.clear();
        let is_head = parts.method == Method::HEAD;
        let passing = PassingBody::request(incoming, entry.sent.clone()).boxed();
        let request = Request::from_parts(parts, exchange.request(passing));
        let mut response = self.server.send(request).await.map_err(|no| (no, None))?;
        let scrub = (!filled.is_empty()).then(|| Scrub::of(filled));
        if scrub.as_ref().is_some_and(|it| it.cannot_read(response.headers())) {
            return Err((EgressDenial::COMPRESSED, None));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = upgrade else { return Err((EgressDenial::CONNECT, None)) };
            let server = hyper::upgrade::on(&mut response);
            let goes_on = Box::pin(switched(upgrade, server));
            *self.switched.lock().unwrap_or_else(PoisonError::into_inner) = Some(goes_on);
        }
        let headers = for_client(response.headers(), is_head, scrub.as_ref());
        *response.headers_mut() = headers;
        *response.version_mut() = Version::HTTP_11;
        Ok((response, scrub))
    }

    /// Checks a request, and fills in its secrets.
    async fn check(&self, parts: &mut Parts) -> Result<Vec<FilledSecret>, Refusal> {
        let EgressTarget { host, port } = &self.target;
        // A server may have several hosts behind one name of a certificate.
        if !self.is_for_host(parts) || parts.method == Method::CONNECT {
            return Err((EgressDenial::AUTHORITY, None));
        }
        check_rules(&self.caller, &self.target, parts).await?;
        let grants = self.caller.grants().ok_or((EgressDenial::TOKEN, None))?;
        if !self.protocol.tls {
            refuse_in_plain(&grants.secrets, &parts.headers, &parts.uri)
                .map_err(|no| (EgressDenial::from(no), None))?;
            return Ok(Vec::new());
        }
        let filled = fill(&grants.secrets, host, *port, &mut parts.headers, &mut parts.uri).await;
        filled.map_err(|no| (no.into(), None))
    }

    /// Whether all names of the host in a request are that of the connection.
    fn is_for_host(&self, parts: &Parts) -> bool {
        let is_it = |authority: &str| {
            let uri = format!("http://{authority}/").parse::<hyper::Uri>().ok();
            let port = |uri: &hyper::Uri| uri.port_u16().unwrap_or(self.protocol.port());
            uri.is_some_and(|it| {
                it.host().and_then(EgressHost::parse).as_ref() == Some(&self.target.host)
                    && port(&it) == self.target.port
                    && !authority.contains('@')
            })
        };
        let mut named = parts.headers.get_all(HOST).iter().map(|it| it.to_str().is_ok_and(is_it)).collect::<Vec<_>>();
        named.extend(parts.uri.authority().map(|it| is_it(it.as_str())));
        !named.is_empty() && parts.headers.get_all(HOST).iter().count() <= 1 && named.iter().all(|it| *it)
    }
}

/// Whether a request changes the protocol of its connection. A server need not do what a client wishes, so wishes for a
/// protocol with requests are left out: the proxy would not see them.
fn is_upgrade(request: &Request<Incoming>) -> bool {
    let mut wishes = request.headers().get_all(UPGRADE).iter().peekable();
    let has_requests = |it: &HeaderValue| it.to_str().map_or(true, |it| it.split(',').any(has_requests));
    request.version() == Version::HTTP_11 && wishes.peek().is_some() && !wishes.any(has_requests)
}

/// Whether a protocol, such as `h2c` or `TLS/1.3`, carries requests, or connections to other hosts.
fn has_requests(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim().to_ascii_lowercase();
    ["", "http", "h2", "h2c", "h3", "tls"].contains(&&*name) || name.starts_with("connect-")
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, name: &HeaderName) {
    for value in from.get_all(name) {
        to.append(name, value.clone());
    }
}

/// The headers of an answer, without those of its connection.
fn for_client(headers: &HeaderMap, is_head: bool, scrub: Option<&Scrub>) -> HeaderMap {
    let mut passing = body::passing(headers);
    passing.extend(body::only(headers, &["location", "content-location", "set-cookie", "upgrade"]));
    if headers.contains_key(UPGRADE) {
        passing.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if is_head {
        // It describes a body that is not sent.
        passing.extend(body::only(headers, &["content-length"]));
    }
    let Some(scrub) = scrub else { return passing };
    let is_clean = |it: &HeaderValue| !scrub.is_in(it.as_bytes());
    passing.iter().filter(|it| is_clean(it.1)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Copies bytes after a connection has changed its protocol, such as to WebSocket.
async fn switched(inside: OnUpgrade, outside: OnUpgrade) {
    let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) else { return };
    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(inside), &mut TokioIo::new(outside)).await;
}
