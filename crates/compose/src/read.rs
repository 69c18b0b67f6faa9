//! Parses the text of a Compose file, and reads the files that it names.
//!
//! Compose opens files and starts programs while it *reads*, so it never gets the text: keys that cause this are
//! refused or evaluated here.

mod env_file;
mod error;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_runtime::Policy;
use coracle_types::ProjectName;
use serde_json::{Map, Value};

pub use self::error::ReadError;
use crate::diagnostics::{Diagnostics, Location, Violation, is_known, short};
use crate::normalise::{Context, normalise};

/// A parsed Compose file: aliases, merges, and files of variables and labels are expanded, and paths of files are
/// resolved. It still contains `${NAME}`.
#[derive(Clone, Debug)]
pub struct ComposeFile {
    pub(crate) file: Map<String, Value>,
    dir: PathBuf,
}

/// Reads the text of a Compose file whose relative paths start from `dir`.
///
/// At most 1 MiB, 50 levels, 100 aliases and 10,000 nodes after them; no tags, no duplicate keys. Opens the files that
/// the text names, resolves their links once, and reads those that Compose would read.
///
/// # Errors
/// [`ReadError::Invalid`] for a file that is not understood; [`ReadError::Refused`] with every violation.
pub fn read(text: &str, dir: &Path, policy: &Policy) -> Result<ComposeFile, ReadError> {
    let Value::Object(mut file) = yaml::parse(text)? else {
        return Err(yaml::invalid("the file is no mapping of keys to values".into(), None));
    };
    let no_services = file.get("services").and_then(Value::as_object).is_none_or(Map::is_empty);
    // A file that includes another need not have services, and violates a rule.
    if no_services && !file.contains_key("include") {
        return Err(yaml::invalid("the file has no `services`".into(), None));
    }
    let mut reader = ComposeReader { dir, policy, diagnostics: Diagnostics::default(), invalid: None };
    reader.file(&mut file);
    reader.diagnostics.into_result()?;
    if let Some(message) = reader.invalid {
        return Err(yaml::invalid(message, None));
    }
    Ok(ComposeFile { file, dir: dir.to_owned() })
}

impl ComposeFile {
    /// Returns the long form of the file, as `docker compose config` prints it: `${NAME}` is filled from `env` alone
    /// and is empty without a value; short forms are expanded, and services that extend others are completed.
    ///
    /// # Errors
    /// [`ReadError::Invalid`] for a file that is not understood.
    pub fn normalised(&self, project: &ProjectName, env: &BTreeMap<String, String>) -> Result<Value, ReadError> {
        let context = Context { project, dir: &self.dir, env };
        normalise(self.file.clone(), context).map_err(|message| yaml::invalid(message, None))
    }
}

/// Keys on which Compose acts while it reads, with the reason for their refusal.
const NEVER: &[(&str, &str)] = &[
    ("provider", "starts a program of the host"),
    ("use_api_socket", "gives the engine's socket away"),
    ("credential_spec", "reads a file or the registry of the host"),
    // These act later, and older versions of Compose would report other errors.
    ("models", "starts a program of the host"),
    ("post_start", "runs commands past the limits of the service"),
    ("pre_stop", "runs commands past the limits of the service"),
];

/// Whether a key is removed wherever it occurs.
fn is_dropped(key: &str) -> bool {
    key.starts_with("x-") || key == "develop"
}

struct ComposeReader<'a> {
    dir: &'a Path,
    policy: &'a Policy,
    diagnostics: Diagnostics,
    /// The first error that violates no rule.
    invalid: Option<String>,
}

impl ComposeReader<'_> {
    fn file(&mut self, file: &mut Map<String, Value>) {
        file.retain(|key, _| !is_dropped(key) && key != "version" && key != "name");
        for (key, value) in &mut *file {
            match key.as_str() {
                "services" | "networks" | "volumes" => {}
                "configs" => self.stored("config", value),
                "secrets" => self.stored("secret", value),
                "include" => self.refuse(Location::FILE, Violation::new(key, ""), "makes Compose read other files"),
                key if is_known(key) => {
                    self.refuse(Location::FILE, Violation::new(key, ""), "is not allowed in a stack");
                }
                key => self.refuse(Location::FILE, Violation::new(key, ""), "is no key that is known here"),
            }
        }
        for (name, service) in file.get_mut("services").and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(service) = service.as_object_mut() {
                self.service(Location::service(name), service);
            }
        }
    }

    fn service(&mut self, location: Location<'_>, service: &mut Map<String, Value>) {
        service.retain(|key, _| !is_dropped(key));
        for (key, _) in service.iter().filter(|(key, _)| !is_service_key(key)) {
            // A newer Compose may act on an unknown key while it reads.
            self.refuse(location, Violation::new(key, ""), "is no key that is known here");
        }
        for (key, why) in NEVER.iter().filter(|(key, _)| service.contains_key(*key)) {
            self.refuse(location, Violation::new(key, ""), why);
        }
        if let Some(file) = service.get("extends").and_then(|it| it.get("file")) {
            let file = file.as_str().unwrap_or_default();
            self.refuse(location, Violation::within("extends", "extends.file", file), "makes Compose read other files");
        }
        if let Some(Value::Array(volumes)) = service.get_mut("volumes") {
            volumes.iter_mut().for_each(|volume| self.home_of(location, volume));
        }
        self.write_out(location, service, "env_file", "environment");
        self.write_out(location, service, "label_file", "labels");
        if let Some(build) = service.get_mut("build") {
            self.build(location, build);
        }
    }

    /// Expands the user's home directory in a mount: Compose, which runs without `HOME`, would take `~` for the
    /// name of a directory beside the file.
    fn home_of(&mut self, location: Location<'_>, volume: &mut Value) {
        let text = match volume {
            Value::Object(entry) if entry.get("type").is_none_or(|kind| kind == "bind") => entry.get_mut("source"),
            Value::String(_) => Some(volume),
            _ => None,
        };
        let Some(Value::String(text)) = text.filter(|text| text.as_str().is_some_and(|text| text.starts_with('~')))
        else {
            return;
        };
        let end = text.find(':').unwrap_or(text.len());
        match self.absolute(&text[..end]).as_deref().and_then(Path::to_str) {
            Some(path) => *text = format!("{}{}", path.replace('$', "$$"), &text[end..]),
            None => {
                let violation = Violation::new("volumes", text);
                self.diagnostics.refuse(location, violation, "is not a path of a file or directory on this host");
            }
        }
    }

    /// Reads files of variables and adds their values below those in the service.
    fn write_out(&mut self, location: Location<'_>, service: &mut Map<String, Value>, key: &str, into: &str) {
        let Some(files) = service.remove(key) else { return };
        let mut values = BTreeMap::new();
        for VariableFile { path, required, format } in self.listed(location, key, &files) {
            if !required && self.absolute(&path).is_some_and(|it| !it.exists()) {
                continue;
            }
            let Some(file) = self.path(location, Violation::new(key, &path)) else { continue };
            match env_file::read(&file, format.as_deref()) {
                Ok(pairs) => values.extend(pairs),
                Err(why) => self.cannot_understand(location, key, &format!("{}: {why}", short(&path))),
            }
        }
        if values.is_empty() {
            return;
        }
        let Some(mut entries) = pairs(service.get(into)) else {
            return self.cannot_understand(location, into, "is neither a mapping nor a list of `NAME=value`");
        };
        for (name, value) in values {
            entries.entry(name).or_insert(Value::String(value));
        }
        service.insert(into.to_owned(), Value::Object(entries));
    }

    /// Parses the paths of `env_file` and similar keys: one, several, or `{path, required, format}`.
    fn listed(&mut self, location: Location<'_>, key: &str, files: &Value) -> Vec<VariableFile> {
        let one = |it: &Value| match it {
            Value::String(path) => Some(VariableFile { path: path.clone(), required: true, format: None }),
            Value::Object(entry) => {
                let plain = entry.keys().all(|it| matches!(it.as_str(), "path" | "required" | "format"));
                let path = entry.get("path").and_then(Value::as_str).filter(|_| plain)?.to_owned();
                let required = entry.get("required").is_none_or(|it| it != &Value::Bool(false));
                let format = entry.get("format").map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
                Some(VariableFile { path, required, format })
            }
            _ => None,
        };
        let all: Option<Vec<_>> = match files {
            Value::Null => Some(Vec::new()),
            Value::Array(list) => list.iter().map(one).collect(),
            single => one(single).map(|it| vec![it]),
        };
        all.unwrap_or_else(|| {
            self.cannot_understand(location, key, "is not a list of paths");
            Vec::new()
        })
    }

    fn build(&mut self, location: Location<'_>, build: &mut Value) {
        if let Value::String(context) = build {
            *build = serde_json::json!({ "context": context });
        }
        let Some(build) = build.as_object_mut() else { return };
        let context = build.get("context").and_then(Value::as_str).unwrap_or(".").to_owned();
        let Some(real) = self.path(location, Violation::within("build", "build.context", &context)) else { return };
        build.insert("context".into(), real.real().display().to_string().into());
        self.dockerfile(location, build, real.real());
        let Some(mut contexts) = build.get("additional_contexts").and_then(|it| pairs(Some(it))) else { return };
        for (_, context) in &mut contexts {
            let text = context.as_str().unwrap_or_default().to_owned();
            if !text.starts_with("service:")
                && let Some(opened) =
                    self.path(location, Violation::within("build", "build.additional_contexts", &text))
            {
                *context = opened.real().display().to_string().into();
            }
        }
        build.insert("additional_contexts".into(), Value::Object(contexts));
    }

    fn dockerfile(&mut self, location: Location<'_>, build: &mut Map<String, Value>, context: &Path) {
        if let Some(given) = build.get("dockerfile").and_then(Value::as_str).map(str::to_owned) {
            let violation = Violation::within("build", "build.dockerfile", &given);
            if let Some(opened) = self.path_from(context, location, violation) {
                build.insert("dockerfile".into(), opened.real().display().to_string().into());
            }
            return;
        }
        // The default Dockerfile must not be a link out either.
        for path in ["Dockerfile", "dockerfile"].map(|it| context.join(it)).iter().filter(|it| it.exists()) {
            let violation = Violation::within("build", "build.dockerfile", "Dockerfile");
            self.diagnostics.host_path(location, violation, path, self.policy);
        }
    }

    /// Files of configs and secrets, which the engine binds.
    fn stored(&mut self, kind: &'static str, entries: &mut Value) {
        let rule = if kind == "config" { "configs" } else { "secrets" };
        for (name, entry) in entries.as_object_mut().into_iter().flatten() {
            let Some(file) = entry.get("file").and_then(Value::as_str).map(str::to_owned) else { continue };
            if let Some(opened) = self.path(Location::part(kind, name), Violation::within(rule, "file", &file)) {
                entry["file"] = opened.real().display().to_string().into();
            }
        }
    }

    /// Opens a host path in the file: without variables or another's home, and not remote.
    fn path(&mut self, location: Location<'_>, violation: Violation<'_>) -> Option<HostPath> {
        self.path_from(self.dir, location, violation)
    }

    fn path_from(&mut self, dir: &Path, location: Location<'_>, violation: Violation<'_>) -> Option<HostPath> {
        if violation.value.contains('$') {
            self.refuse(location, violation, "has a `$`: name the path itself");
            return None;
        }
        let Some(path) = absolute(dir, &self.policy.home, violation.value) else {
            self.refuse(location, violation, "is not a path of a file or directory on this host");
            return None;
        };
        let opened = self.diagnostics.host_path(location, violation, &path, self.policy)?;
        if opened.real().to_str().is_none_or(|it| it.contains('$')) {
            self.refuse(location, violation, "leads to a path with a `$`");
            return None;
        }
        Some(opened)
    }

    fn absolute(&self, path: &str) -> Option<PathBuf> {
        absolute(self.dir, &self.policy.home, path)
    }

    /// Records an error that violates no rule; the first is reported.
    fn cannot_understand(&mut self, location: Location<'_>, key: &str, why: &str) {
        self.invalid.get_or_insert_with(|| format!("{} {why}", location.describe(key)));
    }

    fn refuse(&mut self, location: Location<'_>, violation: Violation<'_>, why: &str) {
        self.diagnostics.refuse(location, violation, why);
    }
}

/// A file of variables.
struct VariableFile {
    path: String,
    required: bool,
    format: Option<String>,
}

/// Resolves a path from a directory or, after `~`, from the user's home. None for a path that some program interprets
/// differently: a URL, the home of another user, an `@`.
fn absolute(dir: &Path, home: &Path, path: &str) -> Option<PathBuf> {
    if let Some(below) = path.strip_prefix('~').filter(|below| below.is_empty() || below.starts_with('/')) {
        let below = below.trim_start_matches('/');
        return home.is_absolute().then(|| if below.is_empty() { home.to_owned() } else { home.join(below) });
    }
    let elsewhere = path.is_empty()
        || path.starts_with('~')
        || path.contains("://")
        || ["git@", "github.com/", "oci-layout:", "target:"].iter().any(|it| path.starts_with(it));
    (!elsewhere).then(|| dir.join(path))
}

/// Whether a key of a service is known, allowed or not.
fn is_service_key(key: &str) -> bool {
    is_known(key)
        || matches!(
            key,
            "attach" | "logging" | "mem_reservation" | "memswap_limit" | "profiles" | "pull_policy" | "restart"
        )
}

/// Returns a mapping, or a list of `NAME=value`, as a mapping.
fn pairs(value: Option<&Value>) -> Option<Map<String, Value>> {
    match value {
        None | Some(Value::Null) => Some(Map::new()),
        Some(Value::Object(entries)) => Some(entries.clone()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|it| {
                let text = it.as_str()?;
                let (name, value) = text.split_once('=').map_or((text, Value::Null), |(name, it)| (name, it.into()));
                Some((name.to_owned(), value))
            })
            .collect(),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
