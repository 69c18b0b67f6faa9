//! Values that a shell, a template or an encoder could change are the same inside.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::person::step;
use super::{Tool, with_rootful_tool};

/// Fixed and random values.
fn values(more: usize) -> Vec<String> {
    let all: String = (1..=255u8).map(char::from).collect();
    let hard = [
        "",
        " ",
        "\n",
        "\n\n",
        "'",
        "\"",
        "\\",
        "\\\\n",
        "$",
        "$()",
        "$(id)",
        "`id`",
        "${HOME}",
        "$HOME",
        "%s%n",
        "!!",
        "*",
        "~",
        "it's \"a\" $(test) `of` \\ quoting\n",
        "\ttabs\tand blanks  ",
        "ends with a newline\n",
        "ends with\r\n",
        "-n",
        "--",
        "-",
        "a=b",
        "=",
        "#",
        ";",
        "&& exit 1",
        "| cat",
        "<<EOF\nEOF\n",
        "{{.Names}}",
        "{0}",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{feff}bom",
        "\u{2028}",
        "\u{fffd}",
        "日本語 🦀 é e\u{301}",
        "\u{202e}rtl",
        "\u{10ffff}",
    ];
    let mut values: Vec<String> = hard.iter().map(|it| (*it).to_owned()).collect();
    values.push(all);
    values.push("x'\"$`\\\n".repeat(100 << 10 >> 3));
    let (mut runner, strategy) =
        (TestRunner::deterministic(), prop_oneof!["[^\0]{0,100}", "[ -~\n]{0,60}", "['\"$`\\\\(){}\n]{0,30}"]);
    values.extend((0..more).map(|_| strategy.new_tree(&mut runner).unwrap().current()));
    values
}

/// Number of values for an engine: the fake's are cheap.
fn count(tool: &Tool<'_>) -> usize {
    if tool.case.is_real() { 40 } else { 500 }
}

#[tokio::test]
async fn variables_are_the_same_inside() {
    with_rootful_tool("", async |tool| {
        let values = values(count(tool));
        let env: BTreeMap<String, &String> = values.iter().enumerate().map(|(at, it)| (format!("V{at}"), it)).collect();
        let of_create = tool.created(json!({ "env": env })).await;
        let (before, after) = (tool.environ(&of_create, json!({})).await, tool.created(json!({})).await);
        let of_exec = tool.environ(&after, json!(env)).await;
        for (name, value) in &env {
            assert!(before.get(name) == Some(*value), "`env` of create: {value:?} became {:?}", before.get(name));
            assert!(of_exec.get(name) == Some(*value), "`env` of exec: {value:?} became {:?}", of_exec.get(name));
        }
        // The value of the shell's variable is what a program gets from it.
        let at = values.iter().position(|it| it.starts_with("it's")).unwrap();
        let printed = tool.bytes(&of_create, json!(format!("printf '%s' \"$V{at}\"")), json!({})).await;
        assert_eq!(printed, values[at].as_bytes());
    })
    .await;
}

#[tokio::test]
async fn files_are_the_same_inside() {
    with_rootful_tool("", async |tool| {
        let texts = values(if tool.case.is_real() { 30 } else { 150 });
        let bytes = (0..=255u8).map(|it| vec![it; 3]).chain([(0..=255).collect::<Vec<u8>>().repeat(400)]);
        let encoded = bytes.clone().map(|it| json!({ "content_base64": BASE64_STANDARD.encode(it) }));
        let as_bytes: Vec<Vec<u8>> = texts.iter().map(|it| it.clone().into_bytes()).chain(bytes).collect();
        let contents: Vec<Value> = texts.iter().map(|it| json!(it)).chain(encoded).collect();
        for (part, contents) in contents.chunks(150).enumerate() {
            let files: BTreeMap<String, &Value> =
                contents.iter().enumerate().map(|(at, it)| (format!("f{at:03}"), it)).collect();
            let name = tool.created(json!({ "config_files": files })).await;
            let expected: Vec<u8> = as_bytes.chunks(150).nth(part).unwrap().concat();
            assert!(tool.bytes(&name, json!("cat f*"), json!({})).await == expected, "part {part}");
            let sizes = tool.prints(&name, "wc -c f* | awk '$2 != \"total\" { print $1 }'").await;
            let wanted: Vec<String> =
                as_bytes.chunks(150).nth(part).unwrap().iter().map(|it| it.len().to_string()).collect();
            assert_eq!(sizes, wanted.join("\n"));
            tool.destroy(&name).await;
        }
    })
    .await;
}

/// The shell's own quoting, which the test writes and the shell reads.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[tokio::test]
async fn setup_commands_get_their_arguments_and_scripts_unchanged() {
    with_rootful_tool("", async |tool| {
        for values in values(count(tool) / 4).chunks(45) {
            let words = values
                .iter()
                .enumerate()
                .map(|(at, it)| json!(["sh", "-c", "printf %s \"$1\" >\"$2\"", "sh", it, format!("w{at:02}")]));
            let scripts =
                values.iter().enumerate().map(|(at, it)| json!(format!("printf %s {} >s{at:02}", quoted(it))));
            let commands: Vec<Value> = words.chain(scripts).collect();
            let answer = tool.made(json!({ "setup_commands": commands })).await;
            assert_eq!(step(&answer, "setup_commands")["status"], "success", "{answer:#}");
            let name = answer["container"].as_str().unwrap();
            let expected = values.concat().into_bytes();
            for kind in ["w*", "s*"] {
                assert!(
                    tool.bytes(name, json!(format!("cat {kind}")), json!({})).await == expected,
                    "{kind}: {values:?}"
                );
            }
            tool.destroy(name).await;
        }
    })
    .await;
}

#[tokio::test]
async fn words_and_input_of_a_command_are_the_same_inside() {
    with_rootful_tool("", async |tool| {
        let (name, values) = (tool.created(json!({})).await, values(count(tool)));
        // Programs get at most 128 KiB of arguments here, so the long one is passed alone.
        for values in values.chunks(40) {
            let words: Vec<&str> = ["printf", "%s\\0"].into_iter().chain(values.iter().map(String::as_str)).collect();
            let expected: String = values.iter().map(|it| format!("{it}\0")).collect();
            assert!(tool.bytes(&name, json!(words), json!({})).await == expected.as_bytes(), "{values:?}");
            let all = values.concat();
            assert!(tool.bytes(&name, json!(["cat"]), json!({ "stdin": all })).await == all.as_bytes(), "{values:?}");
        }
    })
    .await;
}
