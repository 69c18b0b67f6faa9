//! Parses YAML, within limits.

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Parser};
use serde_saphyr::options::DuplicateKeyPolicy;

use super::error::ReadError;

const MAX_BYTES: usize = 1 << 20;
const MAX_LEVELS: usize = 50;
const MAX_ALIASES: usize = 100;
const MAX_NODES: usize = 10_000;

/// Parses one document. Booleans are only `true` and `false`, and a leading zero means octal, as in Compose.
pub(super) fn parse(text: &str) -> Result<Value, ReadError> {
    if text.len() > MAX_BYTES {
        return Err(invalid(format!("the file is longer than {MAX_BYTES} bytes"), None));
    }
    without_tags(text)?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_LEVELS,
            flow_nesting_limit: MAX_LEVELS,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_recorded_anchor_events: 4 * MAX_NODES,
            max_total_scalar_bytes: 2 * MAX_BYTES,
            max_merge_keys: MAX_ALIASES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 4 * MAX_NODES },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        legacy_octal_numbers: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|err| {
        let line = err.location().map(|it| it.line());
        invalid(format!("the file cannot be read: {}", crate::diagnostics::short(&err.to_string())), line)
    })?;
    let mut nodes = 0;
    bounded(&value, 1, &mut nodes)?;
    Ok(value)
}

/// Refuses tags, which readers interpret: Compose's `!reset` and `!override` change the meaning of other values.
fn without_tags(text: &str) -> Result<(), ReadError> {
    for event in Parser::new_from_str(text).take(8 * MAX_NODES) {
        // The parser reports syntax errors.
        let Ok((event, span)) = event else { break };
        if let Event::Scalar(_, _, _, Some(_))
        | Event::SequenceStart(_, _, Some(_))
        | Event::MappingStart(_, _, Some(_)) = event
        {
            return Err(invalid("the file has a tag (`!…`), which is not read".into(), Some(span.start.line() as u64)));
        }
    }
    Ok(())
}

/// Checks the limits, which apply after aliases and merges were expanded.
fn bounded(value: &Value, level: usize, nodes: &mut usize) -> Result<(), ReadError> {
    *nodes += 1;
    if *nodes > MAX_NODES {
        return Err(invalid(format!("the file has more than {MAX_NODES} nodes"), None));
    }
    if level > MAX_LEVELS {
        return Err(invalid(format!("the file has more than {MAX_LEVELS} levels"), None));
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|it| bounded(it, level + 1, nodes)),
        Value::Object(entries) => entries.iter().try_for_each(|(key, it)| {
            // Merges were expanded; the next reader would expand a remaining one.
            if key == "<<" {
                return Err(invalid("the file has a key `<<` that is no merge".into(), None));
            }
            bounded(it, level + 1, nodes)
        }),
        _ => Ok(()),
    }
}

pub(super) fn invalid(message: String, line: Option<u64>) -> ReadError {
    ReadError::Invalid { message, line }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> String {
        match parse(text) {
            Err(ReadError::Invalid { message, line }) => format!("{message} @{line:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_and_numbers_have_the_meaning_of_compose() {
        let text = "{a: yes, b: on, c: true, d: 0440, e: 0x10, f: 1.5, g: ~, h: '0440', i: 22:22, 80: x}";
        let value = parse(text).unwrap();
        assert_eq!(
            value,
            json!({ "a": "yes", "b": "on", "c": true, "d": 288, "e": 16, "f": 1.5, "g": null, "h": "0440", "i": "22:22", "80": "x" })
        );
    }

    #[test]
    fn aliases_and_merges_are_expanded() {
        let text = "x-a: &a {restart: always, image: a}\nservices:\n  w: {<<: *a, image: b}\n  v: *a\n";
        let value = parse(text).unwrap();
        assert_eq!(value["services"]["w"], json!({ "restart": "always", "image": "b" }));
        assert_eq!(value["services"]["v"]["image"], "a");
    }

    #[test]
    fn tags_duplicates_and_second_documents_are_refused() {
        for text in ["a: !reset null", "a: !!str 1", "!x a: 1", "a: !override {b: c}", "a: !!binary aGk="] {
            assert!(refused(text).contains("tag"), "{text}: {}", refused(text));
        }
        for text in ["a: 1\na: 2", "a: {b: 1, b: 2}", "a: 1\n---\nb: 2", "a: [", "\"<<\": 1\na: 2", "? [a, b]\n: c"] {
            refused(text);
        }
        assert!(refused("a: 1\nb: [\n").contains("@Some("));
        assert!(refused("x: 1\ny: !z 1").ends_with("@Some(2)"));
    }

    #[test]
    fn bombs_are_refused() {
        let deep = format!("a: {}{}", "[".repeat(60), "]".repeat(60));
        refused(&deep);
        let mut deep_block = String::new();
        (0..60).for_each(|level| deep_block.push_str(&format!("{}k:\n", " ".repeat(level))));
        refused(&deep_block);
        refused(&format!("a: [{}]", "1,".repeat(11_000)));
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..9 {
            let ten = vec![format!("*a{}", at - 1); 10].join(", ");
            laughs.push_str(&format!("a{at}: &a{at} [{ten}]\n"));
        }
        refused(&laughs);
        refused(&format!("a: &a 1\nb: [{}]", "*a,".repeat(101)));
        refused(&"a".repeat(MAX_BYTES + 1));
        // Fifty aliases of a list of three hundred: few aliases, many nodes.
        refused(&format!("a: &a [{}]\nb: [{}]", "1,".repeat(300), "*a,".repeat(50)));
    }
}
