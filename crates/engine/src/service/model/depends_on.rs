//! What a service waits for: said, or following from its links and its network.

use serde_json::{Map, Value, json};

/// A list of names, or names with conditions.
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

/// Services whose names or namespaces this one uses have to be there before it.
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
