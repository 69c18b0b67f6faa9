//! Requests that a record answers: nothing is sent outside.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use coracle_types::Redactor;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::RANGE;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::client_connection::ClientConnection;
use super::denial::EgressDenial;
use super::recorded::address;
use super::target::EgressTarget;
use super::tunnel::{self, Carried};
use crate::caller::Caller;
use crate::entry::Entry;
use crate::policy::EgressHost;
use crate::record::{RecordedExchange, bytes_of, text_of, text_without};
use crate::replay::{MAX_TEXT, Replay, Replayed, ReplayedRequest, text};
use crate::response::{Body, BodyError, json_answer, whole};

/// The answer to a request, and what its connection continues with.
pub(super) struct ReplayAnswer {
    pub(super) response: Response<Body>,
    pub(super) tunnel: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Answers a request of a container, or accepts a connection to a recorded host.
pub(super) async fn answer(
    replay: Arc<Replay>,
    caller: Caller,
    mut entry: Entry,
    target: EgressTarget,
    request: Request<Incoming>,
) -> ReplayAnswer {
    if request.method() != Method::CONNECT {
        let response = respond(&replay, &caller, entry, &target, "http", request).await;
        return ReplayAnswer { response, tunnel: None };
    }
    let is_named = matches!(target.host, EgressHost::Name(_));
    if !is_named || !replay.has_host(&target.host.to_string(), target.port) {
        let response = EgressDenial::HOST_NOT_RECORDED.refuse(&caller, entry, &target, None);
        return ReplayAnswer { response, tunnel: None };
    }
    entry.line.status = 200;
    let goes_on = run(replay, caller, entry, target, hyper::upgrade::on(request));
    ReplayAnswer { response: Response::new(whole("")), tunnel: Some(Box::pin(goes_on)) }
}

/// Answers the requests of a connection.
async fn run(replay: Arc<Replay>, caller: Caller, mut entry: Entry, target: EgressTarget, upgrade: OnUpgrade) {
    let Ok(inside) = upgrade.await else { return };
    let mut inside = TokioIo::new(inside);
    let accepted = async {
        let (carried, begins) = tunnel::begins(&mut inside, std::future::pending(), &target, true).await?;
        ClientConnection::accept(&caller, &target, carried != Carried::Http, inside, begins).await
    };
    let client = match accepted.await {
        Ok(accepted) => accepted,
        Err(refusal) => {
            entry.line.code = Some(refusal.code);
            return caller.shared.report(refusal.code, Some(target.shown()), None);
        }
    };
    let (silence, scheme) = (caller.shared.pace.silence, client.protocol.scheme());
    let served = client.serve(silence, move |request| {
        let (replay, caller, target) = (replay.clone(), caller.clone(), target.clone());
        let mut entry = Entry::new(&caller.shared, "replay");
        entry.line.scope = Some("net");
        entry.line.host = Some(target.shown());
        async move { respond(&replay, &caller, entry, &target, scheme, request).await }
    });
    if let Err(err) = served.await {
        tracing::debug!(%err, "a connection to a recorded host failed");
    }
}

/// Answers one request.
async fn respond(
    replay: &Replay,
    caller: &Caller,
    mut entry: Entry,
    target: &EgressTarget,
    scheme: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    entry.line.request = Some(crate::log::shown(&format!("{} {}", request.method(), request.uri().path())));
    let Some(grants) = caller.grants() else { return EgressDenial::TOKEN.logged(&mut entry).answer(None) };
    let placeholders = replay.placeholders.redactor(&grants);
    let range = request.headers().get(RANGE).map(|it| text_of(it.as_bytes()));
    let reading = timeout(caller.shared.pace.silence, comparable(request, target, scheme, &placeholders));
    let Ok(Ok(request)) = reading.await else {
        return EgressDenial::REQUEST.logged(&mut entry).answer(None);
    };
    let shown = request.clone();
    let (nearest, differs) = match replay.answer(request, range.as_deref()) {
        Replayed::Served(exchange) => match replay.body(exchange).and_then(|body| served(exchange, body)) {
            Ok(answer) => {
                entry.line.status = answer.status().as_u16();
                return answer;
            }
            Err(err) => {
                tracing::warn!(%err, "a recorded answer cannot be read");
                (Some(exchange), vec!["answer".to_owned()])
            }
        },
        Replayed::NotRecorded { nearest, differs } => (nearest, differs),
    };
    caller.shared.report(EgressDenial::NOT_RECORDED.code, Some(target.shown()), None);
    not_recorded(EgressDenial::NOT_RECORDED.logged(&mut entry), &shown, nearest, &differs, replay)
}

/// Reads a request as it is compared.
async fn comparable(
    request: Request<Incoming>,
    target: &EgressTarget,
    scheme: &str,
    placeholders: &Redactor,
) -> hyper::Result<ReplayedRequest> {
    let (parts, mut body) = request.into_parts();
    let (mut hash, mut bytes, mut begins) = (Sha256::new(), 0, Vec::new());
    let mut add = |piece: &[u8]| {
        hash.update(piece);
        bytes += piece.len() as u64;
        begins.extend_from_slice(&piece[..piece.len().min(4 * MAX_TEXT - begins.len().min(4 * MAX_TEXT))]);
    };
    let mut sieve = placeholders.sieve();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            add(&sieve.push(&piece));
        }
    }
    add(&sieve.end());
    let url = text_without(placeholders, &address(scheme, target, &parts.uri));
    let (method, sha256) = (parts.method.to_string(), hex::encode(hash.finalize()));
    Ok(ReplayedRequest { method, url, sha256, bytes, text: text(begins) })
}

/// A recorded answer.
fn served(exchange: &RecordedExchange, body: Vec<u8>) -> io::Result<Response<Body>> {
    let body = match exchange.answer.trailers.is_empty() {
        true => whole(body),
        false => {
            let trailers = Frame::trailers(bytes_of(&exchange.answer.trailers));
            let frames = [Frame::data(Bytes::from(body)), trailers].map(Ok::<_, BodyError>);
            StreamBody::new(stream::iter(frames)).boxed_unsync()
        }
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(exchange.status).map_err(io::Error::other)?;
    *answer.headers_mut() = bytes_of(&exchange.answer.headers);
    Ok(answer)
}

/// The answer to a request that the record does not have: both sides, and what differs.
fn not_recorded(
    denial: EgressDenial,
    request: &ReplayedRequest,
    nearest: Option<&RecordedExchange>,
    differs: &[String],
    replay: &Replay,
) -> Response<Body> {
    let nearest = nearest.map(|it| {
        json!({
            "sequence": it.sequence,
            "method": it.method,
            "url": it.url,
            "sha256": it.request.body.sha256,
            "bytes": it.request.body.bytes,
            "text": replay.request_text(it),
        })
    });
    let error = json!({
        "code": denial.code,
        "message": denial.message,
        "request": request,
        "nearest": nearest,
        "differs": differs,
    });
    json_answer(denial.status, &json!({ "error": error }))
}
