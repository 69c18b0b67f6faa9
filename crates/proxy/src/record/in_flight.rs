//! An exchange that is going on.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};
use std::time::Instant;

use coracle_types::Redactor;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Bytes, Frame, SizeHint};
use hyper::{HeaderMap, Response, StatusCode};

use super::capture::Capture;
use super::exchange::{Missing, RecordedExchange, RecordedMessage, VERSION, bounded, pairs, text_of};
use super::recorder::{FinishedExchange, Recorder};
use crate::log::{ms_since, now};
use crate::response::{Body, BodyError};

/// Headers of requests with which programs log in by themselves. A replay does not compare them.
const CREDENTIALS: [&str; 7] =
    ["authorization", "cookie", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token"];

/// Maximum length of a method.
const MAX_METHOD: usize = 32;

/// The value of such a header in a record.
const NOT_RECORDED: &str = "[not recorded]";

/// An exchange until its answer ends. It is written when that happens, or when it is given up.
pub(crate) struct Exchange {
    recorder: Arc<Recorder>,
    draft: Mutex<Option<Draft>>,
}

/// What is known of it so far.
struct Draft {
    begun: Instant,
    exchange: RecordedExchange,
    request: Capture,
    answer: Capture,
    placeholders: Redactor,
}

/// A request before the proxy changes it.
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: String,
    pub(crate) headers: &'a HeaderMap,
    /// Replaces the placeholders in it.
    pub(crate) placeholders: Redactor,
}

impl Exchange {
    /// Begins one. `None` if the record is full.
    pub(crate) fn begin(recorder: &Arc<Recorder>, head: &RequestHead<'_>) -> Option<Arc<Self>> {
        let sequence = recorder.next()?;
        let headers = bounded(request_pairs(head.headers, &head.placeholders));
        let exchange = RecordedExchange {
            v: VERSION,
            sequence,
            time: now(),
            ms: 0,
            method: head.method.chars().take(MAX_METHOD).collect(),
            url: text_without(&head.placeholders, &head.url),
            request: RecordedMessage { headers, ..RecordedMessage::default() },
            status: 499,
            answer: RecordedMessage::default(),
            refused: None,
        };
        let (request, answer) = (Capture::new(Some(&head.placeholders)), Capture::new(None));
        let placeholders = head.placeholders.clone();
        let draft = Draft { begun: Instant::now(), exchange, request, answer, placeholders };
        recorder.is_active(true);
        Some(Arc::new(Self { recorder: recorder.clone(), draft: Mutex::new(Some(draft)) }))
    }

    /// Copies the body of the request as it passes.
    pub(crate) fn request(self: &Arc<Self>, body: Body) -> Body {
        Tee::new(body, Side::Request, self.clone()).boxed_unsync()
    }

    /// Copies the answer as it passes. `refused` is the code of one of the proxy itself.
    pub(crate) fn answer(self: &Arc<Self>, answer: Response<Body>, refused: Option<&str>) -> Response<Body> {
        let status = answer.status();
        let mut is_empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if let Some(draft) = &mut *self.draft() {
            is_empty |= draft.exchange.method == "HEAD";
            draft.exchange.status = status.as_u16();
            draft.exchange.refused = refused.map(str::to_owned);
            draft.exchange.answer = RecordedMessage::new(answer.headers());
            if status == StatusCode::SWITCHING_PROTOCOLS {
                draft.answer.leave_out(Missing::ProtocolChanged, self.recorder.space());
                is_empty = true;
            }
        }
        if is_empty {
            // Its body is not read.
            self.end(Side::Answer);
        }
        answer.map(|body| Tee::new(body, Side::Answer, self.clone()).boxed_unsync())
    }

    /// Writes a connection of which only the length is known.
    pub(crate) fn not_seen(self: &Arc<Self>, sent: u64, received: u64) {
        let Some(mut draft) = self.draft().take() else { return };
        draft.exchange.status = 200;
        for (capture, bytes) in [(&mut draft.request, sent), (&mut draft.answer, received)] {
            capture.not_seen(bytes);
        }
        self.write(draft);
    }

    /// Adds a piece to the copy of a body.
    fn push(&self, side: Side, piece: &[u8]) {
        self.on(side, |capture, recorder| capture.push(piece, recorder.space()));
    }

    /// Adds the headers after a body.
    fn trailers(&self, side: Side, trailers: &HeaderMap) {
        let placeholders = self.draft().as_ref().map(|it| it.placeholders.clone());
        let pairs = match (side, placeholders) {
            (Side::Request, Some(placeholders)) => request_pairs(trailers, &placeholders),
            _ => pairs(trailers),
        };
        self.on(side, |capture, _| capture.trailers(bounded(pairs)));
    }

    /// Notes the end of a body. With the end of the answer, the exchange is written.
    fn end(&self, side: Side) {
        self.on(side, |capture, _| capture.end());
        if side == Side::Answer {
            self.finish();
        }
    }

    /// Writes it as it is.
    fn finish(&self) {
        let draft = self.draft().take();
        draft.into_iter().for_each(|it| self.write(it));
    }

    fn on(&self, side: Side, change: impl FnOnce(&mut Capture, &Recorder)) {
        if let Some(draft) = &mut *self.draft() {
            let capture = match side {
                Side::Request => &mut draft.request,
                Side::Answer => &mut draft.answer,
            };
            change(capture, &self.recorder);
        }
    }

    fn write(&self, draft: Draft) {
        let Draft { begun, mut exchange, request, answer, .. } = draft;
        exchange.ms = ms_since(begun);
        let space = self.recorder.space();
        let (mut request, mut answer) = (request.finish(space), answer.finish(space));
        exchange.request.trailers = mem::take(&mut request.trailers);
        exchange.answer.trailers = mem::take(&mut answer.trailers);
        (exchange.request.body, exchange.answer.body) = (request.body, answer.body);
        self.recorder.write(FinishedExchange { exchange, bodies: [request.stored, answer.stored] });
    }

    fn draft(&self) -> MutexGuard<'_, Option<Draft>> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.finish();
        self.recorder.is_active(false);
    }
}

/// The headers of a request, with the names of secrets instead of their placeholders, and without a program's own logins.
fn request_pairs(headers: &HeaderMap, placeholders: &Redactor) -> Vec<[String; 2]> {
    let recorded = |[name, value]: [String; 2]| {
        let cleaned = text_without(placeholders, &value);
        let is_login = CREDENTIALS.contains(&&*name);
        // With a placeholder, it is a secret of the user's configuration. A cookie may have others beside it.
        let is_own = is_login && (cleaned == value || name == "cookie");
        [name, if is_own { NOT_RECORDED.to_owned() } else { cleaned }]
    };
    pairs(headers).into_iter().map(recorded).collect()
}

/// A text with the names of secrets instead of their placeholders.
pub(crate) fn text_without(placeholders: &Redactor, text: &str) -> String {
    let bytes: Vec<u8> = text.chars().map(|it| u8::try_from(it).unwrap_or(b'?')).collect();
    text_of(&placeholders.clean_between(&[], &bytes, &[]))
}

/// A side of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Request,
    Answer,
}

/// A body whose frames are also given to an exchange, which is complete before its last frame is sent.
struct Tee {
    inner: Body,
    side: Side,
    exchange: Arc<Exchange>,
}

impl Tee {
    fn new(inner: Body, side: Side, exchange: Arc<Exchange>) -> Self {
        // A body that is known to be empty is not read.
        if inner.is_end_stream() {
            exchange.end(side);
        }
        Self { inner, side, exchange }
    }
}

impl hyper::body::Body for Tee {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    self.exchange.push(self.side, piece);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    self.exchange.trailers(self.side, trailers);
                }
                // The body of a request with a length is not read to the mark of its end.
                let is_whole = self.side == Side::Request && self.inner.size_hint().exact() == Some(0);
                if self.inner.is_end_stream() || frame.is_trailers() || is_whole {
                    self.exchange.end(self.side);
                }
            }
            Poll::Ready(None) => self.exchange.end(self.side),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        if self.side == Side::Answer {
            self.exchange.finish();
        }
    }
}
