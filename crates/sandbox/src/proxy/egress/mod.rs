//! Names outside: a tunnel or a plain request, to what the policy allows and to nothing that only looks like it.

mod address;
mod connect;
mod rules;
mod sni;
mod tunnel;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

pub(super) use self::address::is_global;
use self::connect::{EgressConnection, reach};
pub use self::connect::{Resolver, SystemResolver};
pub(super) use self::rules::EgressHost;
pub use self::rules::EgressPolicy;
use super::Caller;
use super::body;
use super::response::{Body, BodyError, json_answer, streamed, whole};
use super::routes::Entry;

/// Why a destination is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EgressDenial {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    message: &'static str,
}

const fn forbidden(code: &'static str, message: &'static str) -> EgressDenial {
    EgressDenial { status: StatusCode::FORBIDDEN, code, message }
}

impl EgressDenial {
    const HOST: Self = forbidden("host_not_allowed", "This name is not among those that may be reached.");
    const PORT: Self = forbidden("port_not_allowed", "This port of it may not be reached.");
    const IP: Self = forbidden("ip_not_allowed", "Addresses are reached by their names, or by a rule of their own.");
    const PRIVATE: Self = forbidden("private_address", "The name leads to an address that is not on the internet.");
    const NAME: Self = forbidden("name_not_found", "There is no such name.");
    const SNI: Self = forbidden("sni_mismatch", "The connection is for another name than was asked for.");
    const POLICY: Self = forbidden("policy_missing", "There is no policy, so nothing may be reached.");
    const CHANGED: Self = forbidden("policy_changed", "The policy does not allow this any more.");
    const TOKEN: Self =
        Self { status: StatusCode::UNAUTHORIZED, code: "token_invalid", message: "The token was revoked." };
    const REQUEST: Self = Self {
        status: StatusCode::BAD_REQUEST,
        code: "bad_request",
        message: "Ask with CONNECT host:port, or for a whole http:// address.",
    };
    const CONNECT: Self =
        Self { status: StatusCode::BAD_GATEWAY, code: "connect_failed", message: "It does not take the connection." };

    fn answer(self) -> Response<Body> {
        json_answer(self.status, &json!({ "error": { "code": self.code, "message": self.message } }))
    }
}

/// Whom a request wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EgressTarget {
    pub(super) host: EgressHost,
    pub(super) port: u16,
}

impl EgressTarget {
    /// Of a CONNECT, or of a whole http address.
    fn from_request(method: &Method, uri: &Uri) -> Option<Self> {
        let port = match (method == Method::CONNECT, uri.scheme_str()) {
            (true, None) => uri.port_u16()?,
            (false, Some("http")) => uri.port_u16().unwrap_or(80),
            _ => return None,
        };
        // A name before an `@` is no part of who is reached.
        let authority = uri.authority()?.as_str();
        let host = EgressHost::parse(uri.host()?).filter(|_| !authority.contains('@') && port > 0)?;
        Some(Self { host, port })
    }

    fn shown(&self) -> String {
        match &self.host {
            EgressHost::Address(it) => std::net::SocketAddr::new(*it, self.port).to_string(),
            host => format!("{host}:{}", self.port),
        }
    }
}

/// What goes on when no more HTTP is spoken on a connection.
pub(super) type Tunnel = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;

/// Answers one request; the tunnel that it asked for is left in `tunnel`.
pub(super) async fn answer(
    caller: Caller,
    tunnel: Arc<Tunnel>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let is_tunnel = request.method() == Method::CONNECT;
    let mut entry = Entry::new(&caller.shared, if is_tunnel { "connect" } else { "http" });
    entry.line.scope = Some("net");
    entry.line.policy_generation = caller.grants().map_or(0, |it| it.generation);
    let Some(target) = EgressTarget::from_request(request.method(), request.uri()) else {
        return Ok(refused(&caller, entry, None, EgressDenial::REQUEST));
    };
    entry.line.host = Some(target.shown());
    let EgressConnection { stream, at } = match reach(&caller, &target).await {
        Ok(reached) => reached,
        Err(refusal) => return Ok(refused(&caller, entry, Some(&target), refusal)),
    };
    if is_tunnel {
        entry.line.status = 200;
        let goes_on = tunnel::run(caller, entry, (target, at), (hyper::upgrade::on(request), stream));
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(goes_on));
        return Ok(Response::new(whole("")));
    }
    Ok(match plain(&caller, &target, at, request, stream).await {
        Ok(answer) => {
            entry.line.status = answer.status().as_u16();
            let (parts, incoming) = answer.into_parts();
            let silence = caller.shared.pace.silence;
            let passes = stream::unfold(Some((incoming, entry)), move |it| async move { next(it?, silence).await });
            Response::from_parts(parts, streamed(passes))
        }
        Err(refusal) => refused(&caller, entry, Some(&target), refusal),
    })
}

type ForwardedBody = (Incoming, Entry);

/// A piece of an answer that passes.
async fn next(
    (mut from, mut entry): ForwardedBody,
    silence: Duration,
) -> Option<(Result<Bytes, BodyError>, Option<ForwardedBody>)> {
    loop {
        return match tokio::time::timeout(silence, from.frame()).await {
            Err(_) => Some((Err("nothing came for too long".into()), None)),
            Ok(None) => None,
            Ok(Some(Err(err))) => Some((Err(err.into()), None)),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(piece) => {
                    entry.on_response_chunk(&piece);
                    Some((Ok(piece), Some((from, entry))))
                }
                // Trailers.
                Err(_) => continue,
            },
        };
    }
}

/// Tells the log, the person and whoever asked.
fn refused(caller: &Caller, mut entry: Entry, target: Option<&EgressTarget>, refusal: EgressDenial) -> Response<Body> {
    (entry.line.status, entry.line.code) = (refusal.status.as_u16(), Some(refusal.code));
    if refusal.status == StatusCode::FORBIDDEN {
        caller.shared.report(refusal.code, target.map(EgressTarget::shown));
    }
    refusal.answer()
}

/// A request without TLS: it goes on with nothing that belongs to this connection.
async fn plain(
    caller: &Caller,
    target: &EgressTarget,
    at: SocketAddr,
    request: Request<Incoming>,
    stream: TcpStream,
) -> Result<Response<Incoming>, EgressDenial> {
    let (mut parts, incoming) = request.into_parts();
    parts.headers = body::passing(&parts.headers);
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    parts.uri = path.parse().map_err(|_| EgressDenial::REQUEST)?;
    let host = if target.port == 80 { target.host.to_string() } else { target.shown() };
    parts.headers.insert(HOST, HeaderValue::from_str(&host).map_err(|_| EgressDenial::REQUEST)?);
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sends, connection) = made.map_err(|_| EgressDenial::CONNECT)?;
    let (watches, allowed) = (caller.clone(), target.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = watches.closed.cancelled() => {}
            () = tunnel::disallowed(&watches, &allowed, at) => {}
        }
    });
    let sent = sends.send_request(Request::from_parts(parts, incoming));
    let answer = tokio::time::timeout(caller.shared.pace.silence, sent).await;
    let (mut parts, incoming) =
        answer.map_err(|_| EgressDenial::CONNECT)?.map_err(|_| EgressDenial::CONNECT)?.into_parts();
    // Where it sends whoever asked, and what it has them keep, is between the two.
    let told = body::only(&parts.headers, &["location", "content-location", "set-cookie"]);
    parts.headers = body::passing(&parts.headers);
    parts.headers.extend(told);
    Ok(Response::from_parts(parts, incoming))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connect_and_a_whole_address_have_a_target() {
        let of =
            |method: Method, uri: &str| EgressTarget::from_request(&method, &uri.parse().ok()?).map(|it| it.shown());
        assert_eq!(of(Method::CONNECT, "Example.com:443").unwrap(), "example.com:443");
        assert_eq!(of(Method::CONNECT, "[::1]:443").unwrap(), "[::1]:443");
        assert_eq!(of(Method::GET, "http://example.com/x?y").unwrap(), "example.com:80");
        assert_eq!(of(Method::POST, "http://example.com:8080").unwrap(), "example.com:8080");
        for (method, odd) in [
            (Method::CONNECT, "example.com"),
            (Method::CONNECT, "u@example.com:443"),
            (Method::CONNECT, "example.com:0"),
            (Method::GET, "/path"),
            (Method::GET, "https://example.com/"),
            (Method::GET, "http://u:p@example.com/"),
            (Method::GET, "ftp://example.com/"),
        ] {
            assert_eq!(of(method, odd), None, "{odd}");
        }
    }
}
