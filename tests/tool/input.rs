//! Parsing of a call.

use serde_json::{Value, json};

use super::{Tool, with_tool, without_engine};
use crate::engines::ran;

async fn code(tool: &Tool<'_>, call: impl ToString) -> String {
    let answer = tool.call_text(call.to_string()).await;
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(answer["error"], answer["message"]);
    answer["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn s01_unknown_operations_and_invalid_json() {
    with_tool("", async |tool| {
        let answer = tool.call(json!({ "operation": "teleport" })).await;
        assert_eq!(answer["code"], "unknown_operation");
        assert!(answer["error"].as_str().unwrap().contains("teleport"), "{answer}");
        assert_eq!(code(tool, "create a container please").await, "invalid_json");
        ran("s01", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s02_missing_and_mistyped_fields_are_all_reported_without_the_engine() {
    without_engine("", async |tool| {
        let answer = tool.call(json!({ "operation": "exec", "container": "web" })).await;
        assert_eq!(answer["code"], "missing_field");
        assert!(answer["message"].as_str().unwrap().contains("required"), "{answer}");
        let call = json!({ "operation": "exec", "container": "web", "command": 7, "timeout": "soon" });
        let answer = tool.call(call).await;
        assert_eq!(
            (&answer["code"], answer["details"]["problems"].as_array().map(Vec::len)),
            (&"invalid_input".into(), Some(2))
        );
        ran("s02", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s03_defaults_of_other_operations_are_ignored_and_typos_are_not() {
    with_tool("", async |tool| {
        let filled =
            json!({ "operation": "list", "name": null, "overwrite": true, "as_root": false, "persistent": false });
        assert_eq!(tool.call(filled).await["success"], true);
        assert_eq!(code(tool, json!({ "operation": "list", "as_root": true })).await, "unknown_field");
        let answer = tool.call(json!({ "operation": "create", "memry_limit": "1g" })).await;
        assert_eq!(answer["code"], "unknown_field");
        assert!(answer["hint"].as_str().unwrap().contains("memory_limit"), "{answer}");
        ran("s03", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s04_floods_depths_duplicates_and_nul_are_refused() {
    without_engine("", async |tool| {
        let long = format!(r#"{{"operation":"list","x":"{}"}}"#, "x".repeat(9 << 20));
        assert_eq!(code(tool, long).await, "invalid_json");
        let deep = format!(r#"{{"operation":"list","x":{}{}}}"#, "[".repeat(40), "]".repeat(40));
        assert_eq!(code(tool, deep).await, "invalid_json");
        assert_eq!(code(tool, r#"{"operation":"list","operation":"list"}"#).await, "invalid_json");
        assert_eq!(code(tool, r#"{"operation":"destroy","container":"a\u0000b"}"#).await, "invalid_input");
        ran("s04", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn short_forms_of_the_command_line_are_taken() {
    with_tool("", async |tool| {
        std::fs::create_dir(tool.work().join("data")).unwrap();
        let made = tool
            .create(json!({
                "ports": [8080, "0:81"],
                "mounts": ["data:/data:ro"],
                "env": ["GREETING=hi there"],
                "repos": [],
            }))
            .await;
        assert_eq!(made["success"], true, "{made:#}");
        let name = made["container"].as_str().unwrap();
        let ports: Vec<u64> =
            made["ports"].as_array().unwrap().iter().map(|it| it["container"].as_u64().unwrap()).collect();
        assert_eq!(ports, [8080, 81], "{made:#}");
        if tool.case.is_real() {
            let printed = tool.prints(name, "echo $GREETING; touch /data/x 2>/dev/null || echo read-only").await;
            assert_eq!(printed, "hi there\nread-only");
        }
        let repos = json!({ "operation": "create", "repos": ["https://example.org/a.git=/etc/a", 7] });
        let answer = tool.call(repos).await;
        assert_eq!(answer["details"]["problems"].as_array().map(Vec::len), Some(1), "{answer:#}");
        assert!(answer["message"].as_str().unwrap().starts_with("`repos[1]`: `7` was given"), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn s05_every_answer_is_marked_once() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let good = [
            json!({ "operation": "preflight" }),
            json!({ "operation": "list" }),
            json!({ "operation": "status", "container": name }),
            json!({ "operation": "exec", "container": name, "command": "exit 3" }),
            json!({ "operation": "exec_interactive_hint", "container": name }),
            json!({ "operation": "destroy", "container": name }),
            json!({ "operation": "destroy_all", "confirm": true }),
        ];
        for call in good {
            let answer = tool.call(call.clone()).await;
            assert_eq!((&answer["success"], answer.get("error")), (&true.into(), None), "{call}: {answer}");
        }
        let bad = ["status", "exec", "exec_interactive_hint", "copy_in", "copy_out", "destroy"].map(|operation| {
            let mut call = json!({ "operation": operation, "container": "nobody" });
            match operation {
                "exec" => call["command"] = "ls".into(),
                "copy_in" | "copy_out" => {
                    call["host_path"] = ".".into();
                    call["container_path"] = "/tmp/x".into();
                }
                _ => {}
            }
            call
        });
        let more = [json!({ "operation": "create", "image": "-x" }), json!({ "operation": "destroy_all" })];
        for call in bad.into_iter().chain(more) {
            let answer = tool.call(call.clone()).await;
            let reported = [&answer["code"], &answer["message"], &answer["hint"]].iter().all(|it| it.is_string());
            assert!(answer["success"] == false && answer["error"].is_string() && reported, "{call}: {answer}");
        }
        ran("s05", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_command_line_that_is_wrong_exits_with_2_and_prints_a_failure() {
    without_engine("", async |tool| {
        let output = tool.run(["call", "not json"], b"").await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &answer["code"]), (Some(2), &"invalid_json".into()));
        assert_eq!(tool.run(["call", "--nonsense"], b"").await.status.code(), Some(2));
    })
    .await;
}
