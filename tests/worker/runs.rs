//! Runs and their messages.

use coracle_sandbox::Code;
use coracle_sandbox::driver::{AgenticRequest, Event, GenerateRequest};
use serde_json::json;

use super::{ask, with_worker};
use crate::servers::model::{Turn, call, calls, says};

#[tokio::test]
async fn x41_text_and_two_tools_then_text() {
    with_worker(async |bench| {
        bench.model.then([
            Turn::Calls(
                "I write it.".into(),
                vec![
                    call("write_file", json!({ "file_path": "a.txt", "content": "one\n" })),
                    call("shell_execute", json!({ "command": ["cat", "a.txt"] })),
                ],
            ),
            says("It says one."),
        ]);
        let events = bench.runs(AgenticRequest { instructions: Some("Be brief.".into()), ..ask("write a.txt") }).await;
        let reported: Vec<String> = events
            .iter()
            .map(|it| match it {
                Event::Thinking { text, .. } => format!("thinking {text}"),
                Event::ToolCall { name, .. } => format!("call {name}"),
                Event::ToolResult { name, is_error, .. } => format!("answer {name} {is_error}"),
                Event::Result { content, .. } => format!("result {content}"),
                other => format!("{other:?}"),
            })
            .collect();
        let expected = [
            "thinking I write it.",
            "call write_file",
            "answer write_file false",
            "call shell_execute",
            "answer shell_execute false",
            "result It says one.",
        ];
        assert_eq!(reported, expected, "{events:?}");
        let usage = bench.driver.usage().unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.num_turns), (Some(20), Some(10), Some(2)));
        let requests = bench.model.requests();
        assert_eq!(
            (requests[0].path.as_str(), requests[0].headers["x-coracle-token"].as_str()),
            ("/proxy/v1/chat/completions", bench.token.as_str())
        );
        let system = requests[0].texts_of("system").join("");
        assert!(system.starts_with("You work in /workspace inside a private Linux container."), "{system}");
        assert!(system.contains("Network: none.") && system.ends_with("Be brief."), "{system}");
        assert!(requests[1].texts_of("tool")[1].contains("one"), "{requests:?}");
        assert_eq!(requests[0].body["tools"].as_array().unwrap().len(), 9);
    })
    .await;
}

#[tokio::test]
async fn x44_a_failed_command_leaves_a_worker_that_does_the_next() {
    with_worker(async |bench| {
        let failure = bench.fails(AgenticRequest { cwd: Some("/workspace/missing".into()), ..ask("x") }).await;
        assert_eq!(failure.code, Code::InvalidRequest, "{failure}");
        let failure = bench.fails(AgenticRequest { tools: Some(vec!["sudo".into()]), ..ask("x") }).await;
        assert_eq!(failure.code, Code::InvalidRequest, "{failure}");
        bench.model.then([says("fine")]);
        assert!(matches!(&bench.runs(ask("x")).await[0], Event::Result { content, .. } if content == "fine"));
        assert_eq!((bench.workers(), bench.model.requests().len()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn errors_of_a_model_are_returned_to_it_and_the_run_continues() {
    with_worker(async |bench| {
        bench.model.then([
            calls([call("teleport", json!({})), call("ls", json!("no object")), call("ls", json!({ "pfad": "/" }))]),
            calls([call("read_file", json!({ "file_path": "/workspace/missing" }))]),
            says("done"),
        ]);
        let events = bench.runs(ask("x")).await;
        let wrong: Vec<&str> = events
            .iter()
            .filter_map(|it| match it {
                Event::ToolResult { output, is_error: true, .. } => Some(output.as_str()),
                _ => None,
            })
            .collect();
        assert!(wrong[0].starts_with("There is no tool `teleport`. There are: ls, "), "{wrong:?}");
        assert_eq!(wrong[1], "The arguments are not a JSON object.");
        assert!(wrong[2].contains("unknown field `pfad`"), "{wrong:?}");
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        let narrow = AgenticRequest { tools: Some(vec![]), ..ask("x") };
        bench.model.then([says("done")]);
        bench.runs(narrow).await;
        assert!(bench.model.requests().last().unwrap().body.get("tools").is_none());
    })
    .await;
}

#[tokio::test]
async fn long_output_is_read_piece_by_piece() {
    with_worker(async |bench| {
        let long = "x".repeat(50_000);
        let script = "i=0; while [ $i -lt 3000 ]; do echo line $i of many, and more of it; i=$((i+1)); done";
        bench.model.then([calls([
            call("write_file", json!({ "file_path": "long", "content": long })),
            call("shell_execute", json!({ "command": ["sh", "-c", script] })),
        ])]);
        bench.model.then([says("seen")]);
        bench.runs(ask("x")).await;
        let reported = bench.model.requests()[1].texts_of("tool")[1].clone();
        assert!(reported.len() < 40 << 10, "{}", reported.len());
        let id =
            reported.split("output_id=").nth(1).unwrap().split(|it: char| !it.is_ascii_alphanumeric()).next().unwrap();
        bench.model.then([
            calls([
                call("shell_output", json!({ "output_id": id, "pattern": "line 2999 " })),
                call("shell_output", json!({ "output_id": "0badcafe" })),
            ]),
            says("found"),
        ]);
        let events = bench.runs(ask("y")).await;
        let outputs: Vec<(&str, bool)> = events
            .iter()
            .filter_map(|it| match it {
                Event::ToolResult { output, is_error, .. } => Some((output.as_str(), *is_error)),
                _ => None,
            })
            .collect();
        // Output retained here is dropped with its run; the guest retains output of commands.
        assert!(outputs[0].0.contains("3000: line 2999") || id.starts_with("kept"), "{outputs:?}");
        assert!(outputs[1].1 && outputs[1].0.starts_with("That output is no longer available."), "{outputs:?}");
    })
    .await;
}

#[tokio::test]
async fn x46_an_unreadable_schema_is_reported_before_the_model_is_called() {
    with_worker(async |bench| {
        let request = |path: &str| GenerateRequest {
            prompt: "p".into(),
            schema_path: Some(path.into()),
            ..GenerateRequest::default()
        };
        let failure = bench.driver.generate(request("pkg.mod:Class")).await.unwrap_err();
        assert_eq!(failure.code, Code::SchemaUnsupported);
        assert_eq!(
            failure.message,
            "'pkg.mod:Class' names a Python class; this worker takes a JSON Schema. Export it (for example with \
             Class.model_json_schema()) to a file and pass the path, or send it inline as \"schema\"."
        );
        bench.model.then([
            calls([call(
                "write_file",
                json!({ "file_path": "remote.json", "content": "{\"$ref\":\"https://example.org/x\"}" }),
            )]),
            calls([call(
                "write_file",
                json!({ "file_path": "good.json", "content": "{\"type\":\"object\",\"required\":[\"n\"]}" }),
            )]),
            says("written"),
        ]);
        bench.runs(ask("write them")).await;
        for path in
            ["missing.json", "/workspace/remote.json", "/etc/passwd", "/workspace/../etc/passwd", "/tmp/missing"]
        {
            assert_eq!(bench.driver.generate(request(path)).await.unwrap_err().code, Code::SchemaInvalid, "{path}");
        }
        assert_eq!(bench.model.requests().len(), 3);
        bench.model.then([says("{\"n\": 1}")]);
        assert_eq!(bench.driver.generate(request("good.json")).await.unwrap().content, "{\"n\":1}");
    })
    .await;
}

#[tokio::test]
async fn x47_an_invalid_answer_is_corrected_twice_at_most() {
    with_worker(async |bench| {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let request =
            || GenerateRequest { prompt: "p".into(), schema: Some(schema.clone()), ..GenerateRequest::default() };
        bench.model.then([says("no JSON"), says("{ \"n\": 1 }")]);
        assert_eq!(bench.driver.generate(request()).await.unwrap().value, Some(json!({ "n": 1 })));
        let requests = bench.model.requests();
        assert_eq!(requests[0].body["response_format"]["json_schema"]["schema"], schema);
        assert!(requests[1].texts_of("user")[1].contains("it is no JSON"), "{requests:?}");
        bench.model.then([says("{}"), says("{\"n\":\"x\"}"), says("[]")]);
        assert_eq!(bench.driver.generate(request()).await.unwrap_err().code, Code::SchemaViolation);
        assert_eq!(bench.model.requests().len(), 5);
        // For a provider without response formats a tool is used.
        let refusal = Turn::Refuses(400, vec![], "response_format is not supported", "");
        bench.model.then([refusal, calls([call("submit_result", json!({ "n": 2 }))])]);
        assert_eq!(bench.driver.generate(request()).await.unwrap().content, "{\"n\":2}");
        assert_eq!(bench.model.requests()[6].body["tool_choice"]["function"]["name"], "submit_result");
    })
    .await;
}

#[tokio::test]
async fn a_run_with_a_schema_ends_by_a_result_that_fits() {
    with_worker(async |bench| {
        let request = || AgenticRequest { schema: Some(json!({ "type": "integer" })), ..ask("count") };
        bench.model.then([
            says("It is three."),
            calls([call("submit_result", json!({ "result": "three" }))]),
            calls([call("submit_result", json!({ "result": 3 }))]),
        ]);
        let events = bench.runs(request()).await;
        assert!(matches!(events.last().unwrap(), Event::Result { content, .. } if content == "3"), "{events:?}");
        bench.model.then([says("three"), says("three, really")]);
        assert_eq!(bench.fails(request()).await.code, Code::SchemaViolation);
    })
    .await;
}
