//! The model that the fake engine's Compose makes of a file: the short forms that tests use, written out.

use serde_json::{Map, Value, json};

use crate::{Port, Protocol, StackSource};

/// The model of a file, or why it is invalid.
pub(super) fn normalised(mut read: Value, source: &StackSource) -> Result<Value, String> {
    filled(&mut read, &|name| source.env.get(name).cloned().unwrap_or_default());
    let file = read.as_object_mut().ok_or("it is no object")?;
    let services = file.get_mut("services").and_then(Value::as_object_mut).ok_or("it has no services")?;
    for (name, service) in services.iter_mut() {
        let service = service.as_object_mut().ok_or_else(|| format!("`{name}` is no object"))?;
        long_service(service);
    }
    file.insert("name".into(), source.project.as_str().into());
    let networks = file.entry("networks").or_insert_with(|| json!({}));
    networks.as_object_mut().ok_or("its networks are no object")?.entry("default").or_insert(Value::Null);
    for kind in ["networks", "volumes"] {
        for (name, part) in file.get_mut(kind).and_then(Value::as_object_mut).into_iter().flatten() {
            named(part, format!("{}_{name}", source.project));
        }
    }
    Ok(read)
}

/// Networks and volumes have a default name.
fn named(part: &mut Value, name: String) {
    if part.is_null() {
        *part = json!({});
    }
    if let Some(part) = part.as_object_mut() {
        part.entry("name").or_insert_with(|| name.into());
    }
}

fn long_service(service: &mut Map<String, Value>) {
    service.entry("networks").or_insert_with(|| json!({ "default": null }));
    if let Some(words) = service.get("command").and_then(Value::as_str) {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        service.insert("command".into(), words.into());
    }
    if let Some(names) = service.get("networks").and_then(Value::as_array) {
        let named = names.iter().filter_map(|it| Some((it.as_str()?.to_owned(), Value::Null)));
        let named: Map<_, _> = named.collect();
        service.insert("networks".into(), named.into());
    }
    if let Some(lines) = service.get("environment").and_then(Value::as_array) {
        let pair =
            |it: &Value| Some(it.as_str()?.split_once('=')?).map(|(name, value)| (name.to_owned(), value.into()));
        let pairs: Map<String, Value> = lines.iter().filter_map(pair).collect();
        service.insert("environment".into(), pairs.into());
    }
    if let Some(volumes) = service.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.iter_mut().for_each(long_volume);
    }
    if let Some(ports) = service.get_mut("ports").and_then(Value::as_array_mut) {
        ports.iter_mut().for_each(long_port);
    }
}

/// `data:/data`.
fn long_volume(volume: &mut Value) {
    if let Some((source, target)) = volume.as_str().and_then(|it| it.split_once(':')) {
        *volume = json!({ "type": "volume", "source": source, "target": target, "volume": {} });
    }
}

/// `8080:80`, `80`, 80.
fn long_port(port: &mut Value) {
    let text = port.as_str().map(str::to_owned).or_else(|| port.as_u64().map(|it| it.to_string()));
    let Some(text) = text else { return };
    let (host, inside) = text.rsplit_once(':').map_or((None, text.as_str()), |(host, inside)| (Some(host), inside));
    let mut long = json!({ "mode": "ingress", "protocol": "tcp", "target": inside.parse::<u16>().unwrap_or(0) });
    if let Some(host) = host {
        long["published"] = host.into();
    }
    *port = long;
}

/// A port of a model.
pub(super) fn port(port: &Value) -> Option<Port> {
    let host = port["published"].as_str().and_then(|it| it.parse().ok()).filter(|it| *it != 0);
    let protocol = if port["protocol"] == "udp" { Protocol::Udp } else { Protocol::Tcp };
    Some(Port { container: u16::try_from(port["target"].as_u64()?).ok()?, host, protocol })
}

/// Fills `${NAME}`, the one form that tests use.
fn filled(value: &mut Value, of: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => {
            while let Some((before, rest)) = text.split_once("${") {
                let Some((name, after)) = rest.split_once('}') else { return };
                *text = format!("{before}{}{after}", of(name));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| filled(it, of)),
        Value::Object(fields) => fields.values_mut().for_each(|it| filled(it, of)),
        _ => {}
    }
}
