mod fake;

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use self::fake::{FakeSandboxProvider, FakeStep};
use super::*;

#[expect(clippy::needless_pass_by_value, reason = "a script reads better so")]
fn msg(value: Value) -> FakeStep {
    FakeStep::Say(json!({ "frame": "msg", "msg": value.to_string(), "error": null, "id": "$ID" }).to_string())
}

fn done(messages: u64) -> FakeStep {
    FakeStep::Say(json!({ "frame": "done", "msg": null, "error": null, "id": "$ID", "messages": messages }).to_string())
}

fn error(text: &str, code: &str) -> FakeStep {
    FakeStep::Say(json!({ "frame": "error", "msg": null, "error": text, "id": "$ID", "code": code }).to_string())
}

fn thinking(seq: u64) -> FakeStep {
    msg(json!({ "type": "thinking", "content": "hm", "model": "m", "seq": seq }))
}

fn call(seq: u64, id: &str, name: &str) -> FakeStep {
    msg(json!({ "type": "tool_call", "tool_name": name, "tool_call_id": id, "tool_input": { "a": 1 }, "seq": seq }))
}

fn answer(seq: u64, id: &str) -> FakeStep {
    msg(json!({ "type": "tool_result", "tool_name": "ls", "tool_call_id": id, "tool_output": "x", "seq": seq }))
}

fn result(seq: u64, content: &str) -> FakeStep {
    msg(json!({ "type": "result", "content": content, "model": "m", "seq": seq }))
}

fn usage(seq: u64, tokens: u64) -> FakeStep {
    msg(json!({ "type": "usage", "usage": { "input_tokens": tokens }, "seq": seq }))
}

/// A worker that does one run after the other.
fn good_run(content: &str) -> Vec<FakeStep> {
    vec![FakeStep::Wait, result(1, content), usage(2, 7), done(2)]
}

fn driver(scripts: Vec<Vec<FakeStep>>) -> (SandboxDriver, FakeSandboxProvider) {
    let provider = FakeSandboxProvider::new(scripts);
    (SandboxDriver::new(Arc::new(provider.clone()), "m"), provider)
}

fn agentic_request(prompt: &str) -> AgenticRequest {
    AgenticRequest { prompt: prompt.into(), ..AgenticRequest::default() }
}

/// The events after `started` in a word each, and the code of the error that ended the run.
async fn run(driver: &SandboxDriver) -> (Vec<String>, Option<Failure>) {
    let mut events = driver.run_agentic(agentic_request("do it"));
    let (mut words, mut failure) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Started { .. }) => {}
            Ok(Event::Result { content, .. }) => words.push(format!("result {content}")),
            Ok(Event::ToolCall { name, .. }) => words.push(format!("call {name}")),
            Ok(Event::ToolResult { name, .. }) => words.push(format!("answer {name}")),
            Ok(other) => words.push(format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_lowercase()),
            Err(err) => failure = Some(err),
        }
    }
    (words, failure)
}

#[tokio::test]
async fn a_run_is_reported_as_events_and_its_usage_is_recorded() {
    let script = [
        vec![
            FakeStep::Wait,
            thinking(1),
            call(2, "1", "Bash"),
            answer(3, "1"),
            result(4, "done"),
            usage(5, 12),
            done(5),
        ],
        good_run("again"),
    ]
    .concat();
    let (driver, provider) = driver(vec![script]);
    let (events, failure) = run(&driver).await;
    assert_eq!(failure, None);
    assert_eq!(events, ["thinking", "call shell_execute", "answer shell_execute", "result done"]);
    assert_eq!(driver.usage().unwrap().input_tokens, Some(12));
    assert_eq!(run(&driver).await.0, ["result again"]);
    assert_eq!((provider.spawned(), provider.closed()), (vec![WorkerCall::Serve], 0), "the same worker");
    let [first, second] = provider.sent().try_into().unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!((first.cwd.as_deref(), first.model.as_deref()), (Some("/workspace"), Some("m")));
    driver.close().await.unwrap();
    assert_eq!(provider.closed(), 1);
}

#[tokio::test]
async fn an_empty_prompt_starts_nothing() {
    let (driver, provider) = driver(vec![]);
    for prompt in ["", " \n\t"] {
        let failure = driver.run_agentic(agentic_request(prompt)).next().await.unwrap().unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (Code::InvalidInput, "Prompt cannot be empty"));
    }
    let outside = AgenticRequest { cwd: Some("/etc".into()), ..agentic_request("x") };
    assert_eq!(driver.run_agentic(outside).next().await.unwrap().unwrap_err().code, Code::InvalidInput);
    assert_eq!(provider.spawned(), []);
}

#[tokio::test]
async fn whatever_breaks_the_protocol_ends_the_run_and_its_worker() {
    let hello = || FakeStep::Wait;
    let unreadable = || msg(json!("no message"));
    for (what, script) in [
        ("a gap", vec![hello(), thinking(1), thinking(3)]),
        ("the result of no call", vec![hello(), answer(1, "1")]),
        ("a call twice", vec![hello(), call(1, "1", "ls"), call(2, "1", "ls")]),
        ("two results", vec![hello(), result(1, "a"), result(2, "b")]),
        ("usage before the result", vec![hello(), usage(1, 1)]),
        ("a wrong count", vec![hello(), result(1, "a"), usage(2, 1), done(3)]),
        ("no frame", vec![hello(), FakeStep::Say("Traceback (most recent call last):".into())]),
        (
            "another id",
            vec![
                hello(),
                FakeStep::Say(
                    json!({ "frame": "done", "msg": null, "error": null, "id": "0".repeat(32), "messages": 0 })
                        .to_string(),
                ),
            ],
        ),
        ("a message after an error", vec![hello(), error("x", "llm_failed"), thinking(1)]),
        ("eleven that cannot be read", std::iter::once(hello()).chain((0..11).map(|_| unreadable())).collect()),
    ] {
        let (driver, provider) = driver(vec![script, good_run("fine")]);
        let (_, failure) = run(&driver).await;
        let failure = failure.unwrap_or_else(|| panic!("{what}"));
        assert_eq!(failure.code, Code::MalformedFrame, "{what}: {failure}");
        assert!(failure.message.starts_with("Malformed worker frame: "), "{what}: {failure}");
        assert_eq!(provider.closed(), 1, "{what}");
        assert_eq!(run(&driver).await.0, ["result fine"], "{what}");
    }
}

#[tokio::test]
async fn ten_messages_that_cannot_be_read_are_passed_over() {
    let script = std::iter::once(FakeStep::Wait).chain((0..10).map(|_| msg(json!({ "type": "later", "seq": 1 }))));
    let (driver, _) = driver(vec![script.chain([result(11, "fine"), usage(12, 1), done(12)]).collect()]);
    assert_eq!(run(&driver).await, (vec!["result fine".to_owned()], None));
}

#[tokio::test]
async fn a_failed_run_ends_with_the_workers_words_and_the_worker_goes_on() {
    let failed = msg(
        json!({ "type": "result", "content": "Stopped after 2 turns.", "is_error": true, "code": "max_turns", "seq": 3 }),
    );
    let script = [
        vec![
            FakeStep::Wait,
            call(1, "1", "rm"),
            answer(2, "1"),
            failed,
            usage(4, 9),
            error("Stopped after 2 turns.", "max_turns"),
            done(4),
        ],
        good_run("fine"),
    ]
    .concat();
    let (driver, provider) = driver(vec![script]);
    let (events, failure) = run(&driver).await;
    let failure = failure.unwrap();
    assert_eq!((failure.code, failure.message.as_str()), (Code::MaxTurns, "Stopped after 2 turns."));
    assert_eq!(failure.details["may_have_changed"], true);
    assert_eq!(events, ["call rm", "answer ls".replace("ls", "rm").as_str()], "its result is no event");
    assert_eq!(driver.usage().unwrap().input_tokens, Some(9));
    assert_eq!(run(&driver).await.0, ["result fine"]);
    assert_eq!(provider.spawned().len(), 1);
}

#[tokio::test]
async fn x67_a_worker_that_dies_in_a_run_is_reported_and_another_does_the_next() {
    let (driver, provider) = driver(vec![vec![FakeStep::Wait, thinking(1), FakeStep::Die], good_run("fine")]);
    let (events, failure) = run(&driver).await;
    let failure = failure.unwrap();
    assert_eq!((events, failure.code), (vec!["thinking".to_owned()], Code::WorkerDied));
    assert!(failure.retryable && failure.details["may_have_changed"] == false);
    assert_eq!(run(&driver).await, (vec!["result fine".to_owned()], None));
    assert_eq!((provider.spawned().len(), provider.closed()), (2, 1));
    provider.recreate();
    let _ = run(&driver).await;
    assert_eq!(provider.closed(), 3, "that of another generation, and the one without a script");
}

#[tokio::test(start_paused = true)]
async fn x68_a_receiver_that_stops_listening_ends_the_run_within_five_seconds() {
    let cancelled =
        msg(json!({ "type": "result", "content": "Cancelled.", "is_error": true, "code": "cancelled", "seq": 3 }));
    let kind = vec![
        FakeStep::Wait,
        thinking(1),
        thinking(2),
        FakeStep::Wait,
        cancelled,
        usage(4, 1),
        error("Cancelled.", "cancelled"),
        done(4),
    ];
    let deaf = vec![FakeStep::Wait, thinking(1), thinking(2), FakeStep::Hang];
    for (script, closed) in [([kind, good_run("fine")].concat(), 0), (deaf, 1)] {
        let (driver, provider) = driver(vec![script, good_run("fine")]);
        let mut events = driver.run_agentic(agentic_request("do it"));
        for _ in 0..2 {
            events.next().await.unwrap().unwrap();
        }
        let begun = Instant::now();
        drop(events);
        assert_eq!(run(&driver).await, (vec!["result fine".to_owned()], None));
        assert!(begun.elapsed() <= CANCELLED + Duration::from_millis(100), "{:?}", begun.elapsed());
        assert_eq!(provider.sent()[1].mode, Mode::Cancel);
        assert_eq!(provider.sent()[1].id, provider.sent()[0].id);
        assert_eq!(provider.closed(), closed);
    }
}

#[tokio::test]
async fn x69_what_a_worker_tells_of_itself_is_not_what_was_metered() {
    let (driver, provider) = driver(vec![good_run("fine")]);
    let metered = UsageTotals { requests: 3, input_tokens: 900, output_tokens: 80, ..UsageTotals::default() };
    provider.meter(metered);
    run(&driver).await;
    assert_eq!((driver.usage().unwrap().input_tokens, driver.metered()), (Some(7), metered));
}

#[tokio::test]
async fn what_is_generated_fits_its_schema_or_is_an_error() {
    let schema = Some(json!({ "type": "object", "required": ["n"] }));
    let request = || GenerateRequest { prompt: "p".into(), schema: schema.clone(), ..GenerateRequest::default() };
    let script = [good_run(r#"{"n":1}"#), good_run(r#"{"m":1}"#), good_run("no"), vec![done(0)]].concat();
    let (driver, _) = driver(vec![script]);
    let generated = driver.generate(request()).await.unwrap();
    assert_eq!((generated.content.as_str(), generated.value), (r#"{"n":1}"#, Some(json!({ "n": 1 }))));
    for _ in 0..2 {
        assert_eq!(driver.generate(request()).await.unwrap_err().code, Code::SchemaViolation);
    }
    let failure = driver.generate(request()).await.unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (Code::NoResult, "Worker did not emit a RESULT message"));
    let bad = GenerateRequest { schema: Some(json!({ "$ref": "https://x/y" })), ..request() };
    assert_eq!(driver.generate(bad).await.unwrap_err().code, Code::SchemaInvalid);
}

#[tokio::test]
async fn a_sandbox_without_lasting_workers_gets_one_for_each_run() {
    let run_once = |content| vec![result(1, content), usage(2, 1), done(2)];
    let (driver, provider) = driver(vec![run_once("one"), run_once("two")]);
    provider.without_persistent_workers();
    assert_eq!(run(&driver).await.0, ["result one"]);
    assert_eq!(run(&driver).await.0, ["result two"]);
    assert!(provider.spawned().iter().all(|it| matches!(it, WorkerCall::Once(_))));
    assert_eq!((provider.sent().len(), provider.closed()), (0, 2));
}
