//! The description that a client gets before its first call.

use serde_json::{Value, json};

use super::assert_golden;
use super::normal::normalised;
use crate::tool::mcp::Client;
use crate::tool::{Tool, without_engine};

/// The server's complete description of itself and its tools.
async fn schemas(tool: &Tool<'_>, toolsets: &str) -> (Value, Value) {
    let mut command = tool.command(["mcp", "--toolsets", toolsets]);
    let (mut client, hello) = Client::greeted(&mut command).await;
    client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
    let tools = client.answer().await;
    client.end().await;
    (hello, tools)
}

#[tokio::test]
async fn the_server_and_its_tools_are_unchanged() {
    without_engine("", async |tool| {
        for (name, toolsets) in [("tools_list", "classic,workspace,code,worktrees"), ("tools_list_agent", "agent")] {
            let (hello, tools) = schemas(tool, toolsets).await;
            let text = format!("# initialize\n{hello:#}\n\n# tools/list of {toolsets}\n{tools:#}\n");
            assert_golden(name, &normalised(&text, tool.root.path()));
        }
    })
    .await;
}

#[tokio::test]
async fn the_schema_of_a_call_is_unchanged() {
    without_engine("", async |tool| {
        let output = tool.run(["call", "--schema"], b"").await;
        let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_golden("call_schema", &normalised(&format!("{schema:#}\n"), tool.root.path()));
    })
    .await;
}
