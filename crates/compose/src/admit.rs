//! The normalised model of a stack, checked key by key and written anew.
//!
//! Known keys are copied one by one, so an unknown key is never passed on.

mod bound_files;
mod build;
mod limits;
mod mounts;
mod networks;
mod ports;
mod resources;
mod schema;
mod secret_files;
mod service;

use std::collections::{BTreeMap, BTreeSet};

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{ImageRef, Mount, PolicyRefusal, ProjectName, Protocol};
use serde_json::{Map, Value, json};

pub use self::bound_files::BoundFileError;
use self::schema::{entries, is_empty};
use crate::Rules;
use crate::diagnostics::{Diagnostics, Location, Violation, is_known};

/// A stack that the policy allows, rewritten. Only [`admit`] makes one.
///
/// ```compile_fail
/// # use coracle_compose::AdmittedStack;
/// fn around_the_rules(model: serde_json::Value) -> AdmittedStack {
///     AdmittedStack { model } // the fields are private, and there is no constructor
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AdmittedStack {
    project: ProjectName,
    model: Value,
    images: Vec<StackImage>,
    moved: Vec<ReassignedPort>,
    binds: Vec<(String, Mount)>,
    contexts: Vec<HostPath>,
    gpu: bool,
}

/// What carries labels of ours in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelledPart {
    /// The containers of a service.
    Service,
    /// A network that the stack makes.
    Network,
    /// A volume that the stack makes.
    Volume,
}

/// Where the containers of a service come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackImage {
    /// The service.
    pub service: String,
    /// Its image; `None` when it is built.
    pub image: Option<ImageRef>,
}

/// A published port that does not get the host port it asked for. Which one it gets, the engine says once it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassignedPort {
    /// The service.
    pub service: String,
    /// Port inside.
    pub container: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// The host port that the file asked for.
    pub asked: u16,
}

/// Decides whether what Compose made of a file may be brought up, and writes it as it will be.
///
/// A `$` in the model is a `$`: variables were filled in. Looks at the host paths that the model names.
///
/// # Errors
/// [`PolicyRefusal`] with every broken rule; each message names service and key.
pub fn admit(model: &Value, project: &ProjectName, rules: &Rules<'_>) -> Result<AdmittedStack, PolicyRefusal> {
    let mut admission = Admission {
        model,
        rules,
        diagnostics: Diagnostics::default(),
        images: Vec::new(),
        moved: Vec::new(),
        claimed: BTreeSet::new(),
        binds: Vec::new(),
        contexts: Vec::new(),
        gpu: false,
    };
    let model = admission.file();
    let Admission { diagnostics, images, moved, binds, contexts, gpu, .. } = admission;
    diagnostics.into_result()?;
    Ok(AdmittedStack { project: project.clone(), model, images, moved, binds, contexts, gpu })
}

/// A model on its way. Each part of a file is a method that answers the part as it goes on.
struct Admission<'a> {
    model: &'a Value,
    rules: &'a Rules<'a>,
    diagnostics: Diagnostics,
    images: Vec<StackImage>,
    moved: Vec<ReassignedPort>,
    /// Host ports that services of this stack have got.
    claimed: BTreeSet<(u16, &'static str)>,
    binds: Vec<(String, Mount)>,
    contexts: Vec<HostPath>,
    gpu: bool,
}

impl Admission<'_> {
    fn file(&mut self) -> Value {
        for (key, value) in entries(Some(self.model)) {
            match key {
                "name" | "version" => {}
                "services" | "networks" | "volumes" | "configs" | "secrets" => self.is_named(key, value),
                key if is_known(key) && is_empty(value) => {}
                key => self.refuse(Location::FILE, Violation::new(key, ""), "is not allowed in a stack"),
            }
        }
        let mut services = Map::new();
        let mut containers = 0;
        for (name, service) in entries(self.model.get("services")) {
            if !is_host_name(name) {
                self.refuse(Location::FILE, Violation::new("services", name), "has a service with an odd name");
            }
            containers += self.replicas(service).max(1);
            services.insert(name.to_owned(), self.service(name, service));
        }
        if services.is_empty() {
            self.refuse(Location::FILE, Violation::new("services", ""), "are missing");
        }
        if containers > self.rules.max_services as u64 {
            let (value, why) = (containers.to_string(), format!("would be more than {}", self.rules.max_services));
            let violation = Violation::new("services", &value).unless("compose.max_services");
            self.refuse(Location::FILE, violation, &why);
        }
        self.hold_in_place(&mut services);
        let mut file = Map::from_iter([("services".to_owned(), Value::Object(services))]);
        for (key, part) in [
            ("networks", self.networks()),
            ("volumes", self.volumes()),
            ("configs", self.configs()),
            ("secrets", self.secrets()),
        ] {
            if !part.is_empty() {
                file.insert(key.into(), Value::Object(part));
            }
        }
        Value::Object(file)
    }

    fn refuse(&mut self, location: Location<'_>, violation: Violation<'_>, why: &str) {
        self.diagnostics.refuse(location, violation, why);
    }

    /// Parts of a file are mappings of names to mappings.
    fn is_named(&mut self, key: &str, part: &Value) {
        if !part.is_object() && !part.is_null() {
            self.refuse(Location::FILE, Violation::new(key, ""), schema::Shape::Mapping.expectation());
        }
        for (name, _) in entries(Some(part)).filter(|(_, it)| !it.is_object() && !it.is_null()) {
            self.refuse(Location::FILE, Violation::new(key, name), "has an entry that is no mapping");
        }
    }

    fn has_service(&self, name: &str) -> bool {
        entries(self.model.get("services")).any(|(it, _)| it == name)
    }

    /// Labels of the file's own (2.4).
    fn labels(&mut self, location: Location<'_>, value: &Value) -> Map<String, Value> {
        let Some(Value::Object(labels)) = schema::Shape::Pairs.check(value) else {
            self.refuse(location, Violation::new("labels", ""), schema::Shape::Pairs.expectation());
            return Map::new();
        };
        let reserved = [format!("{}.", self.rules.label_namespace), "com.docker.".into(), "io.podman.".into()];
        for (key, value) in &labels {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._/-".contains(c);
            let value = value.as_str().unwrap_or_default();
            let why = if !(1..=128).contains(&key.len()) || !key.chars().all(plain) {
                "has a key beyond lower-case letters, digits, `.`, `_`, `/` and `-`"
            } else if reserved.iter().any(|it| key.starts_with(it.as_str())) {
                "has a reserved key"
            } else if value.len() > 4096 || value.chars().any(char::is_control) {
                "has a value that is not at most 4 KiB of printable text"
            } else {
                continue;
            };
            self.refuse(location, Violation::new("labels", key), why);
        }
        if labels.len() > 50 {
            self.refuse(location, Violation::new("labels", ""), "are more than 50");
        }
        labels
    }
}

/// A name that a hosts file and a resolver take.
fn is_host_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

impl AdmittedStack {
    /// Its project.
    #[must_use]
    pub fn project(&self) -> &ProjectName {
        &self.project
    }

    /// The model as it will be brought up.
    #[must_use]
    pub fn model(&self) -> &Value {
        &self.model
    }

    /// Services and their images, by name.
    #[must_use]
    pub fn services(&self) -> &[StackImage] {
        &self.images
    }

    /// The images that have to be there before it is brought up, each once. Nothing is pulled by Compose.
    #[must_use]
    pub fn images(&self) -> Vec<ImageRef> {
        let named: BTreeSet<_> = self.images.iter().filter_map(|it| it.image.clone()).collect();
        named.into_iter().collect()
    }

    /// Whether one of its services is built.
    #[must_use]
    pub fn builds(&self) -> bool {
        self.images.iter().any(|it| it.image.is_none())
    }

    /// Whether one of its services gets a GPU, which the engine then has to have (4.14).
    #[must_use]
    pub fn wants_gpu(&self) -> bool {
        self.gpu
    }

    /// Ports that do not get the host port they asked for.
    #[must_use]
    pub fn moved_ports(&self) -> &[ReassignedPort] {
        &self.moved
    }

    /// Host paths that services see, held open, each with its service: what protects them and files of configs and
    /// secrets among them.
    #[must_use]
    pub fn binds(&self) -> &[(String, Mount)] {
        &self.binds
    }

    /// Directories of the host that images are built from, held open. Compose reads them by their paths later.
    #[must_use]
    pub fn build_contexts(&self) -> &[HostPath] {
        &self.contexts
    }

    /// The network for a container that is to find the services by name, as the engine calls it: the default one if a
    /// service is on it, else the one with the most services. `None` when no service has a network.
    #[must_use]
    pub fn default_network(&self) -> Option<String> {
        let mut members: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, service) in entries(self.model.get("services")) {
            entries(service.get("networks")).for_each(|(name, _)| *members.entry(name).or_default() += 1);
        }
        let most = members.iter().rev().max_by_key(|(_, count)| **count).map(|(name, _)| *name);
        let chosen = if members.contains_key("default") { "default" } else { most? };
        let external = self.model["networks"][chosen]["name"].as_str();
        Some(external.map_or_else(|| format!("{}_{chosen}", self.project), str::to_owned))
    }

    /// Puts labels of ours on every service, and on every network and volume that the stack makes. They win over those
    /// of the file.
    #[must_use]
    pub fn labelled(mut self, mut labels: impl FnMut(LabelledPart, &str) -> BTreeMap<String, String>) -> Self {
        let kinds = [
            ("services", LabelledPart::Service),
            ("networks", LabelledPart::Network),
            ("volumes", LabelledPart::Volume),
        ];
        for (part, kind) in kinds {
            for (name, entry) in self.model.get_mut(part).and_then(Value::as_object_mut).into_iter().flatten() {
                if entry.get("external") == Some(&json!(true)) {
                    continue;
                }
                let ours = labels(kind, name);
                let entry = entry.as_object_mut().expect("admission writes mappings");
                let all = entry.entry("labels").or_insert_with(|| json!({}));
                all.as_object_mut().expect("as above").extend(ours.into_iter().map(|(key, value)| (key, value.into())));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;
