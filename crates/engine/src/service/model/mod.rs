//! The model of a Compose file: what `docker compose config` prints, without Docker.
//!
//! The text is JSON: `coracle-compose` has read the YAML, its aliases and its files of variables. A value in a form that
//! is not known goes on as it is, for the admission to refuse; nothing is left out but what no service uses.

mod argv;
mod depends_on;
mod extends;
mod file;
mod health_check;
mod ports;
mod resources;
mod service;
mod values;
mod variables;
mod volumes;

use serde_json::{Map, Value};

use coracle_runtime::StackSource;

use super::order::{circle, dependencies};

/// Why a file has no model, in one sentence.
type ModelError = String;

/// The model of a Compose file, which is read already: `content` is JSON.
///
/// # Errors
/// What is wrong with the file.
pub fn compose_model(source: &StackSource) -> Result<Value, ModelError> {
    let read: Value = serde_json::from_str(&source.content).map_err(|err| format!("the file is no JSON: {err}"))?;
    let Value::Object(mut file) = read else { return Err("the file is no mapping of keys to values".into()) };
    variables::fill_in(&mut file, &source.env)?;
    let context = service::Context { dir: &source.dir, env: &source.env };
    let services = services(file.remove("services"), &context)?;
    Ok(file::assemble(file, services, source.project.as_str()))
}

/// Refuses a model that this engine cannot run, before images are looked for.
///
/// # Errors
/// What it cannot run.
pub(crate) fn check(model: &Value) -> Result<(), ModelError> {
    let Some(services) = model["services"].as_object() else { return Ok(()) };
    let needs = services.iter().map(|(name, service)| (name.clone(), dependencies(service))).collect();
    if let Some(names) = circle(&needs) {
        return Err(format!("services wait for each other: {}", names.join(", ")));
    }
    let networks = |service: &Value| service["networks"].as_object().map_or(0, Map::len);
    match services.iter().find(|(_, service)| networks(service) > 1) {
        Some((name, _)) => Err(format!("services.{name}.networks may be one here: a container is on one network")),
        None => Ok(()),
    }
}

/// Every service in its long form, without those of profiles: none is active.
fn services(section: Option<Value>, context: &service::Context<'_>) -> Result<Map<String, Value>, ModelError> {
    let Some(Value::Object(section)) = section else { return Err("services must be a mapping".into()) };
    let mut long = Map::new();
    for (name, service) in section {
        let Value::Object(service) = service else { return Err(format!("services.{name} must be a mapping")) };
        let written = service::write_out(service, context).map_err(|why| format!("services.{name}.{why}"))?;
        long.insert(name, Value::Object(written));
    }
    let mut complete = extends::resolve(&long)?;
    complete.retain(|_, it| it.get("profiles").and_then(Value::as_array).is_none_or(Vec::is_empty));
    for (_, service) in &mut complete {
        if let Value::Object(service) = service {
            service::complete(service);
        }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests;
