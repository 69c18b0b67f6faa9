//! Parses values of properties by their kind.

use serde_json::{Map, Value};

/// Maximum number of items in a list or an object.
const MAX_ITEMS: usize = 200;

pub(super) fn text_of(value: &Value) -> Result<String, String> {
    match value.as_str() {
        Some(text) if text.contains('\0') => Err("has a NUL".into()),
        Some(text) => Ok(text.to_owned()),
        None => Err("is no text".into()),
    }
}

pub(super) fn object_of(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().filter(|it| it.len() <= MAX_ITEMS).ok_or_else(|| "is no object, or too large".into())
}

pub(super) fn list_of(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().filter(|it| it.len() <= MAX_ITEMS).ok_or_else(|| "is no list, or too long".into())
}

/// Parses a text of one line.
pub(super) fn line_of(value: &Value) -> Result<String, String> {
    let text = text_of(value)?;
    if text.contains(char::is_control) { Err("has a control character".into()) } else { Ok(text) }
}

pub(super) fn variable(name: &str) -> Result<String, String> {
    let fits =
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
    if fits && !name.is_empty() {
        Ok(name.to_owned())
    } else {
        Err(format!("has `{}`, which is no name of a variable", name.escape_debug()))
    }
}
