//! Expands the short forms of one service.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Context, ModelError, argv, depends_on, health_check, ports, resources, values, volumes};

/// Returns the long form of each value in the file. [`complete`] adds defaults when the extended services are
/// known.
pub(super) fn write_out(service: Map<String, Value>, context: &Context<'_>) -> Result<Map<String, Value>, ModelError> {
    let mut out = Map::new();
    for (key, value) in service {
        let value = if value.is_null() { value } else { long(&key, value, context)? };
        out.insert(key, value);
    }
    Ok(out)
}

fn long(key: &str, value: Value, context: &Context<'_>) -> Result<Value, ModelError> {
    let named = |why: ModelError| format!("{key}: {why}");
    Ok(match key {
        "command" | "entrypoint" => command(value).map_err(named)?,
        "environment" => {
            let of_call = |name: &str| context.env.get(name).map_or(Value::Null, |it| it.as_str().into());
            values::pairs(value, of_call).map_err(named)?
        }
        "labels" | "sysctls" | "annotations" => values::pairs(value, |_| "".into()).map_err(named)?,
        "ports" => ports::write_out(value)?,
        "volumes" => volumes::write_out(value, context.dir)?,
        "depends_on" => depends_on::write_out(value),
        "healthcheck" => health_check::write_out(value)?,
        "networks" => networks(value),
        "deploy" => resources::deploy(value)?,
        "ulimits" => resources::ulimits(value),
        "gpus" => resources::devices(value),
        "configs" => stored_files(value, None),
        "secrets" => stored_files(value, Some("/run/secrets/")),
        "extra_hosts" => extra_hosts(value),
        "devices" => devices(value),
        "build" => build(value, context.dir).map_err(named)?,
        "logging" => logging(value),
        "dns" | "dns_search" | "dns_opt" | "tmpfs" | "expose" | "group_add" | "cap_add" | "cap_drop"
        | "security_opt" | "links" => values::words(value),
        "mem_limit" | "memswap_limit" | "mem_reservation" | "shm_size" => values::size(value).map_err(named)?,
        "stop_grace_period" => values::duration(value).map_err(named)?,
        "cpus" => values::decimal(value),
        "mem_swappiness" => values::text(&value).map_or(value, Value::from),
        "pids_limit" | "scale" => values::integer(value),
        "tty" | "stdin_open" | "init" | "read_only" | "privileged" | "attach" => values::flag(value),
        _ => value,
    })
}

/// Adds the defaults of a service.
pub(super) fn complete(service: &mut Map<String, Value>) -> Result<(), ModelError> {
    for key in ["command", "entrypoint"] {
        service.entry(key).or_insert(Value::Null);
    }
    let unset = |it: Option<&Value>| it.is_none_or(|it| it.is_null() || it == "");
    let none = service.get("networks").and_then(Value::as_object).is_none_or(Map::is_empty);
    if !unset(service.get("network_mode")) && !none {
        return Err("network_mode and networks cannot both be set".into());
    }
    if unset(service.get("network_mode")) {
        service.remove("network_mode");
        if none && service.get("networks").is_none_or(|it| it.is_null() || it.is_object()) {
            service.insert("networks".into(), json!({ "default": null }));
        }
    }
    if let Some(Value::Object(build)) = service.get_mut("build")
        && !build.contains_key("dockerfile_inline")
    {
        build.entry("dockerfile").or_insert_with(|| "Dockerfile".into());
    }
    depends_on::add_implied(service);
    // Only an empty list of profiles remains here.
    service.remove("profiles");
    Ok(())
}

fn command(value: Value) -> Result<Value, ModelError> {
    match value {
        Value::String(line) => Ok(argv::split(&line)?.into()),
        other => Ok(other),
    }
}

fn networks(value: Value) -> Value {
    match value {
        Value::Array(names) => {
            let named = names.into_iter().filter_map(|it| Some((it.as_str()?.to_owned(), Value::Null)));
            Value::Object(named.collect())
        }
        other => other,
    }
}

/// Expands names to entries. A secret without a target has its usual path; modes in texts are octal.
fn stored_files(value: Value, usual: Option<&str>) -> Value {
    let Value::Array(items) = value else { return value };
    let one = |item: Value| {
        let mut entry = match item {
            Value::String(name) => json!({ "source": name }),
            other => other,
        };
        if let (Some(dir), Some(source)) = (usual, entry["source"].as_str())
            && entry.get("target").is_none()
        {
            entry["target"] = format!("{dir}{source}").into();
        }
        if let Some(mode) = entry["mode"].as_str().and_then(|it| u32::from_str_radix(it, 8).ok()) {
            entry["mode"] = mode.into();
        }
        if let Value::Object(fields) = &mut entry {
            fields.retain(|_, it| !it.is_null());
        }
        entry
    };
    items.into_iter().map(one).collect()
}

/// Returns `NAME=ADDRESS` lines, sorted.
fn extra_hosts(value: Value) -> Value {
    let mut lines: Vec<String> = match &value {
        Value::Object(hosts) => {
            let addresses = |it: &Value| match it {
                Value::Array(several) => several.iter().filter_map(values::text).collect(),
                one => values::text(one).into_iter().collect::<Vec<_>>(),
            };
            hosts
                .iter()
                .flat_map(|(name, it)| addresses(it).into_iter().map(move |it| format!("{name}={it}")))
                .collect()
        }
        Value::Array(items) => {
            let line = |it: &str| {
                let split = it.split_once('=').or_else(|| it.split_once(':'));
                split.map_or_else(|| it.to_owned(), |(name, to)| format!("{name}={to}"))
            };
            items.iter().filter_map(Value::as_str).map(line).collect()
        }
        _ => return value,
    };
    lines.sort();
    lines.into()
}

/// Parses `SOURCE:TARGET:PERMISSIONS`.
fn devices(value: Value) -> Value {
    let Value::Array(items) = value else { return value };
    let one = |item: Value| {
        let Some(text) = item.as_str() else { return item };
        let mut parts = text.splitn(3, ':');
        let source = parts.next().unwrap_or_default();
        json!({ "source": source, "target": parts.next().unwrap_or(source), "permissions": parts.next().unwrap_or("rwm") })
    };
    items.into_iter().map(one).collect()
}

fn build(value: Value, dir: &Path) -> Result<Value, ModelError> {
    let mut build = match value {
        Value::String(context) => Map::from_iter([("context".to_owned(), context.into())]),
        Value::Object(build) => build,
        other => return Ok(other),
    };
    for (key, value) in &mut build {
        *value = match (key.as_str(), value.take()) {
            ("args" | "additional_contexts", value) => values::pairs(value, |_| Value::Null)?,
            // A remote context was refused before and is not changed.
            ("context", Value::String(path)) if !path.contains("://") => values::absolute(dir, &path)?.into(),
            ("labels", value) => values::pairs(value, |_| "".into())?,
            ("shm_size", value) => values::size(value)?,
            ("no_cache" | "pull", value) => values::flag(value),
            ("extra_hosts", value) => extra_hosts(value),
            (_, value) => value,
        };
    }
    Ok(Value::Object(build))
}

fn logging(mut value: Value) -> Value {
    if let Some(Value::Object(options)) = value.get_mut("options") {
        for (_, option) in options {
            *option = values::text(option).map_or(Value::Null, Value::from);
        }
    }
    value
}
