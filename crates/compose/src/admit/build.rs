//! Images that a stack builds, where the person allows it.

use std::path::Path;

use coracle_runtime::host::fs::HostPath;
use serde_json::{Map, Value};

use super::Admission;
use super::schema::{Shape, entries, is_empty};
use super::service::excerpt;
use crate::diagnostics::{Location, Violation};

/// Keys that go on as they are.
const COPIED: &[(&str, Shape)] = &[
    ("args", Shape::Pairs),
    ("dockerfile_inline", Shape::Text),
    ("no_cache", Shape::Flag),
    ("platforms", Shape::Words),
    ("pull", Shape::Flag),
    ("target", Shape::Text),
];

impl Admission<'_> {
    pub(super) fn build(&mut self, location: Location<'_>, build: &Value) -> Value {
        if !self.rules.allow_build {
            let violation = Violation::new("build", "").unless("compose.allow_build");
            self.refuse(location, violation, "is not granted: name an `image`");
        }
        let mut out = Map::new();
        for (key, value) in entries(Some(build)) {
            if let Some((_, shape)) = COPIED.iter().find(|(it, _)| *it == key) {
                let copied = self.copied(location, Violation::within("build", key, ""), value, *shape);
                out.extend(copied.map(|it| (key.to_owned(), it)));
                continue;
            }
            let part = match key {
                "context" => self.build_path(location, "build.context", None, value),
                "dockerfile" => {
                    let context = build.get("context").and_then(Value::as_str).map(Path::new);
                    self.build_path(location, "build.dockerfile", context, value)
                }
                "additional_contexts" => Some(self.contexts(location, value)),
                "extra_hosts" => self.extra_hosts(location, "build.extra_hosts", value),
                "labels" => Some(Value::Object(self.labels(location, value))),
                "shm_size" => {
                    Some(self.within_memory(location, Violation::within("build", "build.shm_size", ""), value))
                }
                "network" if value == "default" || value == "none" => Some(value.clone()),
                _ if is_empty(value) => None,
                key => {
                    let (key, value) = (format!("build.{key}"), excerpt(value));
                    self.refuse(location, Violation::within("build", &key, &value), "is not allowed in a stack");
                    None
                }
            };
            out.extend(part.map(|it| (key.to_owned(), it)));
        }
        Value::Object(out)
    }

    fn contexts(&mut self, location: Location<'_>, value: &Value) -> Value {
        let mut out = Map::new();
        for (name, context) in entries(Some(value)) {
            let service = context.as_str().and_then(|it| it.strip_prefix("service:"));
            let part = match service {
                Some(service) if self.has_service(service) => Some(context.clone()),
                _ => self.build_path(location, "build.additional_contexts", None, context),
            };
            out.extend(part.map(|it| (name.to_owned(), it)));
        }
        Value::Object(out)
    }

    /// A Dockerfile that is the usual one of its context need not be there: it may stand in the file itself.
    fn build_path(&mut self, location: Location<'_>, key: &str, from: Option<&Path>, value: &Value) -> Option<Value> {
        let text = value.as_str().unwrap_or_default();
        if text == "Dockerfile" && from.is_some_and(|it| !it.join(text).exists()) {
            return Some(value.clone());
        }
        let path = from.map_or_else(|| text.into(), |it| it.join(text));
        let violation = Violation::within("build", key, text);
        if !path.is_absolute() {
            self.refuse(location, violation, "is not a path of a file or directory on this host");
            return None;
        }
        let opened = self.diagnostics.host_path(location, violation, &path, self.rules.policy)?;
        let real = opened.real().display().to_string();
        self.contexts.extend(Some(opened).filter(HostPath::is_dir));
        Some(real.into())
    }
}
