//! What the tools cost a model, by two tokenizers: a change that costs more is seen.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::mcp::Client;
use super::mcp_clients::installed;
use super::{with_engine, without_engine};

/// Tokens of each toolset's list, as the protocol transfers it; then of an answer. By the tokenizer that counts more.
const MOST_OF_ALL_TOOLS: u64 = 14_600;
const MOST_OF_CONTAINERS: u64 = 5_700;
const MOST_OF_TRUE: u64 = 115;
const MOST_OF_CREATE: u64 = 1_300;

/// The larger of two counts of each text. `None`, noted, where the tokenizers are not installed.
#[expect(clippy::disallowed_methods, reason = "a program that is not ours")]
async fn tokens(texts: &[String]) -> Option<Vec<u64>> {
    let modules = installed("node_modules/gpt-tokenizer")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/count_tokens.cjs");
    let mut command = Command::new("node");
    command.arg(script).env("NODE_PATH", modules.parent().unwrap()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.kill_on_drop(true).spawn().unwrap();
    let mut stdin = node.stdin.take().unwrap();
    stdin.write_all(json!(texts).to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let counted: Vec<[u64; 2]> = serde_json::from_slice(&node.wait_with_output().await.unwrap().stdout).unwrap();
    Some(counted.into_iter().map(|it| it.into_iter().max().unwrap()).collect())
}

#[tokio::test]
async fn the_lists_of_tools_cost_no_more_tokens_than_they_did() {
    without_engine("", async |tool| {
        let mut lists = Vec::new();
        for sets in [&[][..], &["--toolsets", "containers"]] {
            let mut client = Client::start(tool.command(["mcp"]).args(sets)).await;
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
            lists.push(client.answer().await["result"]["tools"].take().to_string());
            client.end().await;
        }
        let Some(tokens) = tokens(&lists).await else { return };
        assert!(tokens[0] <= MOST_OF_ALL_TOOLS && tokens[1] <= MOST_OF_CONTAINERS, "{tokens:?}");
    })
    .await;
}

#[tokio::test]
async fn usual_answers_cost_no_more_tokens_than_they_did() {
    with_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let created = client.result("containers", &tool.create_call(json!({}))).await;
        let name = &created["structuredContent"]["container"];
        let exec = json!({ "operation": "exec", "container": name, "command": "true" });
        let ran = client.result("containers", &exec).await;
        let destroy = json!({ "operation": "destroy", "container": name });
        assert_eq!(client.result("containers", &destroy).await["structuredContent"]["success"], true);
        client.end().await;
        let text = |it: &Value| it["content"][0]["text"].as_str().unwrap().to_owned();
        let Some(tokens) = tokens(&[text(&ran), text(&created)]).await else { return };
        assert!(tokens[0] <= MOST_OF_TRUE && tokens[1] <= MOST_OF_CREATE, "{tokens:?}");
    })
    .await;
}
