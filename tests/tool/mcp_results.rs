//! The result of a call over MCP: whether it was carried out, and long output.

use serde_json::{Value, json};

use super::mcp::Client;
use super::work::code::{SNIPPETS, make_snippets};
use super::{with_rootful_engine, without_engine};
use crate::engines::IMAGE;

fn code(result: &Value) -> &Value {
    &result["structuredContent"]["code"]
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

const PRELOAD: &str = "[run_code]\npreload = { command = [\"sh\"], languages = [\"bash\"] }\n";

#[tokio::test]
async fn a_snippet_that_ran_is_no_error_with_any_result() {
    without_engine(PRELOAD, async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let mut run = async |snippet: &str, timeout: Value| {
            let call = json!({ "code": snippet, "language": "bash", "timeout": timeout });
            client.result("run_code", &call).await
        };
        let failed = run("echo out; echo why >&2; exit 3", Value::Null).await;
        assert_eq!((&failed["isError"], code(&failed)), (&false.into(), &"run_failed".into()), "{failed:#}");
        let endless = run("echo on; sleep 60", json!("1s")).await;
        assert_eq!((&endless["isError"], code(&endless)), (&false.into(), &"timed_out".into()), "{endless:#}");
        assert!(text(&endless).contains("timed out after 1000 ms"), "{endless:#}");
        let old = run("true", json!(30_000)).await;
        assert_eq!((&old["isError"], code(&old)), (&true.into(), &"invalid_timeout".into()), "{old:#}");
        assert!(text(&old).contains("timeout_ms"), "{old:#}");
        let long = run("yes | head -c 100000; echo the end", Value::Null).await;
        assert!(text(&long).contains("[truncated]") && text(&long).contains("the end"), "the end is missing");
        assert!(text(&long).ends_with("the rest of the output is not stored"));
        let empty = run("", Value::Null).await;
        assert_eq!((&empty["isError"], code(&empty)), (&true.into(), &"code_required".into()), "{empty:#}");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_ran_is_no_error_in_any_tool() {
    let config = format!("[workspace]\nimage = \"{IMAGE}\"\n");
    with_rootful_engine(&config, async |tool| {
        let name = tool.created(json!({})).await;
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let shell = |script: &str| json!({ "command": ["sh", "-c", script], "timeout": "1s" });
        let exec = |container: &str, script: &str| json!({ "operation": "exec", "container": container, "command": script, "timeout": 1 });
        for (tool, call, is_error) in [
            ("containers", exec(&name, "exit 3"), false),
            ("containers", exec(&name, "sleep 60"), false),
            ("containers", exec("nobody", "true"), true),
            ("shell_execute", shell("exit 3"), false),
            ("shell_execute", shell("sleep 60"), false),
            ("shell_execute", json!({ "command": "ls" }), true),
            // The image has no Python, which the exit code shows.
            ("evaluate_python", json!({ "code": "1" }), false),
            ("evaluate_python", json!({ "code": "1", "reads": ["x"] }), true),
        ] {
            let result = client.result(tool, &call).await;
            assert_eq!(result["isError"], is_error, "{call}: {result:#}");
        }
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn long_output_of_a_snippet_is_cut_with_its_end_and_a_way_to_read_the_rest() {
    make_snippets().await;
    let config = format!("[workspace]\nimage = \"{SNIPPETS}\"\n[run_code]\nimage = \"{SNIPPETS}\"\n");
    with_rootful_engine(&config, async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let code = "for i in range(20000): print('line', i)";
        let last = "line 19999\n";
        for (tool, call) in [
            ("run_code", json!({ "code": code, "language": "python" })),
            ("evaluate_python", json!({ "code": code })),
            ("evaluate_python", json!({ "code": "for i in range(1000): print('line', i + 19000)" })),
            ("shell_execute", json!({ "command": ["python3", "-c", code] })),
        ] {
            let result = client.result(tool, &call).await;
            let reported = text(&result).to_owned();
            assert!(reported.contains(last), "{tool}: the end is missing in {} bytes", reported.len());
            let (_, id) = reported.split_once("shell_output output_id=").unwrap_or_else(|| panic!("{tool}: no id"));
            let answer = &result["structuredContent"];
            let value = if answer["value"].is_object() { &answer["value"] } else { answer };
            assert_eq!(value["output_id"], id.trim(), "{tool}");
            let page = client.result("shell_output", &json!({ "output_id": id.trim(), "offset": -11 })).await;
            assert_eq!(page["structuredContent"]["value"]["data"], last, "{tool}: {page:#}");
        }
        client.end().await;
    })
    .await;
}
