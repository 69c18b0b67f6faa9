//! `--timings`: what becomes of the spans of operations and engine calls.

use serde_json::{Value, json};

use super::{Tool, with_engine, without_engine};

/// The spans of a command with `--timings`, as `depth kind name outcome`.
async fn timed(tool: &Tool<'_>, words: &[&str]) -> Vec<String> {
    let output = tool.run([&["--timings"], words].concat(), b"").await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    let line = stderr.lines().find(|it| it.starts_with(r#"{"timings""#)).unwrap_or_else(|| panic!("{stderr}"));
    let report: Value = serde_json::from_str(line).unwrap();
    let timings = &report["timings"];
    assert!(timings["total_ms"].as_f64() >= timings["outside_engine_ms"].as_f64(), "{timings}");
    let word = |it: &Value, key: &str| it[key].as_str().unwrap_or("-").to_owned();
    let spans = timings["spans"].as_array().unwrap().iter();
    let spans = spans.map(|it| [it["depth"].to_string(), word(it, "kind"), word(it, "name"), word(it, "outcome")]);
    spans.map(|it| it.join(" ")).collect()
}

#[tokio::test]
async fn timings_name_each_operation_and_its_engine_calls() {
    without_engine("", async |tool| {
        let listed = timed(tool, &["--engine", "fake", "list", "--json"]).await;
        assert_eq!(listed, ["0 operation list ok", "1 engine_call list ok"]);
        let failed = timed(tool, &["--engine", "fake", "status", "none", "--json"]).await;
        assert_eq!(failed[0], "0 operation status not_found", "{failed:?}");
        let table = tool.run(["--timings", "--engine", "fake", "list"], b"").await;
        let table = String::from_utf8(table.stderr).unwrap();
        assert!(table.contains(" ms  in all\n") && table.contains("fake list\n"), "{table}");
    })
    .await;
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let listed = timed(tool, &["list", "--json"]).await;
        assert_eq!(listed[0], "0 operation list ok", "{listed:?}");
        assert!(listed.contains(&"1 engine_call list ok".to_owned()), "{listed:?}");
        // A command that fails is a call that does not.
        let ran = timed(tool, &["exec", "--json", &name, "--", "false"]).await;
        assert_eq!(ran[0], "0 operation exec ok", "{ran:?}");
    })
    .await;
}
