use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Code;

const ID: &str = "0123456789abcdef0123456789abcdef";

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn x42_golden_frames() {
    let mut message = WorkerMessage::new(MessageType::ToolCall);
    message.tool_name = Some("ls".into());
    message.tool_call_id = Some("call_1".into());
    message.tool_input = Some(json!({ "path": "src" }).as_object().unwrap().clone());
    message.model = Some("m".into());
    message.seq = 2;
    let message = serde_json::to_string(&message).unwrap();
    assert_snapshot!(message, @r#"{"type":"tool_call","content":null,"tool_name":"ls","tool_call_id":"call_1","tool_input":{"path":"src"},"tool_output":null,"session_id":null,"is_error":false,"model":"m","usage":null,"code":null,"seq":2}"#);
    let id = ID.to_owned();
    let msg = ResponseFrame::Msg { text: "{}".into(), id: id.clone() };
    let error =
        ResponseFrame::Error { text: "Stopped after 50 turns.".into(), code: "max_turns".into(), id: id.clone() };
    let done = ResponseFrame::Done { messages: 7, id };
    assert_snapshot!(text([&msg, &error, &done].map(ResponseFrame::to_line).concat()), @r#"
    {"frame":"msg","msg":"{}","error":null,"id":"0123456789abcdef0123456789abcdef"}
    {"frame":"error","msg":null,"error":"Stopped after 50 turns.","id":"0123456789abcdef0123456789abcdef","code":"max_turns"}
    {"frame":"done","msg":null,"error":null,"id":"0123456789abcdef0123456789abcdef","messages":7}
    "#);
    for frame in [msg, error, done] {
        assert_eq!(ResponseFrame::parse(frame.to_line().trim_ascii_end()).unwrap(), frame);
    }
    let mut request = WorkerRequest::new(Mode::Agentic, ID);
    (request.prompt, request.model) = (Some("do it".into()), Some("m".into()));
    let bytes = encode(&request).unwrap();
    assert_eq!(bytes[..4], u32::try_from(bytes.len() - 4).unwrap().to_be_bytes());
    assert_snapshot!(text(bytes[4..].to_vec()), @r#"{"mode":"agentic","prompt":"do it","model":"m","cwd":null,"instructions":null,"schema_path":null,"schema":null,"tools":null,"limits":null,"session_id":null,"id":"0123456789abcdef0123456789abcdef"}"#);
}

#[test]
fn x43_an_impossible_size_is_refused_before_anything_is_buffered() {
    let next = |bytes: &[u8]| {
        let mut requests = Requests::default();
        requests.push(bytes);
        let next = requests.next_request();
        (next.map_err(|it| (it.code, it.message)), requests)
    };
    for (length, expected) in [(0, "Invalid request length: 0"), (67_108_865_u32, "Invalid request length: 67108865")] {
        let (next, _) = next(&length.to_be_bytes());
        assert_eq!(next.unwrap_err(), (Code::InvalidRequestLength, expected.to_owned()));
    }
    let mut request = WorkerRequest::new(Mode::Generate, ID);
    request.prompt = Some("x".repeat(100));
    let bytes = encode(&request).unwrap();
    let (none, requests) = next(&bytes[..bytes.len() - 3]);
    assert_eq!(none.unwrap(), None);
    let truncated = requests.end().unwrap_err();
    assert_eq!((truncated.code, truncated.message.as_str()), (Code::TruncatedRequest, "Truncated request"));
    assert!(Requests::default().end().is_ok(), "an end between requests is clean");
    request.prompt = Some("x".repeat(MAX_REQUEST));
    let refused = encode(&request).unwrap_err();
    assert_eq!(refused.code, Code::RequestTooLarge);
    let length = serde_json::to_vec(&request).unwrap().len();
    assert_eq!(refused.message, format!("Request is too large: {length} bytes (max 67108864)"));
}

#[test]
fn a_line_that_is_no_frame_is_reported_with_its_beginning() {
    let long = format!("{{\"frame\":\"{}", "x".repeat(500));
    let id = format!("\"id\":\"{ID}\"");
    for line in [
        "",
        "hello",
        "[]",
        &long,
        "{\"frame\":\"msg\",\"msg\":\"x\",\"error\":null}",
        "{\"frame\":\"msg\",\"msg\":\"x\",\"error\":null,\"id\":\"short\"}",
        &format!("{{\"frame\":\"msg\",\"msg\":null,\"error\":null,{id}}}"),
        &format!("{{\"frame\":\"msg\",\"msg\":\"x\",\"error\":\"y\",{id}}}"),
        &format!("{{\"frame\":\"done\",\"msg\":null,\"error\":null,{id}}}"),
        &format!("{{\"frame\":\"done\",\"msg\":null,\"error\":null,\"messages\":-1,{id}}}"),
        &format!("{{\"frame\":\"error\",\"msg\":null,\"error\":\"x\",{id}}}"),
        &format!("{{\"frame\":\"msg\",\"msg\":\"x\",\"error\":null,\"more\":1,{id}}}"),
    ] {
        let failure = ResponseFrame::parse(line.as_bytes()).unwrap_err();
        assert_eq!(failure.code, Code::MalformedFrame, "{line}");
        let shown: String = line.chars().take(200).collect();
        assert_eq!(failure.message, format!("Malformed worker frame: {shown}"));
    }
    assert!(ResponseFrame::parse(b"\xff{}").is_err());
}

#[test]
fn a_line_without_an_end_is_not_gathered_for_ever() {
    let mut lines = Lines::default();
    lines.push(&vec![b'x'; MAX_LINE - 1]);
    assert_eq!(lines.next_line().unwrap(), None);
    assert!(lines.is_within());
    lines.push(b"\nnext\n");
    assert_eq!(lines.next_line().unwrap().unwrap().len(), MAX_LINE - 1);
    assert_eq!(lines.next_line().unwrap(), Some(&b"next"[..]));
    assert_eq!(lines.next_line().unwrap(), None);
    assert!(!lines.is_within());
    lines.push(&vec![b'x'; MAX_LINE]);
    assert_eq!(lines.next_line().unwrap_err().code, Code::MalformedFrame);
}

#[test]
fn a_request_that_makes_no_sense_says_what_is_wrong() {
    let parse = |value: serde_json::Value| WorkerRequest::parse(&serde_json::to_vec(&value).unwrap()).unwrap_err();
    for (value, expected) in [
        (json!({ "mode": "agentic", "model": "m" }), "`prompt` is required"),
        (json!({ "mode": "agentic", "prompt": " \n", "model": "m" }), "`prompt` is required"),
        (json!({ "mode": "generate", "prompt": "p" }), "`model` is required"),
        (json!({ "mode": "cancel" }), "`id` is required"),
        (json!({ "mode": "cancel", "id": "x" }), "`id` is not 32 hex digits"),
        (json!({ "mode": "agentic", "prompt": "p", "model": "m", "key": "k" }), "unknown field `key`"),
        (
            json!({ "mode": "generate", "prompt": "p", "model": "m", "schema": {}, "schema_path": "x" }),
            "exclude each other",
        ),
        (json!({ "mode": "dance" }), "unknown variant `dance`"),
        (json!({ "mode": "agentic", "prompt": "p", "model": "m", "limits": { "turns": 1 } }), "unknown field `turns`"),
    ] {
        let failure = parse(value);
        assert_eq!(failure.code, Code::InvalidRequest);
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

#[test]
fn a_message_is_read_with_what_a_newer_worker_adds_and_not_without_what_it_needs() {
    let parse = |text: &str| WorkerMessage::parse(text).map_err(|it| it.split(" at ").next().unwrap().to_owned());
    assert_eq!(parse(r#"{"type":"thinking","content":"x","seq":1,"later":{}}"#).unwrap().content.unwrap(), "x");
    for (text, expected) in [
        (r#"{"type":"thinking","content":"x"}"#, "missing field `seq`"),
        (r#"{"type":"thinking","content":"x","seq":0}"#, "`seq` is missing"),
        (r#"{"type":"thinking","seq":1}"#, "`content` is missing"),
        (r#"{"type":"tool_call","tool_name":"ls","tool_input":{},"seq":1}"#, "`tool_call_id` is missing"),
        (
            r#"{"type":"tool_call","tool_name":"ls","tool_call_id":"1","tool_input":[],"seq":1}"#,
            "invalid type: sequence, expected a map",
        ),
        (r#"{"type":"usage","seq":1}"#, "`usage` is missing"),
        ("no", "expected ident"),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected);
    }
    let long = json!({ "type": "result", "content": "x".repeat(MAX_CONTENT + 1), "seq": 1 }).to_string();
    assert!(parse(&long).unwrap_err().starts_with("`content` is longer"));
}

#[test]
fn output_of_a_tool_is_cut_by_characters() {
    assert_eq!(cut(&"ä".repeat(MAX_OUTPUT)).chars().count(), MAX_OUTPUT);
    assert!(cut(&"ä".repeat(MAX_OUTPUT + 3)).ends_with("ä… [3 more characters]"));
}

proptest! {
    #[test]
    fn x42_requests_and_lines_are_whole_however_they_are_read(
        prompts in proptest::collection::vec("\\PC{1,40}", 1..4),
        size in prop_oneof![Just(1_usize), Just(2), Just(3), Just(5), Just(7), Just(100_000)],
    ) {
        let requests: Vec<WorkerRequest> = prompts.iter().map(|it| {
            let mut request = WorkerRequest::new(Mode::Agentic, ID);
            (request.prompt, request.model) = (Some(format!("p{it}")), Some("m".into()));
            request
        }).collect();
        let bytes: Vec<u8> = requests.iter().flat_map(|it| encode(it).unwrap()).collect();
        let (mut reader, mut read) = (Requests::default(), Vec::new());
        for piece in bytes.chunks(size) {
            reader.push(piece);
            while let Some(request) = reader.next_request().unwrap() {
                read.push(WorkerRequest::parse(&request).unwrap());
            }
        }
        prop_assert!(reader.end().is_ok());
        prop_assert_eq!(read, requests);

        let frames: Vec<ResponseFrame> =
            prompts.iter().map(|it| ResponseFrame::Msg { text: it.clone(), id: ID.into() }).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(ResponseFrame::to_line).collect();
        let (mut reader, mut read) = (Lines::default(), Vec::new());
        for piece in bytes.chunks(size) {
            reader.push(piece);
            while let Some(line) = reader.next_line().unwrap() {
                read.push(ResponseFrame::parse(line).unwrap());
            }
        }
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn nothing_that_comes_makes_a_reader_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..16)) {
        let (mut requests, mut lines) = (Requests::default(), Lines::default());
        for piece in pieces {
            requests.push(&piece);
            while let Ok(Some(request)) = requests.next_request() {
                let _ = WorkerRequest::parse(&request);
            }
            lines.push(&piece);
            while let Ok(Some(line)) = lines.next_line() {
                let _ = ResponseFrame::parse(line);
            }
        }
    }
}
