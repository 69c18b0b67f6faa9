//! The long form of a Compose file: the output of `docker compose config`, on every engine.
//!
//! Variables are filled in, short forms are expanded, and services that extend others are completed. Pure: files that
//! the text names were read before. Values in an unknown form are passed on, for the admission to refuse; only parts
//! that no service uses are left out.

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

use std::collections::BTreeMap;
use std::path::Path;

use coracle_types::ProjectName;
use serde_json::{Map, Value};

/// Why a file has no model, in one sentence.
type ModelError = String;

/// What the values of a file refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) project: &'a ProjectName,
    /// The base of relative paths.
    pub(crate) dir: &'a Path,
    /// Values of `${NAME}`, and of variables in `environment` without a value. Others are unset.
    pub(crate) env: &'a BTreeMap<String, String>,
}

/// Returns the long form of a file.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn normalise(mut file: Map<String, Value>, context: Context<'_>) -> Result<Value, ModelError> {
    variables::fill_in(&mut file, context.env)?;
    let services = services(file.remove("services"), &context)?;
    if let Some(names) = depends_on::circle(&services) {
        return Err(format!("services wait for each other: {}", names.join(", ")));
    }
    Ok(file::assemble(file, services, context.project.as_str()))
}

/// Returns every service in its long form, without those of profiles: none is active.
fn services(section: Option<Value>, context: &Context<'_>) -> Result<Map<String, Value>, ModelError> {
    let Some(Value::Object(section)) = section else { return Err("services must be a mapping".into()) };
    let mut long = Map::new();
    for (name, service) in section {
        let Value::Object(service) = service else { return Err(format!("services.{name} must be a mapping")) };
        let written = service::write_out(service, context).map_err(|why| format!("services.{name}.{why}"))?;
        long.insert(name, Value::Object(written));
    }
    let mut complete = extends::resolve(&long)?;
    complete.retain(|_, it| it.get("profiles").and_then(Value::as_array).is_none_or(Vec::is_empty));
    for (name, service) in &mut complete {
        if let Value::Object(service) = service {
            service::complete(service).map_err(|why| format!("services.{name}: {why}"))?;
        }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests;
