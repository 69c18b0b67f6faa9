//! The recorded request that is nearest to another one.

use super::line::ReplayedRequest;
use crate::record::{Missing, RecordedExchange};

/// Finds the recorded request that has most in common with a request to the same host.
pub(super) fn nearest<'a>(
    exchanges: &'a [RecordedExchange],
    request: &ReplayedRequest,
    is_waiting: impl Fn(&RecordedExchange) -> bool,
) -> Option<&'a RecordedExchange> {
    let wanted = UrlParts::of(&request.url);
    let score = |exchange: &RecordedExchange| {
        let url = UrlParts::of(&exchange.url);
        let common = url.path.bytes().zip(wanted.path.bytes()).take_while(|(a, b)| a == b).count();
        (
            url.path == wanted.path,
            exchange.method == request.method,
            url.query == wanted.query,
            common,
            is_waiting(exchange),
        )
    };
    let same_host = exchanges.iter().filter(|it| UrlParts::of(&it.url).origin == wanted.origin);
    // Of equal ones, the first.
    same_host.rev().max_by_key(|it| score(it))
}

/// Names what differs.
pub(super) fn differences(recorded: &RecordedExchange, request: &ReplayedRequest) -> Vec<String> {
    let (there, here) = (UrlParts::of(&recorded.url), UrlParts::of(&request.url));
    let body = &recorded.request.body;
    let parts = [
        ("method", recorded.method != request.method),
        ("path", there.path != here.path),
        ("query", there.query != here.query),
        ("body", body.missing != Some(Missing::EndedEarly) && body.sha256 != request.sha256),
    ];
    let mut differs: Vec<_> = parts.iter().filter(|it| it.1).map(|it| it.0.to_owned()).collect();
    if differs.is_empty() {
        // The same request was made more often than it was recorded, or its recorded answer is not complete.
        differs.push(if recorded.is_complete() { "count" } else { "answer" }.to_owned());
    }
    differs
}

/// The parts of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UrlParts<'a> {
    origin: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> UrlParts<'a> {
    fn of(url: &'a str) -> Self {
        let host = url.find("://").map_or(0, |at| at + 3);
        let path = url[host..].find(['/', '?']).map_or(url.len(), |at| host + at);
        let (origin, rest) = url.split_at(path);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Self { origin, path, query }
    }
}
