//! Workers that do one run each, and end with it.

use coracle_sandbox::Code;
use coracle_sandbox::driver::{AgenticRequest, Event, GenerateRequest};
use coracle_sandbox::protocol::RunLimits;
use futures_util::StreamExt;
use serde_json::json;

use super::ending::{KILL, begins_a_program, shell, until_left};
use super::{Bench, ask, with_one_shot_workers};
use crate::engines::ran;
use crate::servers::model::{Turn, call, calls, says};

/// The user's prompt, which only the worker may read.
const PROMPT: &str = "canary-prompt-5e1b";

/// The agent's view of the worker while it runs.
const LOOK: &str = "for it in /proc/[0-9]*; do tr '\\0' ' ' < $it/cmdline; tr '\\0' ' ' < $it/environ; done 2>/dev/null; \
    ls -ln /.coracle/run; cat /.coracle/run/prompt-* 2>&1";

/// Files that the guest has open for a worker.
async fn placed(bench: &Bench<'_>) -> String {
    shell(bench, "ls /.coracle/run | grep -E '^(prompt|instructions|schema)-'").await
}

#[tokio::test]
async fn x41_x56_a_worker_for_one_run_reads_its_prompt_from_a_file_and_deletes_it() {
    with_one_shot_workers(async |bench| {
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", LOOK] }))]), says("looked")]);
        let limits = Some(RunLimits { max_turns: Some(3), ..RunLimits::default() });
        let instructions = Some("canary-instructions".to_owned());
        let events = bench.runs(AgenticRequest { instructions, limits, ..ask(PROMPT) }).await;
        let [Event::ToolCall { .. }, Event::ToolResult { output, .. }, Event::Result { content, .. }] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(content, "looked");
        assert!(!output.contains(PROMPT) && !output.contains("canary-instructions"), "{output}");
        assert!(output.contains("--prompt-file /.coracle/run/prompt-") && output.contains("--max-turns 3"), "{output}");
        let file = output.lines().find(|it| it.starts_with("-r--------") && it.contains("prompt-"));
        assert!(file.is_some_and(|it| it.contains("10001")), "it is the worker's alone: {output}");
        assert!(output.to_lowercase().contains("permission denied"), "{output}");
        let requests = bench.model.requests();
        assert_eq!(requests[0].texts_of("user"), [PROMPT], "the worker has it");
        assert!(requests[0].texts_of("system").join("").ends_with("canary-instructions"));
        assert_eq!(bench.driver.usage().unwrap().num_turns, Some(2));
        assert_eq!(placed(bench).await, "");

        bench.model.then([says(r#"{"n":1}"#)]);
        let schema = Some(json!({ "type": "object", "required": ["n"] }));
        let request = GenerateRequest { prompt: PROMPT.into(), schema, ..GenerateRequest::default() };
        assert_eq!(bench.driver.generate(request).await.unwrap().value, Some(json!({ "n": 1 })));
        assert_eq!((placed(bench).await.as_str(), bench.workers()), ("", 2));

        bench.model.then([Turn::Refuses(401, vec![], "no", "")]);
        assert_eq!(bench.fails(ask("x")).await.code, Code::LlmUnauthorized);
        bench.model.otherwise(calls([call("ls", json!({}))]));
        let limits = Some(RunLimits { max_turns: Some(2), ..RunLimits::default() });
        let failure = bench.fails(AgenticRequest { limits, ..ask("x") }).await;
        assert_eq!((failure.code, failure.message.as_str()), (Code::MaxTurns, "Stopped after 2 turns."));
        let long = bench.fails(ask(&"x".repeat((1 << 20) + 1))).await;
        assert_eq!(long.code, Code::RequestTooLarge, "{long}");
        assert_eq!(placed(bench).await, "");
        ran("x41", bench.running.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x67_x68_a_worker_for_one_run_that_is_left_or_killed_leaves_nothing() {
    with_one_shot_workers(async |bench| {
        for killed in [false, true] {
            let mut events = begins_a_program(bench, ask(PROMPT)).await;
            assert!(placed(bench).await.starts_with("prompt-"));
            if killed {
                shell(bench, KILL).await;
                let failure = events.next().await.unwrap().unwrap_err();
                assert_eq!((failure.code, &failure.details["may_have_changed"]), (Code::WorkerDied, &json!(true)));
            }
            drop(events);
            // The next run waits for the end of this one.
            bench.model.then([says("clean")]);
            let next = bench.runs(ask("y")).await;
            assert!(matches!(next.as_slice(), [Event::Result { content, .. }] if content == "clean"), "{next:?}");
            assert_eq!(placed(bench).await, "");
            until_left(bench, 0).await;
        }
        assert_eq!(bench.workers(), 4);
        ran("x67", bench.running.case.engine());
        ran("x68", bench.running.case.engine());
    })
    .await;
}
