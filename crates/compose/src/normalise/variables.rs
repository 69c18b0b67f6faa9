//! Fills in `$NAME` and `${NAME…}` in values of a file. Keys are not changed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ModelError;

type Variables = BTreeMap<String, String>;

/// Maximum depth of nested defaults.
const MAX_DEPTH: usize = 20;

/// The parts of a file that may use variables.
const SECTIONS: [&str; 5] = ["services", "networks", "volumes", "configs", "secrets"];

pub(super) fn fill_in(file: &mut Map<String, Value>, env: &Variables) -> Result<(), ModelError> {
    for section in SECTIONS {
        if let Some(value) = file.get_mut(section) {
            fill_value(value, env).map_err(|why| format!("{section}: {why}"))?;
        }
    }
    Ok(())
}

fn fill_value(value: &mut Value, env: &Variables) -> Result<(), ModelError> {
    match value {
        Value::String(text) => {
            if text.contains('$') {
                *text = filled(text, env, 0)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|it| fill_value(it, env)),
        Value::Object(fields) => fields.values_mut().try_for_each(|it| fill_value(it, env)),
        _ => Ok(()),
    }
}

fn filled(text: &str, env: &Variables, depth: usize) -> Result<String, ModelError> {
    let invalid = || format!("`{text}` has a `${{` that begins no variable: write `$${{`");
    if depth > MAX_DEPTH {
        return Err(format!("`{text}` has too many variables within each other"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(next) = after.strip_prefix('$') {
            out.push('$');
            rest = next;
        } else if let Some(inner) = after.strip_prefix('{') {
            let end = closing(inner).ok_or_else(invalid)?;
            out.push_str(&expression(&inner[..end], env, depth)?.ok_or_else(invalid)?);
            rest = &inner[end + 1..];
        } else {
            let length = name_length(after);
            match length {
                // A `$` before other characters is literal.
                0 => out.push('$'),
                _ => out.push_str(env.get(&after[..length]).map_or("", String::as_str)),
            }
            rest = &after[length..];
        }
    }
    Ok(out + rest)
}

/// Finds the end of `${…}`, which may contain others.
fn closing(inner: &str) -> Option<usize> {
    let (mut open, mut before) = (1usize, ' ');
    for (at, c) in inner.char_indices() {
        match c {
            '{' if before == '$' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
        before = c;
    }
    None
}

/// Evaluates `NAME` with its operator for unset or empty values. `None` for invalid syntax.
fn expression(inner: &str, env: &Variables, depth: usize) -> Result<Option<String>, ModelError> {
    let (name, operation) = inner.split_at(name_length(inner));
    if name.is_empty() {
        return Ok(None);
    }
    let value = env.get(name);
    let (set, operation) = match operation.strip_prefix(':') {
        Some(operation) => (value.filter(|it| !it.is_empty()), operation),
        None => (value, operation),
    };
    let mut kinds = operation.chars();
    let kind = kinds.next();
    let word = kinds.as_str();
    Ok(match (kind, set) {
        (None, _) if inner == name => Some(value.cloned().unwrap_or_default()),
        (Some('-' | '?'), Some(set)) => Some(set.clone()),
        (Some('-'), None) => Some(filled(word, env, depth + 1)?),
        (Some('?'), None) => {
            return Err(format!("the variable `{name}` is missing: {}", filled(word, env, depth + 1)?));
        }
        (Some('+'), Some(_)) => Some(filled(word, env, depth + 1)?),
        (Some('+'), None) => Some(String::new()),
        _ => None,
    })
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<String, ModelError> {
        let env = [("A", "one"), ("E", ""), ("D", "$A")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        filled(text, &Variables::from(env), 0)
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (text, expected) in [
            ("$A ${A} $$A $${A} $NO.", "one one $A ${A} ."),
            ("${NO:-x}${E:-x}${E-x}${NO-x}${A:-x}", "xxxone"),
            ("${A:+y}${E:+y}${E+y}${NO+y}", "yy"),
            ("${NO:-${E:-$A}}!${D}", "one!$A"),
            ("${A:?no}${NO:-a:b-c?d}", "onea:b-c?d"),
            ("${NO:-}", ""),
            ("$ $1 $% ${NO:-$} $", "$ $1 $% $ $"),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_missing_variable_is_reported_and_invalid_braces_are_refused() {
        assert_eq!(fill("${NO:?is needed}").unwrap_err(), "the variable `NO` is missing: is needed");
        assert!(fill("${E?x}").is_ok() && fill("${E:?x}").is_err());
        for text in ["${", "${}", "${A", "${1}", "${A!x}", "${A:}", "${-x}"] {
            assert!(fill(text).is_err(), "{text}");
        }
        assert!(fill(&("${X:-".repeat(40) + &"}".repeat(40))).is_err());
    }
}
