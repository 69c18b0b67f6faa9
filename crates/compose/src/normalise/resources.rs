//! Limits of a service: `ulimits`, and those of `deploy`.

use serde_json::{Map, Value, json};

use super::{ModelError, values};

pub(super) fn ulimits(value: Value) -> Value {
    let Value::Object(limits) = value else { return value };
    let one = |limit: Value| match limit {
        Value::Object(both) => Value::Object(both.into_iter().map(|(key, it)| (key, values::integer(it))).collect()),
        single => values::integer(single),
    };
    Value::Object(limits.into_iter().map(|(name, limit)| (name, one(limit))).collect())
}

pub(super) fn deploy(value: Value) -> Result<Value, ModelError> {
    let Value::Object(mut deploy) = value else { return Ok(value) };
    if let Some(replicas) = deploy.remove("replicas") {
        deploy.insert("replicas".into(), values::integer(replicas));
    }
    if let Some(labels) = deploy.remove("labels") {
        deploy.insert("labels".into(), values::pairs(labels, |_| "".into())?);
    }
    if let Some(Value::Object(resources)) = deploy.get_mut("resources") {
        for (_, kind) in resources.iter_mut() {
            if let Value::Object(amounts) = kind {
                *kind = Value::Object(self::amounts(std::mem::take(amounts))?);
            }
        }
    }
    Ok(Value::Object(deploy))
}

fn amounts(amounts: Map<String, Value>) -> Result<Map<String, Value>, ModelError> {
    let written = amounts.into_iter().map(|(key, value)| {
        let value = match key.as_str() {
            "cpus" => values::decimal(value),
            "memory" => values::size(value).map_err(|why| format!("deploy.resources: {why}"))?,
            "pids" => values::integer(value),
            "devices" => devices(value),
            _ => value,
        };
        Ok((key, value))
    });
    written.collect()
}

/// Expands `all`, or a list of devices. The count -1 means all.
pub(super) fn devices(value: Value) -> Value {
    match value {
        Value::String(all) if all == "all" => json!([{ "count": -1 }]),
        Value::Array(devices) => devices
            .into_iter()
            .map(|mut it| {
                if it.get("count").is_some_and(|it| it == "all") {
                    it["count"] = (-1).into();
                }
                it
            })
            .collect(),
        other => other,
    }
}
