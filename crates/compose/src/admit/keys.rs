//! The keys of a mapping in the long form: each is taken once, and the rest is refused.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Admission;
use crate::diagnostics::{Location, Violation, is_known, short};

/// Mappings whose keys are chosen by the file, and whose values are texts.
const TEXTS: [&str; 7] = ["environment", "labels", "annotations", "sysctls", "args", "additional_contexts", "options"];

/// The keys of one part of a file.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    pub(super) location: Location<'a>,
    /// The key of this mapping, whose rule applies.
    within: Option<&'a str>,
    map: Map<String, Value>,
}

impl<'a> Keys<'a> {
    /// Removes keys without meaning: extension fields, and unset values.
    pub(super) fn new(location: Location<'a>, mut map: Map<String, Value>) -> Self {
        clean(&mut map);
        Self { location, within: None, map }
    }

    /// The keys of the file itself. Its parts are cleaned one by one, since their names are chosen by the file.
    pub(super) fn within_file(mut map: Map<String, Value>) -> Self {
        map.retain(|key, _| !key.starts_with("x-"));
        Self { location: Location::FILE, within: None, map }
    }

    /// A mapping below one that was cleaned.
    pub(super) fn within(location: Location<'a>, key: &'a str, map: Map<String, Value>) -> Self {
        Self { location, within: Some(key), map }
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// Removes keys that have no meaning here.
    pub(super) fn ignore(&mut self, keys: &[&str]) {
        self.map.retain(|key, _| !keys.contains(&key.as_str()));
    }

    /// The key whose rule applies to one of these.
    pub(super) fn rule<'k>(&'k self, key: &'k str) -> &'k str {
        self.within.unwrap_or(key)
    }
}

fn clean(map: &mut Map<String, Value>) {
    map.retain(|key, value| !(key.starts_with("x-") || value.is_null() || value == ""));
    for (key, value) in map {
        match value {
            Value::Object(texts) if TEXTS.contains(&key.as_str()) => texts.retain(|_, text| !text.is_null()),
            Value::Object(fields) => {
                if key == "networks" {
                    // The service is on the network without further options.
                    fields.values_mut().filter(|it| it.is_null()).for_each(|it| *it = Value::Object(Map::new()));
                }
                clean(fields);
            }
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(clean),
            _ => {}
        }
    }
}

impl Admission<'_> {
    /// Takes the value of a key; the default if it is unset or refused.
    pub(super) fn take<T: DeserializeOwned + Default>(&mut self, keys: &mut Keys<'_>, key: &str) -> T {
        let value = keys.remove(key);
        value.and_then(|value| self.parse(keys, key, value)).unwrap_or_default()
    }

    /// Takes the items of a list, without those that are refused.
    pub(super) fn items<T: DeserializeOwned>(&mut self, keys: &mut Keys<'_>, key: &str) -> Vec<T> {
        let items: Vec<Value> = self.take(keys, key);
        items.into_iter().filter_map(|item| self.parse(keys, key, item)).collect()
    }

    /// Takes the entries of a mapping, without those that are refused.
    pub(super) fn named<T: DeserializeOwned>(&mut self, keys: &mut Keys<'_>, key: &str) -> Vec<(String, T)> {
        let entries: Map<String, Value> = self.take(keys, key);
        entries.into_iter().filter_map(|(name, entry)| Some((name, self.parse(keys, key, entry)?))).collect()
    }

    /// Builds a part of a model from keys that are copied unchanged.
    pub(super) fn copy<T: DeserializeOwned>(&mut self, keys: &mut Keys<'_>, names: &[&str]) -> T {
        let mut copied = Map::new();
        for name in names {
            let Some(value) = keys.remove(name) else { continue };
            let one = Value::Object(Map::from_iter([((*name).to_owned(), value.clone())]));
            if self.parse::<T>(keys, name, one).is_some() {
                copied.insert((*name).to_owned(), value);
            }
        }
        serde_json::from_value(Value::Object(copied)).expect("each of them was read")
    }

    /// Parses a value as the type in the model; refuses it if it has another type.
    pub(super) fn parse<T: DeserializeOwned>(&mut self, keys: &Keys<'_>, key: &str, value: Value) -> Option<T> {
        let shown = excerpt(&value);
        let parsed = serde_json::from_value(value);
        let refused = |err: serde_json::Error| {
            let violation = Violation::within(keys.rule(key), key, &shown);
            self.refuse(keys.location, violation, &format!("is not understood: {}", short(&err.to_string())));
        };
        parsed.map_err(refused).ok()
    }

    /// Refuses the keys that were not taken, unless their values are empty.
    pub(super) fn refuse_rest(&mut self, keys: Keys<'_>, why: &str) {
        let Keys { location, within, map } = keys;
        for (key, value) in map.iter().filter(|(key, value)| !(is_empty(value) && (within.is_some() || is_known(key))))
        {
            let shown = excerpt(value);
            match within {
                None => self.refuse(location, Violation::new(key, &shown), why),
                Some(rule) => {
                    self.refuse(location, Violation::within(rule, &format!("{rule}.{key}"), &shown), why);
                }
            }
        }
    }
}

/// Whether a value has no effect.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Returns a value for a message. Only texts are shown, since other values may be long or secret.
fn excerpt(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => list.iter().map(excerpt).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    }
}
