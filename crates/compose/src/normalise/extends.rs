//! Services that extend another one of the same file.

use serde_json::{Map, Value};

use super::ModelError;

/// Lists that are replaced as a whole, by the last part of their path.
const REPLACED: [&str; 4] = ["command", "entrypoint", "test", "dns_opt"];

pub(super) fn resolve(services: &Map<String, Value>) -> Result<Map<String, Value>, ModelError> {
    let resolved = services.keys().map(|name| Ok((name.clone(), resolved(name, services, &mut Vec::new())?)));
    resolved.collect()
}

fn resolved<'a>(name: &'a str, services: &'a Map<String, Value>, path: &mut Vec<&'a str>) -> Result<Value, ModelError> {
    if path.contains(&name) {
        return Err(format!("services.{name}.extends: it extends itself"));
    }
    path.push(name);
    let mut service = services.get(name).cloned().unwrap_or_default();
    let extended = services.get(name).and_then(|it| it.get("extends"));
    if let Some(extended) = extended.filter(|it| !it.is_null()) {
        let base = extended.as_str().or_else(|| extended.get("service")?.as_str()).unwrap_or_default();
        if extended.get("file").is_some() {
            return Err(format!("services.{name}.extends: other files are not read"));
        }
        let Some((base, _)) = services.get_key_value(base) else {
            return Err(format!("services.{name}.extends: there is no service `{base}`"));
        };
        service = merged("", resolved(base, services, path)?, service);
    }
    if let Value::Object(service) = &mut service {
        service.remove("extends");
    }
    Ok(service)
}

/// Merges two values, of which `over` overrides. Mappings are merged, and lists joined: of mounts and ports one
/// remains per target.
fn merged(key: &str, base: Value, over: Value) -> Value {
    match (base, over) {
        (base, Value::Null) => base,
        (Value::Object(mut base), Value::Object(over)) => {
            for (key, value) in over {
                let value = match base.remove(&key) {
                    Some(before) => merged(&key, before, value),
                    None => value,
                };
                base.insert(key, value);
            }
            Value::Object(base)
        }
        (Value::Array(base), Value::Array(over)) if !REPLACED.contains(&key) => joined(key, base, over),
        (_, over) => over,
    }
}

fn joined(key: &str, mut base: Vec<Value>, over: Vec<Value>) -> Value {
    for item in over {
        let same = |it: &Value| match key {
            "volumes" | "configs" | "secrets" => it.get("target").is_some() && it.get("target") == item.get("target"),
            _ => *it == item,
        };
        match base.iter_mut().find(|it| same(it)) {
            Some(before) => *before = item,
            None => base.push(item),
        }
    }
    base.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolved(services: &Value) -> Result<Value, ModelError> {
        resolve(services.as_object().unwrap()).map(Value::Object)
    }

    #[test]
    fn the_extending_service_overrides() {
        let mount = |source: &str, target: &str| json!({ "source": source, "target": target });
        let services = json!({
            "a": { "command": ["x", "y"], "environment": { "A": "1", "B": "2" }, "volumes": [mount("o", "/o"), mount("p", "/p")] },
            "b": { "extends": { "service": "a" }, "command": ["z"], "environment": { "B": "3" }, "volumes": [mount("n", "/p")] },
            "c": { "extends": "b", "expose": ["1"] },
        });
        let resolved = resolved(&services).unwrap();
        assert_eq!(
            resolved["b"],
            json!({ "command": ["z"], "environment": { "A": "1", "B": "3" }, "volumes": [mount("o", "/o"), mount("n", "/p")] })
        );
        assert_eq!((&resolved["c"]["command"], &resolved["c"]["expose"]), (&json!(["z"]), &json!(["1"])));
    }

    #[test]
    fn circles_other_files_and_missing_services_are_reported() {
        for extends in [json!({ "a": { "extends": "a" } }), json!({ "a": { "extends": "b" }, "b": { "extends": "a" } })]
        {
            assert!(resolved(&extends).unwrap_err().contains("extends itself"));
        }
        assert!(resolved(&json!({ "a": { "extends": { "service": "b" } } })).is_err());
        assert!(resolved(&json!({ "a": { "extends": { "service": "a", "file": "f" } } })).is_err());
    }
}
