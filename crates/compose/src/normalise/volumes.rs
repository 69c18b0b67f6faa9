//! Expands mounts of a service: `SOURCE:TARGET:OPTIONS`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ModelError, values};

pub(super) fn write_out(value: Value, dir: &Path) -> Result<Value, ModelError> {
    let Value::Array(items) = value else { return Ok(value) };
    let written = items.into_iter().map(|item| match item {
        Value::String(text) => short(&text, dir).map_err(|why| format!("volumes: {why}")),
        Value::Object(entry) => long(entry, dir).map_err(|why| format!("volumes: {why}")),
        other => Ok(other),
    });
    Ok(Value::Array(written.collect::<Result<_, _>>()?))
}

fn long(mut entry: Map<String, Value>, dir: &Path) -> Result<Value, ModelError> {
    if entry.get("type").is_some_and(|it| it == "bind")
        && let Some(source) = entry.get("source").and_then(Value::as_str)
    {
        let source = values::absolute(dir, source)?;
        entry.insert("source".into(), source.into());
    }
    if let Some(flag) = entry.remove("read_only") {
        entry.insert("read_only".into(), values::flag(flag));
    }
    if let Some(Value::Object(volume)) = entry.get_mut("volume")
        && let Some(flag) = volume.remove("nocopy")
    {
        volume.insert("nocopy".into(), values::flag(flag));
    }
    if let Some(Value::Object(tmpfs)) = entry.get_mut("tmpfs")
        && let Some(size) = tmpfs.remove("size")
    {
        tmpfs.insert("size".into(), values::size(size)?);
    }
    Ok(Value::Object(entry))
}

fn short(text: &str, dir: &Path) -> Result<Value, ModelError> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts[..] {
        [target] => (None, target, ""),
        [source, target] => (Some(source), target, ""),
        [source, target, options] => (Some(source), target, options),
        _ => return Err(format!("`{text}` is no mount")),
    };
    if target.is_empty() || source.is_some_and(str::is_empty) {
        return Err(format!("`{text}` is no mount"));
    }
    let is_path = |it: &str| it.starts_with(['.', '/', '~']);
    let mut out = Map::from_iter([("target".to_owned(), Value::from(target))]);
    let mut special = Map::new();
    let kind = match source {
        Some(path) if is_path(path) => {
            out.insert("source".into(), values::absolute(dir, path)?.into());
            special.insert("create_host_path".into(), true.into());
            "bind"
        }
        source => {
            out.extend(source.map(|it| ("source".to_owned(), it.into())));
            "volume"
        }
    };
    for option in options.split(',').filter(|it| !it.is_empty()) {
        match option {
            "ro" => drop(out.insert("read_only".into(), true.into())),
            "rw" => {}
            "z" | "Z" => drop(special.insert("selinux".into(), option.into())),
            "nocopy" => drop(special.insert("nocopy".into(), true.into())),
            "cached" | "delegated" | "consistent" => drop(out.insert("consistency".into(), option.into())),
            "private" | "rprivate" | "shared" | "rshared" | "slave" | "rslave" => {
                special.insert("propagation".into(), option.into());
            }
            other => return Err(format!("`{text}` has the option `{other}`, which is not read")),
        }
    }
    out.insert("type".into(), kind.into());
    out.insert(kind.into(), json!(special));
    Ok(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_expanded() {
        let of = |text: &str| short(text, Path::new("/w")).unwrap();
        assert_eq!(of("data:/d"), json!({ "type": "volume", "source": "data", "target": "/d", "volume": {} }));
        assert_eq!(of("/anon"), json!({ "type": "volume", "target": "/anon", "volume": {} }));
        assert_eq!(
            of("./x:/y:ro,z"),
            json!({ "type": "bind", "source": "/w/x", "target": "/y", "read_only": true,
                "bind": { "create_host_path": true, "selinux": "z" } })
        );
        for bad in ["a:b:c:d", ":/x", "a:", "~/x:/y", "a:/b:wonderful"] {
            assert!(short(bad, Path::new("/w")).is_err(), "{bad}");
        }
    }
}
