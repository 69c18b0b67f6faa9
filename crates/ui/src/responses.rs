//! Answers of the page's server.

use coracle_transport::HttpResponse;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

pub(crate) fn json(answer: Map<String, Value>) -> HttpResponse {
    content("application/json", Value::Object(answer).to_string().into())
}

pub(crate) fn content(media_type: &'static str, text: Bytes) -> HttpResponse {
    with_type(media_type, Response::new(Full::new(text).boxed()))
}

/// A streamed answer.
pub(crate) fn streamed(mut pieces: mpsc::Receiver<Bytes>) -> HttpResponse {
    let pieces = stream::poll_fn(move |cx| pieces.poll_recv(cx).map(|piece| piece.map(|it| Ok(Frame::data(it)))));
    Response::new(BodyExt::boxed(StreamBody::new(pieces)))
}

pub(crate) fn with_type(media_type: &'static str, mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
