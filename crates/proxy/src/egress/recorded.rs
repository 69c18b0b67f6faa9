//! Exchanges for the record, if there is one.

use std::sync::Arc;

use coracle_types::Redactor;
use hyper::{Request, Response, Uri};

use super::target::EgressTarget;
use crate::caller::Caller;
use crate::policy::EgressHost;
use crate::record::{Exchange, RequestHead, text_of};
use crate::response::Body;

/// An exchange, if the proxy records and the record has room.
#[derive(Default)]
pub(super) struct OptionalExchange(Option<Arc<Exchange>>);

impl OptionalExchange {
    /// Begins one, with a request as the program sent it.
    pub(super) fn begin<B>(caller: &Caller, target: &EgressTarget, scheme: &str, request: &Request<B>) -> Self {
        Self::of(caller, request.method().as_str(), || address(scheme, target, request.uri()), request.headers())
    }

    /// Begins that of a connection whose requests the proxy does not see.
    pub(super) fn of_connection(caller: &Caller, target: &EgressTarget) -> Self {
        Self::of(caller, "CONNECT", || target.shown(), &hyper::HeaderMap::new())
    }

    fn of(caller: &Caller, method: &str, url: impl FnOnce() -> String, headers: &hyper::HeaderMap) -> Self {
        let Some(recorder) = &caller.shared.recorder else { return Self(None) };
        // Those of the container, also of a program whose token is no longer valid.
        let grants = caller.shared.grants();
        let placeholders = grants.map_or_else(Redactor::default, |it| recorder.placeholders.redactor(&it));
        Self(Exchange::begin(recorder, &RequestHead { method, url: url(), headers, placeholders }))
    }

    /// Copies the body of a request as it passes.
    pub(super) fn request(&self, body: Body) -> Body {
        match &self.0 {
            Some(exchange) => exchange.request(body),
            None => body,
        }
    }

    /// Copies an answer as it passes. `refused` is the code of one of the proxy itself.
    pub(super) fn answer(&self, answer: Response<Body>, refused: Option<&str>) -> Response<Body> {
        match &self.0 {
            Some(exchange) => exchange.answer(answer, refused),
            None => answer,
        }
    }

    /// Writes a connection with the number of bytes of both directions.
    pub(super) fn not_seen(&self, sent: u64, received: u64) {
        if let Some(exchange) = &self.0 {
            exchange.not_seen(sent, received);
        }
    }
}

/// The whole address of a request, each byte as a character.
pub(super) fn address(scheme: &str, target: &EgressTarget, uri: &Uri) -> String {
    let usual = if scheme == "http" { 80 } else { 443 };
    let authority = match &target.host {
        EgressHost::Name(name) if target.port == usual => name.clone(),
        _ => target.shown(),
    };
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    text_of(format!("{scheme}://{authority}{path}").as_bytes())
}
