//! The dependencies of a service: explicit ones, and those from its links and its network.

use serde_json::{Map, Value, json};

/// Expands a list of names to names with conditions.
pub(super) fn write_out(value: Value) -> Value {
    let usual = || json!({ "condition": "service_started", "required": true });
    match value {
        Value::Array(names) => {
            let named = names.into_iter().filter_map(|it| Some((it.as_str()?.to_owned(), usual())));
            Value::Object(named.collect())
        }
        Value::Object(entries) => {
            let complete = |mut entry: Value| {
                if let Value::Object(entry) = &mut entry {
                    entry.entry("condition").or_insert_with(|| "service_started".into());
                    entry.entry("required").or_insert_with(|| true.into());
                }
                entry
            };
            Value::Object(entries.into_iter().map(|(name, entry)| (name, complete(entry))).collect())
        }
        other => other,
    }
}

/// Adds the services whose names or namespaces this one uses.
pub(super) fn add_implied(service: &mut Map<String, Value>) {
    let links = service.get("links").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut implied: Vec<String> = links.map(|it| it.split(':').next().unwrap_or_default().to_owned()).collect();
    for key in ["network_mode", "ipc", "pid"] {
        let of = service.get(key).and_then(Value::as_str).and_then(|it| it.strip_prefix("service:"));
        implied.extend(of.map(str::to_owned));
    }
    if implied.is_empty() {
        return;
    }
    let Value::Object(known) = service.entry("depends_on").or_insert_with(|| json!({})) else { return };
    for name in implied {
        known
            .entry(name)
            .or_insert_with(|| json!({ "condition": "service_started", "restart": true, "required": true }));
    }
}

/// Returns the names of services that depend on each other, if there are any.
pub(super) fn circle(services: &Map<String, Value>) -> Option<Vec<String>> {
    let mut left: Vec<&String> = services.keys().collect();
    loop {
        let before = left.len();
        let waits = |name: &String| {
            let mut needs = services[name].get("depends_on").and_then(Value::as_object).into_iter().flatten();
            needs.any(|(on, _)| left.contains(&on))
        };
        let waiting: Vec<_> = left.iter().copied().filter(|name| waits(name)).collect();
        left = waiting;
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            return Some(left.into_iter().cloned().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found() {
        let of = |services: Value| circle(services.as_object().unwrap());
        let needs = |on: &[&str]| json!({ "depends_on": write_out(json!(on)) });
        assert_eq!(of(json!({ "a": needs(&["b"]), "b": needs(&["c", "gone"]), "c": {} })), None);
        assert_eq!(of(json!({ "a": needs(&["b"]), "b": needs(&["a"]) })), Some(vec!["a".into(), "b".into()]));
        assert_eq!(of(json!({ "a": needs(&["a"]) })), Some(vec!["a".into()]));
    }
}
