//! The tools as clients see them: each set, news of a call, and taking it back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::mcp::Client;
use super::{eventually, with_engine, without_engine};
use crate::engines::ran;

const FILES: &[&str] =
    &["ls", "read_file", "write_file", "edit_file", "glob", "grep", "rm", "shell_execute", "evaluate_python"];

/// Read-only tools.
const LOOKING: &[&str] = &[
    "ls",
    "read_file",
    "glob",
    "grep",
    "shell_output",
    "workflow_status",
    "workflow_events",
    "workflow_result",
    "workflow_diff",
];

const WORKTREES: &[&str] = &[
    "workflow_start",
    "workflow_status",
    "workflow_events",
    "workflow_cancel",
    "workflow_result",
    "workflow_diff",
    "workflow_apply",
    "workflow_exec",
];

#[tokio::test]
async fn w45_each_toolset_gives_only_its_tools_with_schemas_and_annotations() {
    without_engine("", async |tool| {
        let (one, code): (&[&str], &[&str]) = (&["containers"], &["run_code", "shell_output"]);
        let worktrees = WORKTREES;
        let all = [one, FILES, code, worktrees].concat();
        let workspace = [FILES, &["shell_output"]].concat();
        let sets: &[(Option<&str>, Vec<&str>)] = &[
            (None, all.clone()),
            (Some("containers,workspace,code,worktrees"), all),
            (Some("worktrees"), worktrees.to_vec()),
            (Some("containers"), one.to_vec()),
            (Some("workspace"), workspace),
            (Some("code"), code.to_vec()),
        ];
        for (sets, names) in sets {
            let mut command = tool.command(["mcp"]);
            command.args(sets.iter().flat_map(|it| ["--toolsets", it]));
            let mut client = Client::start(&mut command).await;
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
            let listed = client.answer().await["result"]["tools"].take();
            assert!(!listed.to_string().contains(r#""format":"uint"#), "{sets:?} {listed}");
            let listed: BTreeMap<&str, &Value> =
                listed.as_array().unwrap().iter().map(|it| (it["name"].as_str().unwrap(), it)).collect();
            assert!(listed.keys().eq(names.iter().collect::<std::collections::BTreeSet<_>>()), "{sets:?} {listed:?}");
            for (name, reported) in listed {
                let hint = |it: &str| reported["annotations"][it].clone();
                let looks = LOOKING.contains(&name);
                assert_eq!((hint("readOnlyHint"), hint("destructiveHint")), (looks.into(), (!looks).into()), "{name}");
                assert!(!looks || hint("idempotentHint") == true, "{name}");
                let reaches_out = name == "containers" || worktrees.contains(&name);
                assert_eq!(hint("openWorldHint"), reaches_out, "{name}");
                assert_eq!(
                    (&reported["inputSchema"]["type"], &reported["outputSchema"]["type"]),
                    (&"object".into(), &"object".into())
                );
            }
            client
                .send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "no_tool" } }))
                .await;
            assert_eq!(client.answer().await["error"]["code"], -32602);
        }
    })
    .await;
}

#[tokio::test]
async fn w45_a_call_reports_progress_and_cancelling_it_ends_all_its_processes() {
    with_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        client.call(1, &tool.create_call(json!({}))).await;
        let name = client.answer().await["result"]["structuredContent"]["container"].take();
        let command = "sleep 4242 & echo begun; sleep 4242";
        let arguments = json!({ "operation": "exec", "container": name, "command": command, "timeout": 300 });
        let params = json!({ "name": "containers", "arguments": arguments, "_meta": { "progressToken": "news" } });
        client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })).await;
        loop {
            let reported = client.message().await;
            assert_eq!(
                (&reported["method"], &reported["params"]["progressToken"]),
                (&"notifications/progress".into(), &"news".into())
            );
            if reported["params"]["message"] == "begun" {
                break;
            }
        }
        let back = json!({ "requestId": 2, "reason": "enough" });
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": back })).await;
        let container = name.as_str().unwrap();
        let ended = async || !tool.prints(container, "ps | grep '[4]242' || true").await.contains("4242");
        eventually("the command and its child are ended", Duration::from_secs(20), ended).await;
        client.call(3, &json!({ "operation": "list" })).await;
        assert_eq!(client.answer().await["id"], 3, "what was taken back has no answer");
        ran("w45", tool.case.engine());
    })
    .await;
}

/// Fields of a schema without a type: several APIs of models refuse them.
fn without_type(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let says = ["type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"];
        if !says.iter().any(|key| field.get(key).is_some()) {
            found.push(path.clone());
        }
        without_type(field, &path, found);
        without_type(&field["items"], &path, found);
    }
}

#[tokio::test]
async fn every_field_of_every_tool_has_a_type() {
    without_engine("", async |tool| {
        for toolset in ["agent", "classic", "workspace,code,worktrees"] {
            let mut client = Client::start(&mut tool.command(["mcp", "--toolsets", toolset])).await;
            client.send(json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" })).await;
            let listed = client.answer().await["result"]["tools"].take();
            client.end().await;
            let mut found = Vec::new();
            for it in listed.as_array().unwrap() {
                without_type(&it["inputSchema"], it["name"].as_str().unwrap(), &mut found);
            }
            assert_eq!(found, Vec::<String>::new(), "{toolset}");
        }
    })
    .await;
}
