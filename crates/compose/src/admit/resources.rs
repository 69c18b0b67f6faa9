//! Volumes, configs and secrets of a file.

use serde_json::{Map, Value, json};

use super::Admission;
use super::schema::{entries, is_empty};
use crate::diagnostics::{Location, Violation};

impl Admission<'_> {
    pub(super) fn volumes(&mut self) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, volume) in entries(self.model.get("volumes")) {
            let volume = self.volume(name, volume);
            out.insert(name.to_owned(), volume);
        }
        out
    }

    fn volume(&mut self, name: &str, volume: &Value) -> Value {
        let location = Location::part("volume", name);
        if volume.get("external") == Some(&Value::Bool(true)) {
            let engine_name = volume.get("name").and_then(Value::as_str).unwrap_or(name);
            if !self.rules.our_volumes.contains(engine_name) {
                self.refuse(location, Violation::new("external", engine_name), "is not a volume of ours");
            }
            return json!({ "external": true, "name": engine_name });
        }
        let mut out = Map::new();
        for (key, value) in entries(Some(volume)) {
            match key {
                "name" | "external" => {}
                "labels" => drop(out.insert("labels".into(), Value::Object(self.labels(location, value)))),
                "driver" if is_empty(value) || value == "local" => {}
                _ if is_empty(value) => {}
                key => self.refuse(location, Violation::new(key, &super::service::excerpt(value)), "is not allowed"),
            }
        }
        Value::Object(out)
    }

    /// Configs, and secrets that come from a variable: both are texts that Compose puts into containers.
    pub(super) fn configs(&mut self) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, config) in entries(self.model.get("configs")) {
            let config = self.stored(Location::part("config", name), config);
            out.insert(name.to_owned(), config);
        }
        for (name, secret) in entries(self.model.get("secrets")).filter(|(_, it)| is_text(it)) {
            let location = Location::part("secret", name);
            let secret = self.stored(location, secret);
            if out.insert(as_config(name), secret).is_some() {
                self.refuse(location, Violation::new("secrets", name), "needs the name of a config for itself");
            }
        }
        out
    }

    pub(super) fn secrets(&mut self) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, secret) in entries(self.model.get("secrets")).filter(|(_, it)| !is_text(it)) {
            let secret = self.stored(Location::part("secret", name), secret);
            out.insert(name.to_owned(), secret);
        }
        out
    }

    /// One of `file`, `content` and `environment`; a variable's value is written out, since nothing is filled in later.
    fn stored(&mut self, location: Location<'_>, entry: &Value) -> Value {
        let rule = if location.is("config") { "configs" } else { "secrets" };
        let mut out = Map::new();
        for (key, value) in entries(Some(entry)) {
            let text = value.as_str().unwrap_or_default();
            let violation = Violation::within(rule, key, text);
            match key {
                "name" | "labels" => {}
                "file" => {
                    if let Some(file) = self.host_file(location, violation) {
                        out.insert("file".into(), file.real().display().to_string().into());
                    }
                }
                "content" => drop(out.insert("content".into(), text.into())),
                "environment" => match self.rules.env.get(text) {
                    Some(value) => drop(out.insert("content".into(), value.as_str().into())),
                    None => self.refuse(location, violation, "is a name that `env` of this call does not have"),
                },
                _ if is_empty(value) => {}
                _ => self.refuse(location, Violation::within(rule, key, ""), "is not allowed"),
            }
        }
        Value::Object(out)
    }
}

/// Compose takes secrets as texts only from its own environment, which holds nothing of a call.
pub(super) fn is_text(secret: &Value) -> bool {
    secret.get("environment").is_some_and(|it| !is_empty(it)) || secret.get("content").is_some()
}

/// A secret's name among configs.
pub(super) fn as_config(secret: &str) -> String {
    format!("{SECRET}{secret}")
}

/// The secret that a config stands for.
pub(super) fn secret_of_config(config: &str) -> Option<&str> {
    config.strip_prefix(SECRET)
}

const SECRET: &str = "secret.";
