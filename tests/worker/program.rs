//! The static program on this host: its arguments, exit codes and channel.

use std::process::{Output, Stdio};

use coracle_sandbox::protocol::{MessageType, Mode, WorkerMessage, WorkerRequest, encode};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::engines::{engine_program, worker_program};
use crate::servers::model::{ModelServer, Turn, says};

/// Runs it with these arguments, variables and input.
async fn run(words: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Output {
    let program = worker_program();
    let mut command = engine_program(program.to_str().unwrap());
    command.args(words).env_clear().envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may end without reading all of it.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

fn messages(output: &Output) -> Vec<WorkerMessage> {
    String::from_utf8_lossy(&output.stdout).lines().map(|it| WorkerMessage::parse(it).unwrap()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn x48_without_a_proxy_no_provider_is_called_with_any_keys() {
    let model = ModelServer::start().await;
    let prompt = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(prompt.path(), "hello").unwrap();
    let words = ["generate", "--prompt-file", prompt.path().to_str().unwrap(), "--model", "m"];
    let (base, off) = (model.url(), "http://192.0.2.1:80/v1");
    for url in [None, Some(""), Some(off), Some("https://127.0.0.1:1/")] {
        let keys = [("OPENAI_API_KEY", "sk-1"), ("OPENAI_BASE_URL", base.as_str()), ("HTTP_PROXY", base.as_str())];
        let variables: Vec<_> = keys.into_iter().chain(url.map(|it| ("LLM_PROXY_URL", it))).collect();
        let output = run(&words, &variables, b"").await;
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("LLM_PROXY_URL is not"), "{}", text(&output.stderr));
    }
    let output = run(&words, &[("OPENAI_API_KEY", "sk-1")], b"").await;
    let reported = messages(&output);
    assert_eq!(reported.iter().map(|it| it.r#type).collect::<Vec<_>>(), [MessageType::Result, MessageType::Usage]);
    assert_eq!((reported[0].is_error, reported[0].code.as_deref()), (true, Some("proxy_required")));
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn one_run_prints_one_message_per_line_and_ends_with_its_outcome() {
    let model = ModelServer::start().await;
    let (prompt, schema) =
        (tempfile::NamedTempFile::new().unwrap(), tempfile::Builder::new().tempfile_in("/tmp").unwrap());
    std::fs::write(prompt.path(), "hello").unwrap();
    std::fs::write(schema.path(), r#"{"type":"object"}"#).unwrap();
    let (url, path) = (model.url(), prompt.path().to_str().unwrap());
    let variables = [("LLM_PROXY_URL", url.as_str())];
    let words = ["generate", "--prompt-file", path, "--model", "m"];
    model.then([says("Hello!")]);
    let output = run(&words, &variables, b"").await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let reported = messages(&output);
    assert_eq!((reported[0].content.as_deref(), reported[0].seq, reported[1].seq), (Some("Hello!"), 1, 2));
    assert!(!text(&output.stderr).contains("hello") && !text(&output.stderr).contains("Hello!"), "no text is logged");
    model.then([Turn::Refuses(401, vec![], "no", "")]);
    assert_eq!(run(&words, &variables, b"").await.status.code(), Some(4));
    let with_schema = [&words[..], &["--schema", schema.path().to_str().unwrap()]].concat();
    model.then([says("no"), says("no"), says("no")]);
    assert_eq!(run(&with_schema, &variables, b"").await.status.code(), Some(3));
    for bad in [&["dance"][..], &[], &["serve", "now"], &["generate", "--model", "m"]] {
        let output = run(bad, &variables, b"").await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{bad:?}");
        assert!(text(&output.stderr).contains("usage: worker agentic"), "{}", text(&output.stderr));
    }
}

fn request(id: char) -> Vec<u8> {
    let mut request = WorkerRequest::new(Mode::Generate, &id.to_string().repeat(32));
    (request.prompt, request.model) = (Some("p".into()), Some("m".into()));
    encode(&request).unwrap()
}

#[tokio::test]
async fn x42_x43_requests_are_served_to_a_clean_end_and_what_cannot_be_read_ends_it() {
    let variables = [("LLM_PROXY_URL", "http://127.0.0.1:9")];
    let whole = request('a');
    for (input, code, reported) in [
        (Vec::new(), 0, ""),
        (vec![0; 4], 2, "Invalid request length: 0"),
        (67_108_865_u32.to_be_bytes().to_vec(), 2, "Invalid request length: 67108865"),
        (whole[..whole.len() - 3].to_vec(), 2, "Truncated request"),
    ] {
        let output = run(&["serve"], &variables, &input).await;
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{reported}");
        assert!(text(&output.stderr).contains(reported), "{}", text(&output.stderr));
    }
}

/// The ids of the runs that a worker reports as done, one letter each.
fn done_runs(output: &Output) -> String {
    let lines = text(&output.stdout);
    let frames = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let done = frames.filter(|frame| frame["frame"] == "done");
    done.map(|frame| frame["id"].as_str().unwrap()[..1].to_owned()).collect()
}

#[tokio::test]
async fn every_request_that_came_before_the_end_of_the_input_is_carried_out() {
    let model = ModelServer::start().await;
    model.otherwise(says("an answer"));
    let url = model.url();
    let variables = [("LLM_PROXY_URL", url.as_str())];
    // More than may wait.
    let ids = "0123456789ab";
    let requests: Vec<u8> = ids.chars().flat_map(request).collect();
    let output = run(&["serve"], &variables, &requests).await;
    assert_eq!((output.status.code(), done_runs(&output).as_str()), (Some(0), ids), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).matches("an answer").count(), ids.len());
    // An unreadable line ends it after them.
    let cut = [request('a'), request('b'), request('c')[..9].to_vec()].concat();
    let output = run(&["serve"], &variables, &cut).await;
    assert_eq!((output.status.code(), done_runs(&output).as_str()), (Some(2), "ab"), "{}", text(&output.stderr));
}
