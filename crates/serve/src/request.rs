//! Parser of a client's request lines.
//!
//! ```json
//! {"id": 1, "call": {"operation": "exec", "container": "web", "command": "ls"}, "events": true}
//! {"id": 2, "tool": "read_file", "arguments": {"path": "README.md"}}
//! {"id": 3, "cancel": 1}
//! {"id": 4, "more": 1, "window": 32}
//! {"id": 5, "tool": "upload", "arguments": {"container": "web", "path": "data.bin"}, "input": true}
//! {"id": 6, "tool": "download", "arguments": {"container": "web", "path": "data.bin"}, "events": true, "binary": true}
//! ```
//!
//! A call with `input` is followed by frames. A frame is `=`, the id, a space, a number of bytes and a newline, and then the
//! bytes; a frame of 0 bytes ends the input. The client may send [`INPUT_ROOM`](crate::input::INPUT_ROOM) bytes, and as much
//! more as events `input` with their field `room` say. With `binary` the standard output of a call comes in frames.

use coracle::{MAX_BYTES, parse_message};
use coracle_context::{Code, Failure};
use coracle_transport::MessageScan;
use serde_json::{Map, Value};

use crate::catalog::{Callee, Catalog};

/// Maximum length of an id.
const MAX_ID: usize = 128;

/// The client's id of a request, as written in the line: a text or a whole number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestId(String);

/// A parsed line.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) body: RequestBody,
}

#[derive(Debug)]
pub(crate) enum RequestBody {
    Call(CallRequest),
    /// Cancels the request with that id.
    Cancel(RequestId),
    /// The client accepts this many further events of the request with that id.
    More(RequestId, usize),
}

/// A call, and whether the client wants its events.
#[derive(Debug)]
pub(crate) struct CallRequest {
    pub(crate) callee: Callee,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) events: bool,
    /// Number of events that the client accepts before it grants more; unlimited without.
    pub(crate) window: Option<usize>,
    /// Its input follows in frames.
    pub(crate) input: bool,
    /// Its standard output is sent in frames.
    pub(crate) binary: bool,
}

/// The error of an invalid line.
#[derive(Debug)]
pub(crate) struct RequestError {
    /// Its id, if it could be parsed.
    pub(crate) id: Option<RequestId>,
    pub(crate) failure: Box<Failure>,
}

impl RequestId {
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let is_id = match value {
            Value::String(text) => text.len() <= MAX_ID,
            Value::Number(number) => number.is_i64() || number.is_u64(),
            _ => false,
        };
        is_id.then(|| Self(value.to_string()))
    }

    /// Of a line that is not a request.
    pub(crate) fn from_scan(scan: &MessageScan) -> Option<Self> {
        scan.id().as_ref().and_then(Self::from_value)
    }

    /// From JSON.
    pub(crate) fn from_json(text: &[u8]) -> Option<Self> {
        Self::from_value(&serde_json::from_slice(text).ok()?)
    }

    /// In JSON.
    pub(crate) fn json(&self) -> &str {
        &self.0
    }
}

/// Fields of a request.
const FIELDS: [&str; 10] = ["id", "call", "tool", "arguments", "events", "window", "input", "binary", "cancel", "more"];

/// Maximum number of events that a client may request in advance.
pub(crate) const MAX_WINDOW: usize = 1 << 20;

impl Request {
    /// Parses a line.
    pub(crate) fn parse(line: &[u8], catalog: &Catalog) -> Result<Self, RequestError> {
        let mut fields = parse_message(line).map_err(|failure| not_a_request(line, failure))?;
        let Some(id) = fields.get("id").and_then(RequestId::from_value) else {
            let message = format!("`id` is not a whole number or a string of at most {MAX_ID} bytes");
            let failure = Failure::invalid("id", message).hint("give each request an `id` of its own");
            return Err(RequestError { id: None, failure: failure.into() });
        };
        match body(&mut fields, catalog) {
            Ok(body) => Ok(Self { id, body }),
            Err(failure) => Err(RequestError { id: Some(id), failure: failure.into() }),
        }
    }
}

/// The error for a line that is longer than the largest call.
pub(crate) fn too_long(id: Option<RequestId>) -> RequestError {
    let message = format!("the line is larger than {MAX_BYTES} bytes");
    let failure = Failure::new(Code::InvalidJson, message)
        .hint("send a file in parts: `write_file` with `mode` `create`, then `append`; or copy it with `copy_in`");
    RequestError { id, failure: failure.into() }
}

/// The error for an invalid frame, which ends the session.
pub(crate) fn wrong_frame() -> RequestError {
    let failure = Failure::new(Code::InvalidJson, "a frame is `=ID COUNT`, a newline and COUNT bytes, at most 1 MiB")
        .hint("the session has ended: the input after an invalid frame cannot be parsed");
    RequestError { id: None, failure: failure.into() }
}

/// The error for an invalid line. Its client waits for the answer under its id.
fn not_a_request(line: &[u8], failure: Failure) -> RequestError {
    let mut scan = MessageScan::default();
    scan.feed(line);
    let failure =
        failure.hint("send one JSON object per line such as `{\"id\": 1, \"call\": {\"operation\": \"list\"}}`");
    RequestError { id: RequestId::from_scan(&scan), failure: failure.into() }
}

fn body(fields: &mut Map<String, Value>, catalog: &Catalog) -> Result<RequestBody, Failure> {
    if let Some(unknown) = fields.keys().find(|it| !FIELDS.contains(&it.as_str())) {
        let shown: String = unknown.chars().take(64).collect();
        let message = format!("a request has no field `{}`", shown.escape_debug());
        return Err(Failure::new(Code::UnknownField, message).hint(format!("its fields are {}", FIELDS.join(", "))));
    }
    let kinds: Vec<&str> =
        ["call", "tool", "cancel", "more"].into_iter().filter(|it| fields.contains_key(*it)).collect();
    match kinds.as_slice() {
        [] => Err(Failure::new(Code::MissingField, "required: `call`, `tool` or `cancel`")
            .hint("`call` takes an operation with its fields, `tool` a name beside `arguments`, `cancel` an id")),
        ["cancel"] => {
            let of = fields.get("cancel").and_then(RequestId::from_value);
            of.map(RequestBody::Cancel).ok_or_else(|| Failure::invalid("cancel", "it is not the id of a request"))
        }
        ["more"] => {
            let of = fields.get("more").and_then(RequestId::from_value);
            let of = of.ok_or_else(|| Failure::invalid("more", "it is not the id of a request"))?;
            let window = window(fields)?.ok_or_else(|| {
                Failure::new(Code::MissingField, "required: `window`").hint("say how many further events are taken")
            })?;
            Ok(RequestBody::More(of, window))
        }
        ["call"] if fields.contains_key("arguments") => {
            Err(Failure::conflicting(&["call", "arguments"], "the fields of an operation stand in `call`"))
        }
        ["call"] => call(Callee::Operation, object(fields, "call")?, fields),
        ["tool"] => {
            let name = fields.get("tool").and_then(Value::as_str);
            let callee = catalog.tool(name.ok_or_else(|| Failure::invalid("tool", "it is not a string"))?)?;
            let arguments = if fields.contains_key("arguments") { object(fields, "arguments")? } else { Map::new() };
            call(callee, arguments, fields)
        }
        several => Err(Failure::conflicting(several, "a request is one of them")),
    }
}

fn object(fields: &mut Map<String, Value>, name: &str) -> Result<Map<String, Value>, Failure> {
    match fields.remove(name) {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(Failure::invalid(name, "it is not an object")),
    }
}

fn call(callee: Callee, arguments: Map<String, Value>, fields: &Map<String, Value>) -> Result<RequestBody, Failure> {
    let (events, input, binary) = (flag(fields, "events")?, flag(fields, "input")?, flag(fields, "binary")?);
    let window = window(fields)?;
    for (name, is_given) in [("window", window.is_some()), ("binary", binary)] {
        if is_given && !events {
            return Err(Failure::invalid(name, "without `events` none come"));
        }
    }
    Ok(RequestBody::Call(CallRequest { callee, arguments, events, window, input, binary }))
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, Failure> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Failure::invalid(name, "it is neither true nor false")),
    }
}

fn window(fields: &Map<String, Value>) -> Result<Option<usize>, Failure> {
    let Some(value) = fields.get("window").filter(|value| !value.is_null()) else { return Ok(None) };
    let window = value.as_u64().and_then(|it| usize::try_from(it).ok()).filter(|it| (1..=MAX_WINDOW).contains(it));
    let message = || Failure::invalid("window", format!("it is not a whole number from 1 to {MAX_WINDOW}"));
    window.map(Some).ok_or_else(message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{MAX_WINDOW, window};

    fn read(value: Value) -> Result<Option<usize>, String> {
        let fields = Map::from_iter([("window".to_owned(), value)]);
        window(&fields).map_err(|failure| failure.code.word().to_owned())
    }

    #[test]
    fn a_window_is_a_number_of_events() {
        assert_eq!(window(&Map::new()).unwrap(), None);
        assert_eq!((read(json!(1)), read(json!(MAX_WINDOW))), (Ok(Some(1)), Ok(Some(MAX_WINDOW))));
        for wrong in [json!(0), json!(-1), json!(MAX_WINDOW + 1), json!("1"), json!(1.5)] {
            assert_eq!(read(wrong.clone()), Err("invalid_input".to_owned()), "{wrong}");
        }
    }
}
