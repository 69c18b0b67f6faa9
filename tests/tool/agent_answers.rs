//! The answers of the toolset `agent` as they are sent, and how many characters a model reads.

use serde_json::{Value, json};

use super::agent_tools::configured;
use super::mcp::Client;
use super::{Tool, with_engine};

/// Lines of a source file of 34 kB.
const LINES: usize = 800;

/// Characters of the texts of [`usual_run`], of which a listing and a page of the file are most.
const MOST_OF_RUN: usize = 30_000;

/// Characters of any answer about an edit.
const MOST_OF_EDIT: usize = 700;

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result:#}"))
}

fn characters(value: &Value) -> usize {
    value.to_string().chars().count()
}

/// The 25 calls of an agent that corrects a number in a large file.
fn usual_run() -> Vec<(&'static str, Value)> {
    let line = |number: usize| format!("value_{number} = {number}  # one of many numbers\n");
    let source: String = (0..LINES).map(line).collect();
    let shell = |command: &str| ("shell", json!({ "command": command }));
    let edit =
        |from: &str, to: &str| ("edit_file", json!({ "path": "src/numbers.py", "old_string": from, "new_string": to }));
    let mut calls = vec![
        shell("true"),
        ("write_file", json!({ "path": "src/numbers.py", "content": source })),
        ("write_file", json!({ "path": "README.md", "content": "# Numbers\n" })),
        ("find_files", json!({ "pattern": "**/*" })),
        ("search", json!({ "pattern": "value_7\\d+ =", "path": "src" })),
        ("read_file", json!({ "path": "src/numbers.py", "limit": 400 })),
        ("read_file", json!({ "path": "README.md" })),
        ("shell", json!({ "command": "sleep 600", "background": true })),
        ("job", json!({ "action": "list" })),
        ("read_file", json!({ "path": "missing" })),
        shell("exit 3"),
        shell("ls -l src"),
    ];
    let edits =
        (0..6).map(|number| edit(&format!("value_{number} = {number} "), &format!("value_{number} = 1{number} ")));
    calls.extend(edits);
    calls.extend((0..7).map(|number| shell(&format!("grep -c {number} src/numbers.py"))));
    calls
}

/// Makes all calls of a run, and returns their results.
async fn results(tool: &Tool<'_>) -> Vec<Value> {
    let mut client = Client::start(&mut tool.command(["mcp", "--toolsets", "agent"])).await;
    let mut results = Vec::new();
    for (called, arguments) in usual_run() {
        results.push(client.result(called, &arguments).await);
    }
    client.end().await;
    results
}

/// Several clients show the model `structuredContent` instead of the text, and one then omits images.
#[tokio::test]
async fn an_agent_gets_text_alone_and_no_edit_repeats_its_file() {
    with_engine(&configured(""), async |tool| {
        let results = results(tool).await;
        assert_eq!(results.len(), 25);
        for ((called, arguments), result) in usual_run().iter().zip(&results) {
            assert!(result.get("structuredContent").is_none(), "{called} {arguments}: {result:#}");
            let fails = arguments["path"] == "missing";
            assert_eq!(result["isError"], fails, "{called} {arguments}: {result:#}");
            let is_edit = called.starts_with("edit");
            assert!(!is_edit || characters(result) < MOST_OF_EDIT, "{result:#}");
        }
        let shown: usize = results.iter().map(|result| text(result).chars().count()).sum();
        println!("25 calls: {shown} characters of text");
        assert!(shown <= MOST_OF_RUN, "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_setting_returns_structured_data_without_the_edited_file() {
    with_engine(&configured("[mcp]\nstructured_content = true\n"), async |tool| {
        let results = results(tool).await;
        let shown: usize = results.iter().map(|result| characters(&result["structuredContent"])).sum();
        println!("25 calls: {shown} characters of data");
        for ((called, _), result) in usual_run().iter().zip(&results) {
            let data = &result["structuredContent"];
            assert!(data["success"].is_boolean(), "{called}: {result:#}");
            let is_write = called.starts_with("edit") || *called == "write_file";
            assert!(!is_write || data["value"]["size_bytes"].is_number(), "{result:#}");
            assert!(!is_write || characters(data) < MOST_OF_EDIT, "{result:#}");
        }
    })
    .await;
}

/// The toolset `workspace` has schemas of its answers, and data that keeps to them.
#[tokio::test]
async fn a_session_tool_repeats_no_file_that_was_written() {
    let config = format!("[workspace]\nimage = \"{}\"\n", crate::engines::IMAGE);
    with_engine(&config, async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let content = "word ".repeat(4000);
        let written = client.result("write_file", &json!({ "path": "a", "content": content })).await;
        client.result("read_file", &json!({ "path": "a" })).await;
        let edit = json!({ "path": "a", "old_string": "word ", "new_string": "text ", "replace_all": true });
        let edited = client.result("edit_file", &edit).await;
        client.end().await;
        for result in [written, edited] {
            assert_eq!(result["structuredContent"]["value"]["size_bytes"], 20_000, "{result:#}");
            assert!(characters(&result) < 2 * MOST_OF_EDIT, "{} characters: {result:#}", characters(&result));
        }
    })
    .await;
}
