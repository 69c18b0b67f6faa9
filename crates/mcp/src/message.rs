//! A client's message: parsed, or answered with an error of the protocol.
//!
//! **Invariant:** every message of a client is answered, unless it is a notification or a response.

use coracle::MAX_BYTES;
use coracle_context::Code;
use coracle_transport::MessageScan;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use serde_json::{Value, json};

/// Maximum size of a message in bytes, on every transport: the size of the largest call.
pub(super) const MAX_MESSAGE: usize = MAX_BYTES;

/// Maximum nesting of objects and lists. The limit of a call within a message may be lower; its own parser reports that.
const MAX_LEVELS: usize = 64;

/// The bytes of one message, as they arrive.
#[derive(Debug, Default)]
pub(super) struct IncomingMessage {
    text: Vec<u8>,
    scan: MessageScan,
    bytes: u64,
}

/// Why a message is rejected.
#[derive(Debug)]
pub(super) struct MessageError {
    kind: FaultKind,
    id: Option<Value>,
}

#[derive(Debug)]
enum FaultKind {
    TooLong,
    TooDeep,
    NotJson(String),
    NoMessage,
    WrongParams(String),
}

/// The result of parsing a message.
#[derive(Debug)]
pub(super) enum MessageOutcome {
    Message(Box<ClientJsonRpcMessage>),
    /// An empty message, or one that needs no answer.
    Nothing,
    Refused(MessageError),
}

impl IncomingMessage {
    /// Adds bytes. The text of a message that is too long is discarded.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.scan.feed(bytes);
        self.bytes += bytes.len() as u64;
        if self.is_too_long() {
            self.text = Vec::new();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    fn is_too_long(&self) -> bool {
        self.bytes > MAX_MESSAGE as u64
    }

    /// Parses the message.
    pub(super) fn read(&self) -> MessageOutcome {
        let text = self.text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.text).trim_ascii();
        if text.is_empty() && !self.is_too_long() {
            return MessageOutcome::Nothing;
        }
        let kind = match self.parse(text) {
            Ok(message) => return MessageOutcome::Message(Box::new(message)),
            Err(kind) => kind,
        };
        tracing::debug!(?kind, "a message of the client is rejected");
        if self.scan.wants_none() {
            return MessageOutcome::Nothing;
        }
        MessageOutcome::Refused(MessageError { kind, id: self.scan.id() })
    }

    fn parse(&self, text: &[u8]) -> Result<ClientJsonRpcMessage, FaultKind> {
        if self.is_too_long() {
            return Err(FaultKind::TooLong);
        }
        if self.scan.levels() > MAX_LEVELS {
            return Err(FaultKind::TooDeep);
        }
        let message = serde_json::from_slice(text).map_err(|err| match err.classify() {
            serde_json::error::Category::Data => FaultKind::NoMessage,
            serde_json::error::Category::Eof => FaultKind::NotJson("it ends too early".to_owned()),
            _ => FaultKind::NotJson(format!("wrong at line {}, column {}", err.line(), err.column())),
        })?;
        match &message {
            // A request of the protocol with invalid parameters is parsed as an unknown one.
            ClientJsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::CustomRequest(custom) if is_known(&custom.method) => {
                    Err(FaultKind::WrongParams(custom.method.clone()))
                }
                _ => Ok(message),
            },
            _ => Ok(message),
        }
    }
}

#[cfg(feature = "http")]
impl IncomingMessage {
    /// Number of received bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The whole text; empty if it is too long.
    pub(super) fn into_text(self) -> Vec<u8> {
        self.text
    }
}

/// Whether the server supports a request.
fn is_known(method: &str) -> bool {
    ["initialize", "ping", "tools/call", "tools/list"].contains(&method)
}

impl MessageError {
    /// The JSON-RPC error response.
    pub(super) fn answer(&self) -> Value {
        let (number, message, hint) = self.rpc_error();
        let code = match self.kind {
            FaultKind::WrongParams(_) => Code::InvalidInput,
            _ => Code::InvalidJson,
        };
        let data = json!({ "code": code, "hint": hint });
        json!({
            "jsonrpc": "2.0",
            "id": self.id,
            "error": { "code": number, "message": message, "data": data },
        })
    }

    /// The error response for HTTP.
    #[cfg(feature = "http")]
    pub(super) fn status(&self) -> hyper::StatusCode {
        use hyper::StatusCode;
        match self.kind {
            FaultKind::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            FaultKind::WrongParams(_) => StatusCode::OK,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The JSON-RPC error code, the message, and the hint.
    fn rpc_error(&self) -> (i32, String, &'static str) {
        match &self.kind {
            FaultKind::TooLong => (
                -32600,
                format!("the message is larger than {MAX_MESSAGE} bytes"),
                "send a file in parts: `write_file` with `mode` `create`, then `append`; or have it copied in",
            ),
            FaultKind::TooDeep => (
                -32600,
                format!("the message nests more than {MAX_LEVELS} levels"),
                "send less nested arguments, or nested data as a string",
            ),
            FaultKind::NotJson(why) => {
                (-32700, format!("the message is not valid JSON in UTF-8: {why}"), "send one JSON object per message")
            }
            FaultKind::NoMessage => (
                -32600,
                "the message is not a JSON-RPC 2.0 request".to_owned(),
                "send `jsonrpc`, `id` (a string or a whole number), `method` and `params`",
            ),
            FaultKind::WrongParams(method) => (
                -32602,
                format!("the parameters do not fit `{}`", method.escape_debug()),
                "`tools/call` takes `name`, a string, and `arguments`, an object",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{IncomingMessage, MAX_MESSAGE, MessageOutcome};

    fn received(text: &[u8]) -> MessageOutcome {
        let mut incoming = IncomingMessage::default();
        text.chunks(1 << 20).for_each(|it| incoming.push(it));
        incoming.read()
    }

    fn refused(text: &[u8]) -> (Value, Value) {
        match received(text) {
            MessageOutcome::Refused(fault) => {
                let answer = fault.answer();
                assert!(answer["error"]["data"]["hint"].is_string() && answer["jsonrpc"] == "2.0", "{answer}");
                (answer["error"]["code"].clone(), answer["id"].clone())
            }
            other => panic!("{:.60}: {other:?}", String::from_utf8_lossy(text)),
        }
    }

    fn padded(length: usize) -> Vec<u8> {
        let (start, end) = (r#"{"method":"ping","params":{"x":""#, r#""},"jsonrpc":"2.0","id":"last"}"#);
        format!("{start}{}{end}", "x".repeat(length - start.len() - end.len())).into_bytes()
    }

    #[test]
    fn a_rejected_message_is_answered_under_its_id() {
        let deep = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"x","arguments":{{"x":{open}{close}}}}}}}"#
            )
        };
        assert!(matches!(received(deep(60).as_bytes()), MessageOutcome::Message(_)));
        for levels in [62, 128, 100_000] {
            assert_eq!(refused(deep(levels).as_bytes()), (json!(-32600), json!(7)), "{levels}");
        }
        assert_eq!(refused(b"hello"), (json!(-32700), Value::Null));
        assert_eq!(refused(br#"{"id":8,"method":"ping""#), (json!(-32700), json!(8)));
        assert_eq!(refused(b"{\"id\":9,\"method\":\"\xff\"}"), (json!(-32700), json!(9)));
        assert_eq!(refused(br#"{"jsonrpc":"2.0","id":9}"#), (json!(-32600), json!(9)));
        assert_eq!(refused(br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (json!(-32600), Value::Null));
        assert_eq!(refused(b"[1]"), (json!(-32600), Value::Null));
        let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#;
        assert_eq!(refused(call), (json!(-32602), json!(1)));
    }

    #[test]
    fn a_message_above_the_size_limit_is_rejected() {
        assert!(matches!(received(&padded(MAX_MESSAGE)), MessageOutcome::Message(_)));
        assert_eq!(refused(&padded(MAX_MESSAGE + 1)), (json!(-32600), json!("last")));
        assert_eq!(refused(&padded(20 << 20)), (json!(-32600), json!("last")));
    }

    #[test]
    fn notifications_responses_and_empty_messages_are_not_answered() {
        for text in ["", " \r\n", r#"{"jsonrpc":"2.0","method":7}"#, r#"{"id":1,"result":7,"#] {
            assert!(matches!(received(text.as_bytes()), MessageOutcome::Nothing), "{text}");
        }
    }
}
