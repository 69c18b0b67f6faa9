//! Networks, volumes, configs and secrets of a file, under the engine's names.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The parts of a file, which are also the keys of a service that refer to them.
const PARTS: [&str; 4] = ["networks", "volumes", "configs", "secrets"];

pub(super) fn assemble(mut file: Map<String, Value>, services: Map<String, Value>, project: &str) -> Value {
    for part in PARTS {
        let used = used(&services, part);
        let mut entries = match file.remove(part) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(entries)) => entries,
            Some(unexpected) => {
                file.insert(part.to_owned(), unexpected);
                continue;
            }
        };
        if part == "networks" && used.contains("default") {
            entries.entry("default").or_insert(Value::Null);
        }
        entries.retain(|name, _| used.contains(name.as_str()));
        for (name, entry) in &mut entries {
            *entry = complete(name, entry.take(), project);
        }
        if !entries.is_empty() {
            file.insert(part.to_owned(), Value::Object(entries));
        }
    }
    file.insert("name".into(), project.into());
    file.insert("services".into(), Value::Object(services));
    Value::Object(file)
}

/// Lists the names of that part which a service uses.
fn used<'a>(services: &'a Map<String, Value>, part: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for service in services.values() {
        match service.get(part) {
            Some(Value::Object(entries)) => names.extend(entries.keys().map(String::as_str)),
            Some(Value::Array(entries)) => names.extend(entries.iter().filter_map(|it| it.get("source")?.as_str())),
            _ => {}
        }
    }
    names
}

/// Sets the engine's name of an entry, and its labels as a mapping. An external one has its given name.
fn complete(name: &str, entry: Value, project: &str) -> Value {
    let mut entry = match entry {
        Value::Null => Map::new(),
        Value::Object(entry) => entry,
        unexpected => return unexpected,
    };
    if let Some(external) = entry.get("external").and_then(Value::as_object).cloned() {
        entry.extend(external.get("name").map(|it| ("name".to_owned(), it.clone())));
        entry.insert("external".into(), true.into());
    }
    for key in ["external", "internal"] {
        if let Some(flag) = entry.remove(key) {
            entry.insert(key.into(), super::values::flag(flag));
        }
    }
    if entry.get("external") == Some(&json!(false)) {
        entry.remove("external");
    }
    let usual = if entry.contains_key("external") { name.to_owned() } else { format!("{project}_{name}") };
    entry.entry("name").or_insert_with(|| usual.into());
    if let Some(labels) = entry.remove("labels") {
        entry.insert("labels".into(), super::values::pairs(labels.clone(), |_| "".into()).unwrap_or(labels));
    }
    Value::Object(entry)
}
