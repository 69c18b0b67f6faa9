//! A service's health check.

use serde_json::{Map, Value, json};

use super::{ModelError, values};

pub(super) fn write_out(value: Value) -> Result<Value, ModelError> {
    let Value::Object(check) = value else { return Ok(value) };
    let mut out = Map::new();
    for (key, value) in check {
        let value = match key.as_str() {
            "test" => match value {
                Value::String(line) => json!(["CMD-SHELL", line]),
                other => other,
            },
            "interval" | "timeout" | "start_period" | "start_interval" => {
                values::duration(value).map_err(|why| format!("healthcheck.{key}: {why}"))?
            }
            "retries" => values::integer(value),
            "disable" => values::flag(value),
            _ => value,
        };
        out.insert(key, value);
    }
    Ok(Value::Object(out))
}
