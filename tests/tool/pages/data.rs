//! Blocks of data: configuration that loads, clients' settings that start a server, and answers as they are.

use std::process::Stdio;

use coracle_context::{Context, Frontend, Host, Options};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::super::mcp::Client;
use super::super::{Tool, with_rootful_engine, without_engine};
use super::blocks::{Block, blocks};
use crate::engines::IMAGE;

/// Languages of these blocks.
pub(super) const LANGUAGES: &[&str] = &["toml", "json"];

fn of(language: &str) -> Vec<Block> {
    blocks().into_iter().filter(|it| it.language == language && it.not_run.is_none()).collect()
}

fn value(block: &Block) -> Value {
    serde_json::from_str(&block.text).unwrap_or_else(|err| panic!("{}: {err}", block.at()))
}

#[test]
fn each_configuration_of_the_pages_loads() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for dir in ["home/src", "home/agents", "work/project"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    for block in of("toml") {
        std::fs::write(root.join("config.toml"), &block.text).unwrap();
        let options = Options { config: Some(root.join("config.toml")), ..Options::default() };
        if let Err(failure) = Context::open(Host::below(&root), &options, Frontend::Cli) {
            panic!("{}: {failure:?}", block.at());
        }
    }
}

#[tokio::test]
async fn each_json_of_the_pages_fits_its_schema() {
    without_engine("", async |tool| {
        for block in of("json") {
            let value = value(&block);
            if value.get("mcpServers").is_some() {
                serves(tool, &block, &value["mcpServers"]["coracle"]).await;
            } else if value.get("shell").is_some() && value.get("success").is_some() {
                // The fake has no terminals: below, on real engines.
            } else if value.get("success").is_some() {
                is_an_answer(tool, &block, &value).await;
            } else if value.get("operation").is_some() {
                is_a_call(tool, &block, value).await;
            } else if value.get("remoteUser").is_some() {
                assert_eq!(value, super::editor::ours(), "{}", block.at());
            } else {
                panic!("{}: unknown block", block.at());
            }
        }
    })
    .await;
}

/// Starts a server as a client's settings say, and waits for its greeting. Servers over HTTP have separate tests.
async fn serves(tool: &Tool<'_>, block: &Block, settings: &Value) {
    if settings["type"] == "http" {
        assert!(settings["url"].as_str().unwrap().ends_with("/mcp"), "{}", block.at());
        return;
    }
    assert_eq!(settings["command"], "coracle", "{}", block.at());
    let words = settings["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let mut command = tool.command(words);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let about =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about });
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    drop(stdin);
    let output = server.wait_with_output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("serverInfo"), "{}: {printed}", block.at());
}

/// Each field belongs to the operation, with a valid value; a policy may still refuse it.
async fn is_a_call(tool: &Tool<'_>, block: &Block, call: Value) {
    let wrong =
        ["unknown_operation", "unknown_field", "missing_field", "invalid_input", "invalid_name", "conflicting_fields"];
    // The fake would install missing packages of a purpose on this host.
    let call = if call["operation"] == "create" { tool.create_call(call) } else { call };
    let answer = tool.call(call).await;
    let code = answer["code"].as_str().unwrap_or_default();
    assert!(!wrong.contains(&code), "{}: {answer:#}", block.at());
}

/// An answer has the fields that a page shows, of the same kinds.
async fn is_an_answer(tool: &Tool<'_>, block: &Block, shown: &Value) {
    let answer = match shown["code"].as_str() {
        None => {
            let name = tool.created(json!({})).await;
            let call = json!({ "operation": "exec", "container": name, "command": "sleep 9", "timeout": 0.2 });
            tool.call(call).await
        }
        Some(_) => {
            let spec = crate::conformance::placed(tool.case, tool.case.spec("foreign"));
            let name = tool.case.name("foreign").to_string();
            tool.case.runtime.create(&spec).await.unwrap();
            tool.call(json!({ "operation": "destroy", "container": name })).await
        }
    };
    assert_eq!(answer["code"], shown["code"], "{answer:#} {IMAGE}");
    has_the_fields(&answer, block, shown);
}

fn has_the_fields(answer: &Value, block: &Block, shown: &Value) {
    for (field, value) in shown.as_object().unwrap() {
        let is = answer.get(field).unwrap_or_else(|| panic!("{}: no `{field}`: {answer:#}", block.at()));
        let same = std::mem::discriminant(is) == std::mem::discriminant(value);
        assert!(same || is.is_null() || value.is_null(), "{}: `{field}` is {is}", block.at());
    }
}

#[tokio::test]
async fn each_answer_of_a_shell_fits_its_schema() {
    with_rootful_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let created = client.result("containers", &tool.create_call(json!({}))).await["structuredContent"].take();
        let opened = json!({ "operation": "shell_open", "container": created["container"] });
        let opened = client.result("containers", &opened).await["structuredContent"].take();
        let sent = json!({ "operation": "shell_send", "shell": opened["shell"], "text": "echo 7\n" });
        let answer = client.result("containers", &sent).await["structuredContent"].take();
        for block in of("json") {
            let shown = value(&block);
            if shown.get("shell").is_some() && shown.get("success").is_some() {
                has_the_fields(&answer, &block, &shown);
            }
        }
        client.end().await;
    })
    .await;
}
