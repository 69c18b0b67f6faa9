//! Checks the long form of a file key by key, and builds its model.
//!
//! Known keys are read one by one, so an unknown key is refused and never passed on.

mod bound_files;
mod build;
mod keys;
mod limits;
mod mounts;
mod networks;
mod ports;
mod resources;
mod secret_files;
mod service;

use std::collections::{BTreeMap, BTreeSet};

use coracle_host::fs::HostPath;
use coracle_runtime::stack_model::{StackModel, StoredFile};
use coracle_runtime::{Mount, PolicyRefusal, Protocol};
use coracle_types::{ImageRef, ProjectName};
use serde_json::{Map, Value};

pub use self::bound_files::BoundFileError;
use self::keys::Keys;
use self::resources::as_config;
use crate::diagnostics::{Diagnostics, Location, Violation};
use crate::{ComposeFile, ReadError, Rules};

/// A stack that the policy allows, rewritten. Only [`admit`] creates one.
///
/// ```compile_fail
/// # use coracle_compose::AdmittedStack;
/// fn around_the_rules(model: coracle_runtime::stack_model::StackModel) -> AdmittedStack {
///     AdmittedStack { model } // the fields are private, and there is no constructor
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AdmittedStack {
    project: ProjectName,
    model: StackModel,
    images: Vec<StackImage>,
    moved: Vec<ReassignedPort>,
    binds: Vec<(String, Mount)>,
    contexts: Vec<HostPath>,
    gpu: bool,
}

/// Parts of a stack that get labels of Coracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelledPart {
    /// The containers of a service.
    Service,
    /// A network that the stack creates.
    Network,
    /// A volume that the stack creates.
    Volume,
}

/// The source of a service's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackImage {
    /// The service.
    pub service: String,
    /// Its image; `None` if it is built.
    pub image: Option<ImageRef>,
}

/// A published port that does not get the requested host port. The engine reports the port after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassignedPort {
    /// The service.
    pub service: String,
    /// Port in the container.
    pub container: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// The requested host port.
    pub requested: u16,
}

/// Decides whether a file may be brought up, and builds its model.
///
/// A `$` in the model is literal: variables are filled in from `rules.env`. Reads the host paths in the file.
///
/// # Errors
/// [`ReadError::Invalid`] for a file that is not understood; [`ReadError::Refused`] with every violated rule, each
/// with service
/// and key.
pub fn admit(file: &ComposeFile, project: &ProjectName, rules: &Rules<'_>) -> Result<AdmittedStack, ReadError> {
    Ok(admit_normalised(&file.normalised(project, rules.env)?, project, rules)?)
}

/// Admits a file in its long form.
pub(crate) fn admit_normalised(
    file: &Value,
    project: &ProjectName,
    rules: &Rules<'_>,
) -> Result<AdmittedStack, PolicyRefusal> {
    let mut admission = Admission {
        rules,
        file: Sections::default(),
        diagnostics: Diagnostics::default(),
        images: Vec::new(),
        moved: Vec::new(),
        claimed: BTreeSet::new(),
        binds: Vec::new(),
        contexts: Vec::new(),
        gpu: false,
    };
    let model = admission.file(file);
    let Admission { diagnostics, images, moved, binds, contexts, gpu, .. } = admission;
    diagnostics.into_result()?;
    Ok(AdmittedStack { project: project.clone(), model, images, moved, binds, contexts, gpu })
}

/// The parts of one kind, by name.
type Section = BTreeMap<String, Map<String, Value>>;

/// The parts of a file.
#[derive(Clone, Debug, Default)]
struct Sections {
    services: Section,
    networks: Section,
    volumes: Section,
    configs: Section,
    secrets: Section,
}

/// The admission of a file. Each part of the file is a method that returns the part of the model.
struct Admission<'a> {
    rules: &'a Rules<'a>,
    file: Sections,
    diagnostics: Diagnostics,
    images: Vec<StackImage>,
    moved: Vec<ReassignedPort>,
    /// Host ports that services of this stack have claimed.
    claimed: BTreeSet<(u16, String)>,
    binds: Vec<(String, Mount)>,
    contexts: Vec<HostPath>,
    gpu: bool,
}

impl Admission<'_> {
    fn file(&mut self, file: &Value) -> StackModel {
        let mut keys = Keys::within_file(file.as_object().cloned().unwrap_or_default());
        keys.ignore(&["name", "version"]);
        self.file = Sections {
            services: self.section(&mut keys, "services"),
            networks: self.section(&mut keys, "networks"),
            volumes: self.section(&mut keys, "volumes"),
            configs: self.section(&mut keys, "configs"),
            secrets: self.section(&mut keys, "secrets"),
        };
        self.refuse_rest(keys, "is not allowed in a stack");
        let mut model = StackModel::default();
        let mut containers = 0;
        for (name, service) in self.file.services.clone() {
            if !is_host_name(&name) {
                self.refuse(Location::FILE, Violation::new("services", &name), "has a service with an odd name");
            }
            let service = self.service(&name, service);
            containers += service.scale.unwrap_or(1).max(1);
            model.services.insert(name, service);
        }
        if model.services.is_empty() {
            self.refuse(Location::FILE, Violation::new("services", ""), "are missing");
        }
        if containers > self.rules.max_services as u64 {
            let (value, why) = (containers.to_string(), format!("would be more than {}", self.rules.max_services));
            let violation = Violation::new("services", &value).unless("compose.max_services");
            self.refuse(Location::FILE, violation, &why);
        }
        self.hold_in_place(&mut model.services);
        for (name, network) in self.file.networks.clone() {
            let network = self.network(&name, network);
            model.networks.insert(name, network);
        }
        if model.services.values().any(|service| service.networks.contains_key("default")) {
            model.networks.entry("default".to_owned()).or_default();
        }
        for (name, volume) in self.file.volumes.clone() {
            let volume = self.volume(&name, volume);
            model.volumes.insert(name, volume);
        }
        self.stored_parts(&mut model);
        model
    }

    /// Configs and secrets. A secret given as text becomes a config.
    fn stored_parts(&mut self, model: &mut StackModel) {
        for (name, config) in self.file.configs.clone() {
            let config = self.stored("config", &name, config);
            model.configs.extend(config.map(|it| (name, it)));
        }
        for (name, secret) in self.file.secrets.clone() {
            match self.stored("secret", &name, secret) {
                None => {}
                Some(file @ StoredFile::File(_)) => drop(model.secrets.insert(name, file)),
                Some(text @ StoredFile::Content(_)) => self.secret_text(&name, text, model),
            }
        }
    }

    fn secret_text(&mut self, name: &str, text: StoredFile, model: &mut StackModel) {
        if model.configs.insert(as_config(name), text).is_some() {
            let location = Location::part("secret", name);
            self.refuse(location, Violation::new("secrets", name), "needs the name of a config for itself");
        }
    }

    fn refuse(&mut self, location: Location<'_>, violation: Violation<'_>, why: &str) {
        self.diagnostics.refuse(location, violation, why);
    }

    /// Reads a part of a file: a mapping of names to mappings.
    fn section(&mut self, keys: &mut Keys<'_>, key: &str) -> Section {
        let mut section = Section::new();
        match keys.remove(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(parts)) => {
                for (name, part) in parts {
                    match part {
                        Value::Object(part) => drop(section.insert(name, part)),
                        Value::Null => drop(section.insert(name, Map::new())),
                        _ => self.refuse(Location::FILE, Violation::new(key, &name), "has an entry that is no mapping"),
                    }
                }
            }
            Some(_) => self.refuse(Location::FILE, Violation::new(key, ""), "is no mapping"),
        }
        section
    }

    fn has_service(&self, name: &str) -> bool {
        self.file.services.contains_key(name)
    }

    /// Reads labels in the file.
    fn labels(&mut self, keys: &mut Keys<'_>) -> BTreeMap<String, String> {
        let labels: BTreeMap<String, String> = self.take(keys, "labels");
        let reserved = [format!("{}.", self.rules.label_namespace), "com.docker.".into(), "io.podman.".into()];
        for (key, value) in &labels {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._/-".contains(c);
            let why = if !(1..=128).contains(&key.len()) || !key.chars().all(plain) {
                "has a key beyond lower-case letters, digits, `.`, `_`, `/` and `-`"
            } else if reserved.iter().any(|it| key.starts_with(it.as_str())) {
                "has a reserved key"
            } else if value.len() > 4096 || value.chars().any(char::is_control) {
                "has a value that is not at most 4 KiB of printable text"
            } else {
                continue;
            };
            self.refuse(keys.location, Violation::new("labels", key), why);
        }
        if labels.len() > 50 {
            self.refuse(keys.location, Violation::new("labels", ""), "are more than 50");
        }
        labels
    }
}

/// Whether a name is valid in a hosts file and for a resolver.
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

    /// The admitted model.
    #[must_use]
    pub fn model(&self) -> &StackModel {
        &self.model
    }

    /// Services and their images, by name.
    #[must_use]
    pub fn services(&self) -> &[StackImage] {
        &self.images
    }

    /// The images that have to exist before it is brought up, without duplicates. Compose pulls none.
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

    /// Whether one of its services gets a GPU, which the engine then has to support.
    #[must_use]
    pub fn wants_gpu(&self) -> bool {
        self.gpu
    }

    /// Ports that do not get the requested host port.
    #[must_use]
    pub fn moved_ports(&self) -> &[ReassignedPort] {
        &self.moved
    }

    /// Host paths that services mount, as open handles with their service, including protective mounts and files of
    /// configs and secrets.
    #[must_use]
    pub fn binds(&self) -> &[(String, Mount)] {
        &self.binds
    }

    /// Host directories that images are built from, as open handles. Compose opens their paths again later.
    #[must_use]
    pub fn build_contexts(&self) -> &[HostPath] {
        &self.contexts
    }

    /// The engine's name of the network on which a container finds the services by name: the default one if a
    /// service is on it, else the one with the most services. `None` if no service has a network.
    #[must_use]
    pub fn default_network(&self) -> Option<String> {
        let mut members: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.model.services.values().flat_map(|service| service.networks.keys()) {
            *members.entry(name).or_default() += 1;
        }
        let most = members.iter().rev().max_by_key(|(_, count)| **count).map(|(name, _)| *name);
        let chosen = if members.contains_key("default") { "default" } else { most? };
        Some(self.model.networks[chosen].engine_name(&self.project, chosen))
    }

    /// Sets labels of Coracle on every service, and on every network and volume that the stack creates. They override
    /// those of the file.
    #[must_use]
    pub fn labelled(mut self, mut labels: impl FnMut(LabelledPart, &str) -> BTreeMap<String, String>) -> Self {
        let StackModel { services, networks, volumes, .. } = &mut self.model;
        for (name, service) in services {
            service.labels.extend(labels(LabelledPart::Service, name));
        }
        for (name, network) in networks.iter_mut().filter(|(_, network)| !network.external) {
            network.labels.extend(labels(LabelledPart::Network, name));
        }
        for (name, volume) in volumes.iter_mut().filter(|(_, volume)| !volume.external) {
            volume.labels.extend(labels(LabelledPart::Volume, name));
        }
        self
    }
}

#[cfg(test)]
mod tests;
