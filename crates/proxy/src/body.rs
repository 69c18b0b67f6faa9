//! Forwarding of headers and bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coracle_http::{HttpClient, HttpError};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, EXPECT, HeaderName};
use hyper::{HeaderMap, Request, Response};
use tokio::time::timeout;

use crate::response::{Body, Rejection};
use crate::settings::Timeouts;

/// Headers that belong to one connection or describe other parties. They are not forwarded.
const NOT_FORWARDED: [&str; 14] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "set-cookie",
    "location",
    "content-location",
    "alt-svc",
];

/// How much of a refused body is still read, and for how long: clients that are still sending would not read the
/// answer.
const DRAIN_LIMIT: (u64, Duration) = (64 << 20, Duration::from_secs(5));

/// Counts bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCounter(Arc<AtomicU64>);

impl ByteCounter {
    /// Adds a number of bytes and returns the total.
    pub(crate) fn add(&self, bytes: usize) -> u64 {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns only the headers of these names.
pub(crate) fn only(headers: &HeaderMap, names: &[&'static str]) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for name in names.iter().copied() {
        for value in headers.get_all(name) {
            selected.append(HeaderName::from_static(name), value.clone());
        }
    }
    selected
}

/// Returns all headers except those that belong to their connection.
pub(crate) fn passing(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all("connection").iter().filter_map(|it| it.to_str().ok());
    let named: Vec<_> = named.flat_map(|it| it.split(',')).map(|it| it.trim().to_ascii_lowercase()).collect();
    let mut forwarded = HeaderMap::new();
    for (name, value) in headers {
        if !NOT_FORWARDED.contains(&name.as_str()) && !named.iter().any(|it| it == name.as_str()) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    forwarded
}

/// Parses the declared length of a body.
pub(crate) fn length(headers: &HeaderMap) -> Result<Option<u64>, Rejection> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(None) };
    let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|it| it.is_ascii_digit()));
    let length = first.to_str().ok().and_then(number).filter(|_| lengths.next().is_none());
    length.map(Some).ok_or(Rejection::Length)
}

/// Reads a body of at most `most` bytes.
pub(crate) async fn read(request: Request<Incoming>, most: u64) -> Result<Vec<u8>, Rejection> {
    let declared = length(request.headers())?;
    let waits = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    if declared.is_some_and(|it| it > most) {
        if !waits {
            drain(body).await;
        }
        return Err(Rejection::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(declared.unwrap_or(0)).unwrap_or(0).min(64 << 10));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Rejection::Length)?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
        if bytes.len() as u64 > most {
            drain(body).await;
            return Err(Rejection::TooLarge);
        }
    }
    Ok(bytes)
}

/// Reads and discards a body, within limits.
pub(crate) async fn drain(mut body: Incoming) {
    let reading = async {
        let mut left = DRAIN_LIMIT.0;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, hyper::body::Bytes::len) as u64;
            let Some(rest) = left.checked_sub(bytes) else { return };
            left = rest;
        }
    };
    let _ = timeout(DRAIN_LIMIT.1, reading).await;
}

/// Sends a request and waits for the head of its response. An error is one of three codes, so that the caller learns
/// nothing of the network behind the proxy.
pub(crate) async fn sent(
    client: &HttpClient,
    request: Result<Request<Body>, HttpError>,
    pace: Timeouts,
) -> Result<Response<Incoming>, Rejection> {
    let request = request.map_err(|_| Rejection::Failed)?;
    match timeout(pace.silence, client.send(request)).await {
        Ok(Ok(response)) => Ok(response),
        Err(_) | Ok(Err(HttpError::TimedOut(_))) => Err(Rejection::Late),
        Ok(Err(HttpError::Unreachable(_))) => Err(Rejection::Unreachable),
        Ok(Err(HttpError::Failed(_))) => Err(Rejection::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_of_a_connection_are_not_forwarded() {
        let all = headers(&[
            ("content-type", "a"),
            ("x-request-id", "1"),
            ("set-cookie", "a=b"),
            ("location", "http://secret"),
            ("transfer-encoding", "chunked"),
            ("connection", "close, X-Own"),
            ("x-own", "1"),
        ]);
        assert_eq!(passing(&all), headers(&[("content-type", "a"), ("x-request-id", "1")]));
        assert_eq!(only(&all, &["x-own", "accept"]), headers(&[("x-own", "1")]));
    }

    #[test]
    fn x53_a_length_is_one_number() {
        assert_eq!(length(&headers(&[])), Ok(None));
        assert_eq!(length(&headers(&[("content-length", "10")])), Ok(Some(10)));
        for odd in ["+1", "1, 1", "x", "-1", "", "99999999999999999999"] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_LENGTH, odd.parse().unwrap());
            assert_eq!(length(&headers), Err(Rejection::Length), "{odd}");
        }
    }
}
