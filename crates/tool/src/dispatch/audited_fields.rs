//! Tests what the audit trail shows of the fields of every operation.

use coracle_audit::arguments;
use coracle_context::Context;
use coracle_context::audit::intent;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Effect, OperationEntry};
use crate::{admin, operations, tools, worktree};

const TABLES: [&[OperationEntry]; 4] = [operations::ALL, admin::ALL, tools::ALL, worktree::ALL];

fn lines(cx: &Context) -> Vec<String> {
    let mut files: Vec<_> = std::fs::read_dir(cx.state().unwrap().audit()).unwrap().map(|it| it.unwrap()).collect();
    files.retain(|it| it.file_name().to_string_lossy().ends_with(".jsonl"));
    let Some(file) = files.first() else { return Vec::new() };
    let text = std::fs::read_to_string(file.path()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Longer than a program's name, which the trail may show.
const SECRET: &str = "canary5f0a1c8e2b7d4963canary5f0a1c8e2b7d4963";

/// Values that fit the schema of a field, with a secret in every text.
fn planted(schema: &Value, secret: &str) -> Vec<Value> {
    let mut values = Vec::new();
    for choice in ["anyOf", "oneOf", "allOf"] {
        let choices = schema.get(choice).and_then(Value::as_array);
        values.extend(choices.into_iter().flatten().flat_map(|it| planted(it, secret)));
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one],
        // The schema allows any value.
        _ => vec!["string", "array", "object"],
    };
    for kind in types {
        match kind {
            "string" => values.push(json!(secret)),
            "array" => {
                values.push(json!([secret, format!("NAME={secret}")]));
                let items = schema.get("items").map(|it| planted(it, secret)).unwrap_or_default();
                values.extend(items.into_iter().map(|item| json!([item])));
            }
            "object" => {
                let mut fields = Map::from_iter([("NAME".to_owned(), json!(secret))]);
                for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    fields.extend(planted(inner, secret).into_iter().next().map(|it| (name.clone(), it)));
                }
                values.push(fields.into());
            }
            _ => {}
        }
    }
    values
}

/// Every form in which the trail could show a secret: as it is, or as a digest of it or of the JSON around it.
fn forms(value: &Value, secret: &str) -> Vec<String> {
    let texts = [secret.to_owned(), value.to_string(), format!("NAME={secret}")];
    let digests = texts.iter().map(|it| hex::encode(&Sha256::digest(it)[..8]));
    digests.chain([secret.to_owned()]).collect()
}

#[tokio::test]
async fn the_trail_shows_no_text_of_a_field_that_is_not_listed_and_no_digest() {
    let dir = tempfile::tempdir().unwrap();
    let cx = Context::for_tests(dir.path());
    let mut shown = std::collections::BTreeSet::new();
    for entry in TABLES.into_iter().flatten() {
        for (field, schema) in entry.arguments().properties {
            for value in planted(&schema, SECRET) {
                let args = Map::from_iter([(field.clone(), value.clone())]);
                let before = lines(&cx).len();
                let intent = intent(&cx, entry.name, entry.effect, &args).await.unwrap();
                intent.finish(Ok(&Map::new())).await;
                let text = lines(&cx)[before..].concat();
                if forms(&value, SECRET).iter().any(|form| text.contains(form)) {
                    assert!(value.is_string() && text.contains(SECRET), "{} {field}: {text}", entry.name);
                    shown.insert(field.clone());
                }
            }
        }
    }
    // Add a field here only if it never holds a secret in any operation.
    let shown = Vec::from_iter(shown).join(" ");
    insta::assert_snapshot!(shown, @"act attempt_timeout base branch compose_file compose_project container container_path cwd devcontainer encoding file format from grace host_path idle idle_for if_exists image interval into job_id language limit max_bytes max_output memory_limit mode model name network older_than on_timeout output_id path port profile pull purpose record replay save scope session_name shell silence_timeout since snapshot source stream time timeout to user workdir workflow");
}

/// Number fields of which the trail shows only the size, since the number itself could be a secret.
const HIDDEN_NUMBERS: &[&str] = &[];

/// Whether a value of this schema may be a number.
fn may_be_number(schema: &Value) -> bool {
    let is_number = |kind: &Value| kind == "integer" || kind == "number";
    let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|choice| schema.get(choice)?.as_array());
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_number),
        Some(kind) => is_number(kind),
        None => choices.flatten().any(may_be_number),
    }
}

#[test]
fn the_trail_shows_each_number_that_is_not_hidden_on_purpose() {
    let others = tools::CONTENT.iter().chain([&tools::SNAPSHOT]);
    for entry in TABLES.into_iter().flatten().chain(others) {
        for (field, schema) in entry.arguments().properties {
            if !may_be_number(&schema) {
                continue;
            }
            let audited = arguments::args(&Map::from_iter([(field.clone(), json!(7))]));
            let is_shown = audited[&field] == json!(7);
            let is_hidden = HIDDEN_NUMBERS.contains(&field.as_str());
            assert!(is_shown != is_hidden, "{} {field}: list it in `SHOWN`, or in `HIDDEN_NUMBERS`", entry.name);
        }
    }
}

#[test]
fn operations_that_cannot_be_undone_are_marked() {
    let is_final = |entry: &&&OperationEntry| entry.effect == Effect::Irreversible;
    let names: Vec<_> = TABLES.into_iter().flatten().collect();
    let names: Vec<_> = names.iter().filter(is_final).map(|entry| entry.name.replace(' ', "_")).collect();
    insta::assert_snapshot!(names.join(" "), @"copy_out snapshot snapshot_delete snapshot_export snapshot_import destroy_network cache_clear prune destroy destroy_all timeline_delete run_packages_clear sandbox_remove workspace_apply workspace_end workflow_apply worktree_apply worktree_push worktree_remove");
}
