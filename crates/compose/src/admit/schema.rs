//! Shapes of values in a normalised model. What has another shape is not understood, and so refused.

use serde_json::{Map, Value};

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A text.
    Text,
    /// True or false.
    Flag,
    /// A number of bytes, as a text or a number.
    Size,
    /// A list of texts; `null` is none.
    Words,
    /// A list of addresses.
    Addresses,
    /// A list of mappings.
    Entries,
    /// A mapping.
    Mapping,
    /// Host names with addresses.
    Hosts,
    /// Names and values; a name without a value is dropped, since Compose would look for one in its own environment.
    Pairs,
}

impl Shape {
    /// The value as it goes on, if it has this shape.
    pub(super) fn check(self, value: &Value) -> Option<Value> {
        let fits = match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Size => size(value).is_some(),
            Self::Words => words(value).is_some(),
            Self::Addresses => {
                words(value).is_some_and(|it| it.iter().all(|it| it.parse::<std::net::IpAddr>().is_ok()))
            }
            Self::Entries => value.as_array().is_some_and(|it| it.iter().all(Value::is_object)),
            Self::Mapping => value.is_object(),
            Self::Hosts => {
                words(value).is_some() || value.as_object().is_some_and(|it| it.values().all(|it| words(it).is_some()))
            }
            Self::Pairs => return pairs(value).map(Value::Object),
        };
        fits.then(|| value.clone())
    }

    pub(super) fn expectation(self) -> &'static str {
        match self {
            Self::Text => "is no text",
            Self::Flag => "is neither true nor false",
            Self::Size => "is no number of bytes",
            Self::Words => "is no list of texts",
            Self::Addresses => "is no list of addresses",
            Self::Entries => "is no list of mappings",
            Self::Mapping => "is no mapping",
            Self::Hosts => "is no list of names and addresses",
            Self::Pairs => "is no mapping of names to texts",
        }
    }
}

pub(super) fn words(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(one) => Some(vec![one]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Numbers of bytes are texts in the models of some versions and numbers in those of others.
pub(super) fn size(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

pub(super) fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn pairs(value: &Value) -> Option<Map<String, Value>> {
    let text = |it: &Value| match it {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    let entries = match value {
        Value::Null => return Some(Map::new()),
        Value::Object(entries) => entries,
        _ => return None,
    };
    let named = entries.iter().filter(|(_, value)| !value.is_null());
    named.map(|(key, value)| Some((key.clone(), text(value)?.into()))).collect()
}

/// Whether nothing is asked for: what normalising leaves of a key that was not there.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Entries of a mapping, without remarks of the file's own.
pub(super) fn entries(value: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !key.starts_with("x-"))
}
