//! The output of Compose, and volumes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{array, one};
use crate::cli::Dialect;
use crate::{Result, Volume};

/// A normalised model. Compose doubles each `$` in it, so that it could read it again; here a `$` is a `$`.
pub(in crate::cli) fn stack_model(json: &[u8]) -> Result<Value> {
    Ok(texts(&one("compose config", json)?, &|it| it.replace("$$", "$")))
}

/// A model as Compose reads it: it would take a `$` for the begin of a variable.
pub(in crate::cli) fn escaped(model: &Value) -> Value {
    texts(model, &|it| it.replace('$', "$$"))
}

/// The value with all its texts changed; field names stay.
fn texts(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(items) => items.iter().map(|it| texts(it, change)).collect(),
        Value::Object(fields) => fields.iter().map(|(name, it)| (name.clone(), texts(it, change))).collect(),
        other => other.clone(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeJson {
    name: String,
    #[serde(default)]
    created_at: String,
    labels: Option<BTreeMap<String, String>>,
}

impl VolumeJson {
    fn read(self) -> Volume {
        Volume { name: self.name, labels: self.labels.unwrap_or_default(), created: self.created_at }
    }
}

pub(in crate::cli) fn volumes(json: &[u8]) -> Result<Vec<Volume>> {
    Ok(array::<VolumeJson>("volume inspect", json)?.into_iter().map(VolumeJson::read).collect())
}

/// Volumes of a list that the API gave.
pub(in crate::cli) fn listed_volumes(dialect: Dialect, json: &[u8]) -> Result<Vec<Volume>> {
    #[derive(Deserialize)]
    struct DockerList {
        #[serde(rename = "Volumes")]
        volumes: Option<Vec<VolumeJson>>,
    }
    if dialect == Dialect::Podman {
        return volumes(json);
    }
    let listed = one::<DockerList>("volume ls", json)?.volumes.unwrap_or_default();
    Ok(listed.into_iter().map(VolumeJson::read).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dollar_stays_a_dollar_on_the_way_to_compose_and_back() {
        let printed = br#"{"services":{"a":{"command":["echo","$${HOME} $$X why"]}}}"#;
        let model = stack_model(printed).unwrap();
        assert_eq!(model["services"]["a"]["command"][1], "${HOME} $X why");
        assert_eq!(escaped(&model), json!({ "services": { "a": { "command": ["echo", "$${HOME} $$X why"] } } }));
    }
}
