//! Checks a service key by key.

use std::collections::BTreeMap;

use coracle_runtime::stack_model::{Dependency, Logging, Service, Ulimit};
use coracle_types::ImageRef;
use serde_json::{Map, Value};

use super::keys::Keys;
use super::{Admission, StackImage, is_host_name};
use crate::diagnostics::{Location, Violation};

/// Keys that are copied unchanged.
const COPIED: &[&str] = &[
    "command",
    "entrypoint",
    "environment",
    "working_dir",
    "user",
    "expose",
    "stop_signal",
    "stop_grace_period",
    "tty",
    "stdin_open",
    "init",
    "dns",
    "dns_search",
    "dns_opt",
    "platform",
    "read_only",
    "healthcheck",
];

/// Keys that are ignored: they concern restarts, pulls, display, and access from outside the stack.
/// `profiles` was evaluated for the long form.
const DROPPED: &[&str] =
    &["attach", "develop", "mem_reservation", "memswap_limit", "profiles", "pull_policy", "restart"];

/// The default capabilities: those of a container with root inside, and binding ports below 1024.
const CAPABILITIES: &[&str] =
    &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"];

/// Capabilities that a service may add.
const MORE_CAPABILITIES: &[&str] = &["IPC_LOCK", "SYS_NICE"];

/// Limits that affect the host: its programs read core dumps, and realtime priority exceeds the CPU limit.
const REACHES_HOST: [&str; 3] = ["core", "nice", "rtprio"];

impl Admission<'_> {
    pub(super) fn service(&mut self, name: &str, file: Map<String, Value>) -> Service {
        let mut all = Keys::new(Location::service(name), file);
        let keys = &mut all;
        keys.ignore(DROPPED);
        let mut service: Service = self.copy(keys, COPIED);
        service.labels = self.labels(keys);
        service.depends_on = self.depends_on(keys);
        service.ulimits = self.ulimits(keys);
        service.hostname = self.hostname(keys);
        service.links = self.links(keys);
        service.extra_hosts = self.extra_hosts(keys);
        self.image(name, keys, &mut service);
        self.limits(keys, &mut service);
        self.mounts(name, keys, &mut service);
        self.attached(keys, &mut service);
        service.ports = self.ports(name, keys, service.scale);
        service.cap_drop = vec!["ALL".to_owned()];
        service.cap_add = self.capabilities(keys);
        service.logging = Some(self.logging(keys));
        self.security_opt(keys);
        service.security_opt = vec!["no-new-privileges".to_owned()];
        service.restart = Some("no".to_owned());
        self.refuse_rest(all, "is not allowed in a stack");
        service
    }

    /// A built image gets only Compose's name: a tag in the file could replace an image of the user.
    fn image(&mut self, name: &str, keys: &mut Keys<'_>, service: &mut Service) {
        let text: String = self.take(keys, "image");
        if let Some(build) = keys.remove("build") {
            service.build = Some(self.build(keys, build));
            self.images.push(StackImage { service: name.to_owned(), image: None });
            return;
        }
        let Ok(image) = ImageRef::parse(&text) else {
            let why = "is no image: it needs one, such as `postgres:16`";
            return self.refuse(keys.location, Violation::new("image", &text), why);
        };
        let images = &self.rules.policy.images;
        if !images.matches(image.as_str()) && !images.matches(image.completed().as_str()) {
            self.refuse(keys.location, Violation::new("image", &text).unless("security.images"), "is not on the list");
        }
        service.image = Some(text);
        service.pull_policy = Some("never".to_owned());
        self.images.push(StackImage { service: name.to_owned(), image: Some(image) });
    }

    fn depends_on(&mut self, keys: &mut Keys<'_>) -> BTreeMap<String, Dependency> {
        let mut out = BTreeMap::new();
        for (service, mut entry) in self.named::<Map<String, Value>>(keys, "depends_on") {
            entry.remove("restart");
            let Some(dependency) = self.parse::<Dependency>(keys, "depends_on", Value::Object(entry)) else { continue };
            if self.has_service(&service) {
                out.insert(service, dependency);
            } else if dependency.required {
                let violation = Violation::new("depends_on", &service);
                self.refuse(keys.location, violation, "names no service of this stack");
            }
        }
        out
    }

    fn ulimits(&mut self, keys: &mut Keys<'_>) -> BTreeMap<String, Ulimit> {
        let mut out = BTreeMap::new();
        for (name, value) in self.named::<Value>(keys, "ulimits") {
            let parsed = match value.as_i64() {
                Some(both) => Some(Ulimit { soft: Some(both), hard: Some(both) }),
                None => self.parse(keys, "ulimits", value),
            };
            let Some(limit) = parsed else { continue };
            let is_zero = [limit.soft, limit.hard].iter().all(|it| it.unwrap_or(0) == 0);
            let why = if !name.chars().all(|c| c.is_ascii_lowercase()) {
                "is no limit"
            } else if REACHES_HOST.contains(&name.as_str()) && !is_zero {
                "may only be 0: programs of the host take core dumps, and realtime priority goes past the limit of processors"
            } else {
                out.insert(name, limit);
                continue;
            };
            self.refuse(keys.location, Violation::new("ulimits", &name), why);
        }
        out
    }

    fn hostname(&mut self, keys: &mut Keys<'_>) -> Option<String> {
        let hostname: Option<String> = self.take(keys, "hostname");
        if let Some(refused) = hostname.as_deref().filter(|it| !is_host_name(it)) {
            self.refuse(keys.location, Violation::new("hostname", refused), "is no host name");
        }
        hostname
    }

    fn links(&mut self, keys: &mut Keys<'_>) -> Vec<String> {
        let links: Vec<String> = self.take(keys, "links");
        for link in &links {
            let (service, alias) = link.split_once(':').unwrap_or((link, link));
            if !self.has_service(service) || !is_host_name(alias) {
                self.refuse(keys.location, Violation::new("links", link), "names no service of this stack");
            }
        }
        links
    }

    fn security_opt(&mut self, keys: &mut Keys<'_>) {
        for option in self.take::<Vec<String>>(keys, "security_opt") {
            if !["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"].contains(&option.as_str()) {
                let why = "may be `no-new-privileges`, which every service has, and nothing else";
                self.refuse(keys.location, Violation::new("security_opt", &option), why);
            }
        }
    }

    /// Returns the default capabilities, without those that the service drops.
    fn capabilities(&mut self, keys: &mut Keys<'_>) -> Vec<String> {
        let mut listed = |key: &str| -> Vec<String> {
            let listed: Vec<String> = self.take(keys, key);
            listed.iter().map(|it| it.to_ascii_uppercase().trim_start_matches("CAP_").to_owned()).collect()
        };
        let (added, dropped) = (listed("cap_add"), listed("cap_drop"));
        for one in added.iter().filter(|it| ![CAPABILITIES, MORE_CAPABILITIES].concat().contains(&it.as_str())) {
            let why = "is not among the capabilities that a service may have";
            self.refuse(keys.location, Violation::new("cap_add", one), why);
        }
        let is_dropped = |it: &str| dropped.iter().any(|gone| gone == "ALL" || gone == it);
        let mut capabilities: Vec<String> =
            CAPABILITIES.iter().filter(|it| !is_dropped(it)).map(|it| (*it).to_owned()).collect();
        capabilities.extend(added);
        capabilities.sort_unstable();
        capabilities.dedup();
        capabilities
    }

    fn logging(&mut self, keys: &mut Keys<'_>) -> Logging {
        let driver = self.take::<Logging>(keys, "logging").driver.unwrap_or_else(|| "json-file".to_owned());
        if !["json-file", "local", "none"].contains(&driver.as_str()) {
            let why = "may be `json-file`, `local` or `none`: others send what a service prints elsewhere";
            self.refuse(keys.location, Violation::within("logging", "logging.driver", &driver), why);
        }
        let options = match driver.as_str() {
            "none" => Vec::new(),
            _ => vec![("max-size", "10m"), ("max-file", "3")],
        };
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Logging { driver: Some(driver), options }
    }
}
