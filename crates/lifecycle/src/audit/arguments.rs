//! What a line may tell of arguments.

use coracle_runtime::Excerpt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Longer texts are cut.
const MAX_CHARS: usize = 256;

/// Arguments that are content of files.
const CONTENT: &[&str] = &["content", "old_string", "new_string", "code", "globals", "text"];

/// SHA-256 of all arguments, without values that may be secret.
pub fn digest(args: &Map<String, Value>) -> String {
    hex::encode(Sha256::digest(Value::Object(without_values(args)).to_string()))
}

/// The arguments without what may be secret: texts are shown unless they carry content.
pub fn args(args: &Map<String, Value>) -> Map<String, Value> {
    args.iter().map(|(name, it)| (name.clone(), shown(name, it))).collect()
}

/// A digest of a secret lets who reads it try guesses, so of variables and files only names go in.
fn without_values(args: &Map<String, Value>) -> Map<String, Value> {
    let mut args = args.clone();
    for field in ["env", "config_files", "dotfiles_inline"] {
        if let Some(Value::Object(named)) = args.get_mut(field) {
            named.values_mut().for_each(|it| *it = Value::Null);
        }
    }
    for field in CONTENT {
        args.entry(*field).and_modify(|it| *it = Value::Null);
    }
    args
}

fn shown(name: &str, it: &Value) -> Value {
    match (name, it) {
        ("command", it) => json!({ "first": first_word(it), "sha256": short(it) }),
        ("stdin" | "stdin_base64", it) => json!({ "sha256": short(it) }),
        (name, Value::String(text)) if CONTENT.contains(&name) => json!({ "bytes": text.len() }),
        (_, it) => value(it),
    }
}

/// One value: numbers and short texts as they are, the rest by size and digest.
pub fn value(it: &Value) -> Value {
    match it {
        Value::String(text) => text_of(text).into(),
        Value::Array(items) => json!({ "count": items.len(), "sha256": short(it) }),
        Value::Object(fields) => json!({ "keys": fields.keys().take(20).map(|it| text_of(it)).collect::<Vec<_>>() }),
        other => other.clone(),
    }
}

/// Without user parts of URLs, control and direction characters.
fn text_of(text: &str) -> String {
    let cut: String = text.chars().take(MAX_CHARS).collect();
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut plain = String::new();
    for c in Excerpt::from_bytes(cut.as_bytes()).as_str().chars() {
        if turns(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}

fn first_word(command: &Value) -> String {
    let first = match command {
        Value::Array(words) => words.first().and_then(Value::as_str).unwrap_or_default(),
        other => other.as_str().unwrap_or_default().split_whitespace().next().unwrap_or_default(),
    };
    // `TOKEN=x command` would show the value.
    if first.contains('=') { first.split('=').next().unwrap_or_default().to_owned() + "=…" } else { text_of(first) }
}

fn short(it: &Value) -> String {
    hex::encode(&Sha256::digest(it.to_string())[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::args;

    fn check(given: Value, told: &Value) {
        let Value::Object(given) = given else { panic!("no object") };
        assert_eq!(&Value::Object(args(&given)), told);
    }

    #[test]
    fn content_is_told_by_its_digest_only() {
        check(json!({ "env": { "A": "canary" }, "timeout": 5 }), &json!({ "env": { "keys": ["A"] }, "timeout": 5 }));
        check(json!({ "image": "https://u:p@h/x\u{1b}\u{202e}" }), &json!({ "image": "https://h/x\\u{1b}\\u{202e}" }));
        let given = json!({ "command": "TOKEN=canary curl" });
        let Value::Object(given) = given else { panic!("no object") };
        assert_eq!(args(&given)["command"]["first"], "TOKEN=…");
    }
}
