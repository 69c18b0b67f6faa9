//! Volumes, configs and secrets of a file.

use coracle_runtime::stack_model::{StoredFile, Volume};
use serde_json::{Map, Value};

use super::Admission;
use super::keys::Keys;
use crate::diagnostics::{Location, Violation};

impl Admission<'_> {
    pub(super) fn volume(&mut self, name: &str, file: Map<String, Value>) -> Volume {
        let mut keys = Keys::new(Location::part("volume", name), file);
        let external: bool = self.take(&mut keys, "external");
        let engine_name: Option<String> = self.take(&mut keys, "name");
        if external {
            let engine_name = engine_name.unwrap_or_else(|| name.to_owned());
            if !self.rules.our_volumes.contains(&engine_name) {
                self.refuse(keys.location, Violation::new("external", &engine_name), "is not a volume of ours");
            }
            return Volume { external, name: Some(engine_name), ..Volume::default() };
        }
        self.default_driver(&mut keys, "local");
        let labels = self.labels(&mut keys);
        self.refuse_rest(keys, "is not allowed");
        Volume { external, name: None, labels }
    }

    /// Reads one of `file`, `content` and `environment`. The value of a variable is written into the model, which has
    /// no variables.
    pub(super) fn stored(&mut self, kind: &'static str, name: &str, file: Map<String, Value>) -> Option<StoredFile> {
        let rule = if kind == "config" { "configs" } else { "secrets" };
        // An empty text is valid.
        let content = file.get("content").and_then(Value::as_str).map(str::to_owned);
        let mut keys = Keys::within(Location::part(kind, name), rule, file);
        keys.ignore(&["name", "labels", "content"]);
        let path: Option<String> = self.take(&mut keys, "file");
        let variable: Option<String> = self.take(&mut keys, "environment");
        let location = keys.location;
        self.refuse_rest(keys, "is not allowed");
        match (path, content, variable) {
            (Some(path), None, None) => {
                let file = self.host_file(location, Violation::within(rule, "file", &path))?;
                Some(StoredFile::File(file.real().to_owned()))
            }
            (None, Some(content), None) => Some(StoredFile::Content(content)),
            (None, None, Some(variable)) => {
                let value = self.rules.env.get(&variable).cloned().map(StoredFile::Content);
                if value.is_none() {
                    let violation = Violation::within(rule, "environment", &variable);
                    self.refuse(location, violation, "is a name that `env` of this call does not have");
                }
                value
            }
            _ => {
                self.refuse(location, Violation::new(rule, ""), "need one of `file`, `content` and `environment`");
                None
            }
        }
    }
}

/// The name of the config that replaces a secret: Compose takes secrets as texts only from its own environment, which
/// contains nothing of a call.
pub(super) fn as_config(secret: &str) -> String {
    format!("{SECRET}{secret}")
}

/// The secret that a config replaces.
pub(super) fn secret_of_config(config: &str) -> Option<&str> {
    config.strip_prefix(SECRET)
}

const SECRET: &str = "secret.";
