//! One request on its way through the proxy: its response, its line in the log, and its costs.

use std::sync::Arc;
use std::time::Instant;

use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::body::ByteCounter;
use crate::caller::ProxyInner;
use crate::log::{RequestLogLine, ms_since, now};
use crate::response::{Body, BodyError, Rejection, streamed};
use crate::scrub::Scrub;
use crate::usage::{Usage, UsageReader};

/// The response to a request that was not refused.
pub(crate) enum Accepted {
    Whole(Response<Body>),
    Passing(Box<UpstreamResponse>),
}

/// A response of an upstream server, to be forwarded.
pub(crate) struct UpstreamResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    pub(crate) scrub: Scrub,
    /// Reads the usage from it.
    pub(crate) reader: Option<UsageReader>,
    /// Released when the response is complete.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

impl UpstreamResponse {
    /// Forwards the response as it arrives. Only bytes that may be the start of a key are held back.
    pub(crate) fn through(self, mut entry: Entry) -> Response<Body> {
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

    /// Ends a response whose head is already sent: the only way to report an error is to cut the body off.
    fn breaks(mut self, no: Rejection) -> Option<(Result<Bytes, BodyError>, Option<Self>)> {
        self.entry.line.code = Some(no.code());
        Some((Err(no.code().into()), None))
    }
}

/// A request that is logged when it ends, in whatever way, and whose usage is then counted.
pub(crate) struct Entry {
    shared: Arc<ProxyInner>,
    begun: Instant,
    pub(crate) line: RequestLogLine,
    pub(crate) sent: ByteCounter,
    reader: Option<UsageReader>,
    /// It was sent to a provider that may charge for it.
    charged: bool,
    whole: bool,
}

impl Entry {
    pub(crate) fn new(shared: &Arc<ProxyInner>, route: &'static str) -> Self {
        // If the client disconnects before there is a response, this line is logged.
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

    pub(crate) fn charge(&mut self) {
        self.charged = true;
    }

    pub(crate) fn is_free(&mut self) {
        self.charged = false;
    }

    pub(crate) fn on_response_chunk(&mut self, piece: &[u8]) {
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
