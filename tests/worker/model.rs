//! A model that fails, refuses, or answers too little or too much.

use coracle_sandbox::Code;
use coracle_sandbox::driver::Event;
use serde_json::json;

use super::{ask, with_worker};
use crate::servers::model::{Turn, call, calls, says};

fn refuses(status: u16, message: &'static str) -> Turn {
    Turn::Refuses(status, vec![], message, "")
}

#[tokio::test]
async fn x49_a_temporary_error_is_retried_and_tools_run_once() {
    with_worker(async |bench| {
        let append = json!({ "command": ["sh", "-c", "echo once >> ran"] });
        bench.model.then([
            Turn::Refuses(429, vec![("retry-after", "0".into())], "slower", ""),
            Turn::Breaks,
            calls([call("shell_execute", append)]),
            refuses(500, "oh"),
            calls([call("shell_execute", json!({ "command": ["cat", "ran"] }))]),
            says("done"),
        ]);
        let events = bench.runs(ask("x")).await;
        let outputs: Vec<&str> = events
            .iter()
            .filter_map(|it| match it {
                Event::ToolResult { output, .. } => Some(output.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(outputs[1].matches("once").count(), 1, "{outputs:?}");
        assert_eq!(bench.driver.usage().unwrap().num_turns, Some(3));
        for status in [401, 403] {
            bench.model.then([refuses(status, "who are you?")]);
            let failure = bench.fails(ask("x")).await;
            assert_eq!(failure.code, Code::LlmUnauthorized);
            assert!(failure.message.contains("who are you?"), "{failure}");
        }
        bench.model.then([refuses(404, "no such model")]);
        assert_eq!(bench.fails(ask("x")).await.code, Code::LlmFailed);
        bench.model.then([Turn::Refuses(429, vec![], "spent", "budget_exhausted")]);
        assert_eq!(bench.fails(ask("x")).await.code, Code::BudgetExhausted);
        assert_eq!(bench.workers(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_field_that_a_provider_does_not_know_is_left_out() {
    with_worker(async |bench| {
        let unknown = || refuses(400, "unknown parameter: stream_options");
        bench.model.then([unknown(), refuses(400, "stream is not supported"), says("plain")]);
        let events = bench.runs(ask("x")).await;
        assert!(matches!(&events[0], Event::Result { content, .. } if content == "plain"), "{events:?}");
        let requests = bench.model.requests();
        assert_eq!(requests[1].body.get("stream_options"), None);
        assert_eq!(requests[2].body.get("stream"), None);
    })
    .await;
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_shortened_once() {
    with_worker(async |bench| {
        let too_long = || Turn::Refuses(400, vec![], "the maximum context length is 8192", "context_length_exceeded");
        let look = || calls([call("ls", json!({}))]);
        bench.model.then((0..11).map(|_| look()).chain([too_long(), says("done")]));
        bench.runs(ask("x")).await;
        let last = bench.model.requests().last().unwrap().texts_of("tool");
        assert!(last[0].starts_with("[removed, ") && !last[1].starts_with("[removed"), "{last:?}");
        bench.model.then([too_long(), too_long()]);
        assert_eq!(bench.fails(ask("x")).await.code, Code::ContextOverflow);
    })
    .await;
}

#[tokio::test]
async fn a_model_that_gets_nowhere_is_left() {
    with_worker(async |bench| {
        let same = || calls([call("read_file", json!({ "file_path": "missing" }))]);
        bench.model.then((0..5).map(|_| same()));
        let failure = bench.fails(ask("x")).await;
        assert_eq!(failure.code, Code::LlmFailed);
        assert!(failure.message.contains("failed 5 times in a row"), "{failure}");
        bench.model.then([says(""), says("")]);
        assert_eq!(bench.fails(ask("x")).await.code, Code::LlmFailed);
        bench.model.then([says(""), Turn::Cut("one, ".into()), says("two")]);
        let events = bench.runs(ask("x")).await;
        assert!(matches!(&events[0], Event::Result { content, .. } if content == "one, two"), "{events:?}");
        bench.model.then((0..4).map(|_| Turn::Cut("again ".into())));
        assert_eq!(bench.fails(ask("x")).await.code, Code::LlmFailed);
    })
    .await;
}
