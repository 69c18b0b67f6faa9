//! What a worker says, line by line, while it serves.

use serde::{Deserialize, Serialize};

use crate::{Code, Failure, Result};

/// Bytes of an id: 128 random bits in hex.
const ID: usize = 32;

/// Characters of an invalid line in an error.
const SHOWN: usize = 200;

/// One line of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseFrame {
    /// A message of the run, as JSON text.
    Msg {
        /// The message.
        text: String,
        /// Of the request.
        id: String,
    },
    /// The run failed; [`Done`](Self::Done) follows.
    Error {
        /// Why.
        text: String,
        /// What callers branch on.
        code: String,
        /// Of the request.
        id: String,
    },
    /// The run is over.
    Done {
        /// How many [`Msg`](Self::Msg) there were.
        messages: u64,
        /// Of the request.
        id: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FrameKind {
    Msg,
    Error,
    Done,
}

/// The line itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameLine {
    frame: FrameKind,
    msg: Option<String>,
    error: Option<String>,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
}

impl ResponseFrame {
    /// The id of the request that it belongs to.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Msg { id, .. } | Self::Error { id, .. } | Self::Done { id, .. } => id,
        }
    }

    /// As a line, with its end.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let empty =
            |frame| FrameLine { frame, msg: None, error: None, id: self.id().to_owned(), code: None, messages: None };
        let line = match self {
            Self::Msg { text, .. } => FrameLine { msg: Some(text.clone()), ..empty(FrameKind::Msg) },
            Self::Error { text, code, .. } => {
                FrameLine { error: Some(text.clone()), code: Some(code.clone()), ..empty(FrameKind::Error) }
            }
            Self::Done { messages, .. } => FrameLine { messages: Some(*messages), ..empty(FrameKind::Done) },
        };
        let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// `malformed_frame`, for anything that is not exactly one of the three.
    pub fn parse(line: &[u8]) -> Result<Self> {
        read(line).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(line).chars().take(SHOWN).collect();
            Failure::new(Code::MalformedFrame, format!("Malformed worker frame: {shown}"))
        })
    }
}

fn read(line: &[u8]) -> Option<ResponseFrame> {
    let FrameLine { frame, msg, error, id, code, messages } = serde_json::from_slice(line).ok()?;
    if !is_id(&id) {
        return None;
    }
    match (frame, msg, error, code, messages) {
        (FrameKind::Msg, Some(text), None, None, None) => Some(ResponseFrame::Msg { text, id }),
        (FrameKind::Error, None, Some(text), Some(code), None) => Some(ResponseFrame::Error { text, code, id }),
        (FrameKind::Done, None, None, None, Some(messages)) => Some(ResponseFrame::Done { messages, id }),
        _ => None,
    }
}

pub(super) fn is_id(id: &str) -> bool {
    id.len() == ID && id.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}
