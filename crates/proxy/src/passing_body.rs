//! Bodies of requests and answers that the proxy forwards as they come.

use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::body::ByteCounter;
use crate::entry::Entry;
use crate::response::{Body, BodyError};
use crate::scrub::Scrub;

/// A body on its way through the proxy: with its length and its trailers, which gRPC needs.
pub(crate) struct PassingBody {
    incoming: Incoming,
    watcher: Watcher,
    /// Removes secrets from it.
    scrub: Option<Scrub>,
    trailers: Option<Frame<Bytes>>,
    has_ended: bool,
}

/// Counts what passes.
enum Watcher {
    Request(ByteCounter),
    /// An answer has to go on within a time.
    Response(Box<Entry>, Duration, Pin<Box<Sleep>>),
}

impl PassingBody {
    /// The body of a request.
    pub(crate) fn request(incoming: Incoming, sent: ByteCounter) -> Self {
        Self { incoming, watcher: Watcher::Request(sent), scrub: None, trailers: None, has_ended: false }
    }

    /// The body of an answer, which ends if nothing comes for that long.
    pub(crate) fn response(incoming: Incoming, entry: Entry, scrub: Option<Scrub>, silence: Duration) -> Self {
        let watcher = Watcher::Response(Box::new(entry), silence, Box::pin(sleep(silence)));
        Self { incoming, watcher, scrub, trailers: None, has_ended: false }
    }

    pub(crate) fn boxed(self) -> Body {
        self.boxed_unsync()
    }

    /// Filters a frame. `None` if nothing of it can pass yet.
    fn filtered(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let Some(scrub) = &mut self.scrub else { return Some(frame) };
        match frame.into_data() {
            Ok(piece) => Some(scrub.push(&piece)).filter(|it| !it.is_empty()).map(|it| Frame::data(it.into())),
            Err(trailers) => {
                let mut trailers = trailers.into_trailers().ok()?;
                let is_dirty = trailers.values().any(|it| scrub.is_in(it.as_bytes()));
                if is_dirty {
                    trailers.clear();
                }
                self.trailers = Some(Frame::trailers(trailers));
                None
            }
        }
    }
}

impl hyper::body::Body for PassingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if self.has_ended {
                return Poll::Ready(self.trailers.take().map(Ok));
            }
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Pending => {
                    let Watcher::Response(_, _, idle) = &mut self.watcher else { return Poll::Pending };
                    return idle.as_mut().poll(cx).map(|()| Some(Err("no data for too long".into())));
                }
                Poll::Ready(Some(Err(err))) => return Poll::Ready(Some(Err(err.into()))),
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    self.has_ended = true;
                    let rest = self.scrub.as_mut().map(Scrub::finish).unwrap_or_default();
                    if rest.is_empty() {
                        continue;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
                }
            };
            let piece = frame.data_ref().map_or(&[][..], |it| it);
            match &mut self.watcher {
                Watcher::Request(sent) => drop(sent.add(piece.len())),
                Watcher::Response(entry, silence, idle) => {
                    entry.on_response_chunk(piece);
                    idle.as_mut().reset(Instant::now() + *silence);
                }
            }
            if let Some(frame) = self.filtered(frame) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.scrub.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.scrub.is_some() { SizeHint::default() } else { self.incoming.size_hint() }
    }
}
