//! Tokens of the tools for a model, by two tokenizers, so that a more expensive change is noticed.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::mcp::Client;
use super::mcp_clients::installed;
use super::{Tool, with_engine, without_engine};

/// Tokens of the usual toolset: its list as the protocol transfers it, then with all that `help` tells; then of answers. By
/// the tokenizer that counts more.
const MOST_OF_LIST: u64 = 3_000;
const MOST_OF_EVERYTHING: u64 = 6_500;
const MOST_OF_TRUE: u64 = 20;
const MOST_OF_CREATE: u64 = 250;

/// The same of the toolset `classic`, whose answers are JSON.
const MOST_OF_CLASSIC: u64 = 6_750;
const MOST_OF_CLASSIC_TRUE: u64 = 115;
const MOST_OF_CLASSIC_CREATE: u64 = 1_300;

/// The larger of two counts of each text. `None`, noted, where the tokenizers are not installed.
#[expect(clippy::disallowed_methods, reason = "a foreign program")]
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

/// A session with a toolset, and the list of its tools.
async fn listed(tool: &Tool<'_>, toolset: &str) -> (Client, Value) {
    let mut client = Client::start(&mut tool.command(["mcp", "--toolsets", toolset])).await;
    client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
    let tools = client.answer().await["result"]["tools"].take();
    (client, tools)
}

fn text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result:#}")).to_owned()
}

#[tokio::test]
async fn the_lists_of_tools_and_all_help_cost_few_tokens() {
    without_engine("", async |tool| {
        let (mut client, tools) = listed(tool, "agent").await;
        let all = tools.as_array().unwrap();
        let reaches_all = all.iter().find(|it| it["name"] == "containers").unwrap();
        let operations = reaches_all["inputSchema"]["properties"]["operation"]["enum"].as_array().unwrap();
        let mut texts = vec![tools.to_string()];
        for about in operations.iter().filter(|it| **it != "help").map(Some).chain([None]) {
            let help = json!({ "operation": "help", "about": about });
            texts.push(text(&client.result("containers", &help).await));
        }
        client.end().await;
        let (client, classic) = listed(tool, "classic").await;
        client.end().await;
        texts.push(classic.to_string());
        let Some(mut tokens) = tokens(&texts).await else { return };
        let classic = tokens.pop().unwrap();
        assert!(all.len() <= 13 && tokens[0] <= MOST_OF_LIST, "{} tools, {tokens:?}", all.len());
        assert!(tokens.iter().sum::<u64>() <= MOST_OF_EVERYTHING, "{} of {tokens:?}", tokens.iter().sum::<u64>());
        assert!(classic <= MOST_OF_CLASSIC, "{classic}");
    })
    .await;
}

#[tokio::test]
async fn usual_answers_cost_few_tokens() {
    with_engine("", async |tool| {
        let (mut client, _) = listed(tool, "agent").await;
        let mut create = tool.create_call(json!({}));
        create.as_object_mut().unwrap().remove("operation");
        let created = client.result("create", &create).await;
        let shown = text(&created);
        let name = shown.split_once(" is ready: ").unwrap_or_else(|| panic!("{created:#}")).0;
        let ran = client.result("shell", &json!({ "container": name, "command": "true" })).await;
        let destroyed = client.result("destroy", &json!({ "container": name })).await;
        assert_eq!(destroyed["isError"], false, "{destroyed:#}");
        client.end().await;
        let (mut client, _) = listed(tool, "classic").await;
        let classic_created = client.result("containers", &tool.create_call(json!({}))).await;
        let name = &classic_created["structuredContent"]["container"];
        let exec = json!({ "operation": "exec", "container": name, "command": "true" });
        let classic_ran = client.result("containers", &exec).await;
        client.end().await;
        let Some(tokens) = tokens(&[&ran, &created, &classic_ran, &classic_created].map(text)).await else { return };
        let most = [MOST_OF_TRUE, MOST_OF_CREATE, MOST_OF_CLASSIC_TRUE, MOST_OF_CLASSIC_CREATE];
        assert!(tokens.iter().zip(most).all(|(cost, most)| *cost <= most), "{tokens:?}");
    })
    .await;
}
