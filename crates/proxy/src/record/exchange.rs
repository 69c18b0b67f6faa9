//! An exchange as a record has it.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// The version of this format.
pub(super) const VERSION: u32 = 1;

/// A request and its answer: one line of `exchanges.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// The version of the format.
    pub v: u32,
    /// When the request began, in microseconds since 1970. No two of a record are equal.
    pub sequence: u64,
    /// When the request began.
    pub time: String,
    /// Its duration, in milliseconds.
    pub ms: u64,
    /// The method. `CONNECT` for a connection whose requests the proxy cannot see.
    pub method: String,
    /// The whole address, with the query. `host:port` for such a connection.
    pub url: String,
    /// What the program sent.
    pub request: RecordedMessage,
    /// The status of the answer; 499 if the program did not wait for it.
    pub status: u16,
    /// What the program received.
    pub answer: RecordedMessage,
    /// Why the proxy itself answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One side of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMessage {
    /// Names and values, in order. Each character is one byte of the value.
    pub headers: Vec<[String; 2]>,
    /// The body.
    pub body: RecordedBody,
    /// Headers after the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trailers: Vec<[String; 2]>,
}

/// A body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBody {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, which names its file. An empty one has no file.
    pub sha256: String,
    /// Why it has no file, or not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// What a record does not have, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The body is longer than a body may be.
    BodyLimit,
    /// The record is as large as it may be.
    RecordLimit,
    /// It was cut off, or the program did not wait for its end.
    EndedEarly,
    /// What passes after a change of the protocol, such as to WebSocket.
    ProtocolChanged,
    /// A connection without TLS, or to an address: the proxy does not see its requests.
    NotSeen,
}

impl RecordedExchange {
    /// Whether it can be answered again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.method != "CONNECT" && self.status != 499 && self.answer.body.missing.is_none()
    }
}

impl RecordedExchange {
    /// The approximate length of its line.
    pub(super) fn head_bytes(&self) -> u64 {
        let pairs = |message: &RecordedMessage| {
            message.headers.iter().chain(&message.trailers).map(|[name, value]| name.len() + value.len()).sum::<usize>()
        };
        (self.method.len() + self.url.len() + pairs(&self.request) + pairs(&self.answer)) as u64
    }
}

impl RecordedMessage {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        Self { headers: bounded(pairs(headers)), ..Self::default() }
    }
}

impl RecordedMessage {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it[0] == name).map(|it| it[1].as_str())
    }
}

/// Maximum size of the headers of one side.
const MAX_HEADERS: usize = 16 << 10;

/// Headers without their values, if they are too long together.
pub(super) fn bounded(pairs: Vec<[String; 2]>) -> Vec<[String; 2]> {
    if pairs.iter().map(|[name, value]| name.len() + value.len()).sum::<usize>() <= MAX_HEADERS {
        return pairs;
    }
    pairs.into_iter().map(|[name, _]| [name, "[too long]".to_owned()]).take(MAX_HEADERS / 64).collect()
}

/// Lists headers.
pub(super) fn pairs(headers: &HeaderMap) -> Vec<[String; 2]> {
    headers.iter().map(|(name, value)| [name.to_string(), text_of(value.as_bytes())]).collect()
}

/// The bytes of a header as a text of as many characters.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The headers of such a list.
pub(crate) fn bytes_of(pairs: &[[String; 2]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for [name, value] in pairs {
        let bytes: Vec<u8> = value.chars().filter_map(|it| u8::try_from(it).ok()).collect();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&bytes)) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_the_same_after_they_were_stored() {
        let mut headers = HeaderMap::new();
        for value in [&b"plain"[..], b"", "caf\u{e9}".as_bytes(), &[0xff, 0x80, b'x']] {
            headers.append("x-one", HeaderValue::from_bytes(value).unwrap());
        }
        headers.append("set-cookie", HeaderValue::from_static("a=b"));
        assert_eq!(bytes_of(&pairs(&headers)), headers);
    }
}
