//! Results of calls over MCP: what programs read, what a model reads, and what is an error.

use coracle_runtime::fake::LOCAL_IMAGE;
use serde_json::{Value, json};

use super::recorded;
use crate::tool::mcp::Client;

#[tokio::test]
async fn results_over_mcp_are_as_before() {
    let config = format!("[workspace]\nimage = \"{LOCAL_IMAGE}\"\n");
    recorded("mcp_results", &config, async |it| {
        let mut client = Client::start(&mut it.tool.command(["mcp", "--session", "agent-1"])).await;
        let create = json!({ "operation": "create", "image": LOCAL_IMAGE, "name": "web", "mount_cwd": false });
        let exec = json!({ "operation": "exec", "container": "web", "command": "true" });
        for (tool, arguments) in [
            ("containers", create),
            ("containers", exec),
            ("containers", json!({ "operation": "exec", "container": "web", "command": "nothing" })),
            ("containers", json!({ "operation": "status", "container": "nobody" })),
            ("containers", json!({ "operation": "teleport" })),
            ("write_file", json!({ "path": "a.txt", "content": "one\ntwo\n" })),
            ("read_file", json!({ "path": "a.txt" })),
            ("ls", json!({})),
            ("grep", json!({ "pattern": "two" })),
            ("shell_execute", json!({ "command": ["nothing"] })),
            ("shell_execute", json!({ "command": "make" })),
            ("read_file", json!({ "path": "missing" })),
            ("workflow_status", json!({ "workflow": "issue-1" })),
            ("no_tool", json!({})),
        ] {
            let params = json!({ "name": tool, "arguments": arguments });
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
            let answer = read(client.answer().await);
            it.note(tool, &arguments.to_string(), &answer);
        }
        client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "no/method" })).await;
        let answer = client.answer().await;
        it.note("a method that is none", "no/method", &format!("{answer:#}"));
        client.end().await;
    })
    .await;
}

/// An answer. If its text is the same object as its structured content, that is noted instead.
fn read(mut answer: Value) -> String {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    if serde_json::from_str::<Value>(&text).is_ok_and(|it| it == result["structuredContent"]) {
        answer["result"]["content"][0]["text"] = "(the same as text)".into();
    }
    format!("{answer:#}")
}
