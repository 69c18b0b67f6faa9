//! Outbound connections by name: a tunnel or a plain request, to destinations that the policy allows.

mod client_connection;
mod connect;
mod denial;
mod first_line;
mod recorded;
mod replayed;
mod requests;
mod server;
mod sni;
mod target;
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
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use self::connect::{EgressConnection, reach};
use self::denial::{EgressDenial, Refusal};
use self::recorded::OptionalExchange;
use self::target::EgressTarget;
use crate::body;
use crate::caller::Caller;
use crate::entry::Entry;
use crate::response::{Body, BodyError, streamed, whole};

/// The port of requests without TLS.
const HTTP: u16 = 80;

/// The tunnel that a connection continues with after its HTTP request.
pub(crate) type Tunnel = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;

/// Answers one request. If it asks for a tunnel, that is stored in `tunnel`.
pub(crate) async fn answer(
    caller: Caller,
    tunnel: Arc<Tunnel>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let is_tunnel = request.method() == Method::CONNECT;
    let mut entry = Entry::new(&caller.shared, if is_tunnel { "connect" } else { "http" });
    entry.line.scope = Some("net");
    entry.line.policy_generation = caller.grants().map_or(0, |it| it.generation);
    let Some(target) = EgressTarget::from_request(request.method(), request.uri()) else {
        return Ok(EgressDenial::REQUEST.logged(&mut entry).answer(None));
    };
    entry.line.host = Some(target.shown());
    if let Some(replay) = caller.shared.replay.clone() {
        let answer = replayed::answer(replay, caller, entry, target, request).await;
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = answer.tunnel;
        return Ok(answer.response);
    }
    // The requests of a tunnel begin later.
    let exchange = (!is_tunnel).then(|| OptionalExchange::begin(&caller, &target, "http", &request));
    let exchange = exchange.unwrap_or_default();
    let (caller, EgressConnection { stream, at }) = match reach_or_ask(&caller, &target).await {
        Ok(reached) => reached,
        Err(refusal) => {
            let rule = refusal.rule(&target);
            let answer = refusal.refuse(&caller, entry, &target, rule.as_deref());
            return Ok(exchange.answer(answer, Some(refusal.code)));
        }
    };
    if is_tunnel {
        entry.line.status = 200;
        let goes_on =
            tunnel::run(caller, entry, target, (hyper::upgrade::on(request), EgressConnection { stream, at }));
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(goes_on));
        return Ok(Response::new(whole("")));
    }
    let request = request.map(|it| exchange.request(it.map_err(BodyError::from).boxed_unsync()));
    Ok(match plain(&caller, &target, at, request, stream).await {
        Ok(answer) => {
            entry.line.status = answer.status().as_u16();
            let (parts, incoming) = answer.into_parts();
            let silence = caller.shared.pace.silence;
            let passes = stream::unfold(Some((incoming, entry)), move |it| async move { next(it?, silence).await });
            exchange.answer(Response::from_parts(parts, streamed(passes)), None)
        }
        Err((refusal, rule)) => {
            let answer = refusal.refuse(&caller, entry, &target, rule.as_deref());
            exchange.answer(answer, Some(refusal.code))
        }
    })
}

/// Connects. If the policy refuses that, the user may allow it.
async fn reach_or_ask(caller: &Caller, target: &EgressTarget) -> Result<(Caller, EgressConnection), EgressDenial> {
    let refusal = match reach(caller, target).await {
        Ok(reached) => return Ok((caller.clone(), reached)),
        Err(refusal) => refusal,
    };
    let rule = refusal.rule(target);
    let approved = caller.approved(refusal.code, target.shown(), rule.as_deref()).await.ok_or(refusal)?;
    let reached = reach(&approved, target).await?;
    Ok((approved, reached))
}

type ForwardedBody = (Incoming, Entry);

/// Waits for the next frame of a response body.
async fn next(
    (mut from, mut entry): ForwardedBody,
    silence: Duration,
) -> Option<(Result<Bytes, BodyError>, Option<ForwardedBody>)> {
    loop {
        return match tokio::time::timeout(silence, from.frame()).await {
            Err(_) => Some((Err("no data for too long".into()), None)),
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

/// Forwards a request without TLS, without the headers of this connection.
async fn plain(
    caller: &Caller,
    target: &EgressTarget,
    at: SocketAddr,
    request: Request<Body>,
    stream: TcpStream,
) -> Result<Response<Incoming>, Refusal> {
    let (mut parts, incoming) = request.into_parts();
    requests::check_plain(caller, target, &parts).await?;
    parts.headers = body::passing(&parts.headers);
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    parts.uri = path.parse().map_err(|_| (EgressDenial::REQUEST, None))?;
    let host = HeaderValue::from_str(&target.authority(HTTP)).map_err(|_| (EgressDenial::REQUEST, None))?;
    parts.headers.insert(HOST, host);
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sends, connection) = made.map_err(|_| (EgressDenial::CONNECT, None))?;
    let (watches, allowed) = (caller.clone(), target.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = watches.closed.cancelled() => {}
            () = connect::disallowed(&watches, &allowed, at) => {}
        }
    });
    let sent = sends.send_request(Request::from_parts(parts, incoming));
    let answer = tokio::time::timeout(caller.shared.pace.silence, sent).await;
    let Ok(Ok(answer)) = answer else { return Err((EgressDenial::CONNECT, None)) };
    let (mut parts, incoming) = answer.into_parts();
    // Redirects and cookies concern only the client and the server.
    let for_client = body::only(&parts.headers, &["location", "content-location", "set-cookie"]);
    parts.headers = body::passing(&parts.headers);
    parts.headers.extend(for_client);
    Ok(Response::from_parts(parts, incoming))
}
