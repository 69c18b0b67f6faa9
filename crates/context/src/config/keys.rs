//! All keys of the configuration with their meanings and defaults: the source of the reference and of `coracle init`.

use std::collections::BTreeMap;

use coracle_images::profile::ProfileSettings;
use serde::Serialize;
use toml::Value;

/// A key of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Key {
    /// Its path, such as `exec.timeout`. `NAME` stands for any name.
    pub name: String,
    /// Its meaning, in Markdown.
    pub meaning: String,
    /// Its default, in Markdown: a value or a description.
    pub default: String,
    /// Its default as the file has it, if that is a value.
    #[serde(skip)]
    pub value: Option<String>,
}

impl Key {
    /// `meaning` is the lines of a comment. `words` describe the default in place of its value.
    pub(super) fn new(name: String, meaning: &[&str], default: Option<Value>, words: Option<&str>) -> Self {
        let meaning: Vec<&str> = meaning.iter().map(|it| it.trim()).collect();
        let value = default.filter(|_| words.is_none());
        let default = match &value {
            None => words.unwrap_or("none").to_owned(),
            Some(Value::String(text)) if is_amount(text) => text.clone(),
            Some(value @ (Value::String(_) | Value::Array(_))) => format!("`{value}`"),
            Some(value) => value.to_string(),
        };
        Self { name, meaning: meaning.join(" "), default, value: value.map(|it| it.to_string()) }
    }
}

/// Whether a text is a size or a duration, which the reference shows without quotes.
fn is_amount(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_digit()) && text.chars().all(|it| it.is_ascii_alphanumeric())
}

/// A type of the configuration that contains keys.
pub(super) trait Table {
    /// Adds its keys, whose names begin with `path`.
    fn add_keys(path: &str, keys: &mut Vec<Key>);
}

impl<T: Table> Table for Option<T> {
    fn add_keys(path: &str, keys: &mut Vec<Key>) {
        T::add_keys(path, keys);
    }
}

impl<K, T: Table> Table for BTreeMap<K, T> {
    fn add_keys(path: &str, keys: &mut Vec<Key>) {
        T::add_keys(&format!("{path}NAME."), keys);
    }
}

/// The page of purposes has its keys.
impl Table for ProfileSettings {
    fn add_keys(path: &str, keys: &mut Vec<Key>) {
        let meaning = ["your own purpose, or changes to a built-in one"];
        keys.push(Key::new(format!("{path}*"), &meaning, None, Some("see [purposes](profiles.md#your-own-purposes)")));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::config::Config;

    /// Collects the keys below a table, which the error of an unknown key lists.
    fn keys_below(table: &str, keys: &mut BTreeSet<String>) {
        let path = if table.is_empty() { "zzz".to_owned() } else { format!("{table}.zzz") };
        let fault = Config::read(&format!("{path} = 1\n"), false).unwrap_err().into_inner().message;
        let known = fault.split_once("expected one of ").or_else(|| fault.split_once("expected "));
        // An object is one key.
        match known.filter(|_| fault.contains("unknown field `zzz`") && table != "run_code.preload") {
            Some((_, known)) => {
                for key in known.split('`').skip(1).step_by(2) {
                    keys_below(&if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }, keys);
                }
            }
            // A table with any names contains tables.
            None if matches!(table, "sandbox.profiles" | "secrets") => keys_below(&format!("{table}.name"), keys),
            None if table == "profiles" => drop(keys.insert("profiles.NAME.*".to_owned())),
            None => drop(keys.insert(table.replace(".name.", ".NAME."))),
        }
    }

    #[test]
    fn the_keys_are_those_that_can_be_set_and_no_other() {
        let mut settable = BTreeSet::new();
        keys_below("", &mut settable);
        assert!(settable.len() > 150, "{settable:?}");
        let keys: BTreeSet<String> = Config::keys().into_iter().map(|it| it.name).collect();
        assert_eq!(keys, settable);
    }

    #[test]
    fn a_default_is_a_value_or_described() {
        let keys = Config::keys();
        let default = |name: &str| keys.iter().find(|it| it.name == name).unwrap().default.as_str();
        let names = ["exec.timeout", "security.memory_limit", "machine.packages", "workspace.env", "engine_host"];
        assert_eq!(names.map(default), ["300", "4g", "`[\"python3\"]`", "none", "the local one"]);
        assert_eq!(default("security.ports_bind"), "`\"127.0.0.1\"`", "not a size");
    }
}
