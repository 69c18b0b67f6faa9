//! A service, key by key.

use coracle_runtime::ImageRef;
use serde_json::{Map, Value, json};

use super::schema::{Shape, entries, is_empty, number, size, words};
use super::{Admission, StackImage, is_host_name};
use crate::diagnostics::{Location, Violation, is_known};

/// Keys that go on as they are.
const COPIED: &[(&str, Shape)] = &[
    ("command", Shape::Words),
    ("entrypoint", Shape::Words),
    ("environment", Shape::Pairs),
    ("working_dir", Shape::Text),
    ("user", Shape::Text),
    ("expose", Shape::Words),
    ("stop_signal", Shape::Text),
    ("stop_grace_period", Shape::Text),
    ("tty", Shape::Flag),
    ("stdin_open", Shape::Flag),
    ("init", Shape::Flag),
    ("dns", Shape::Addresses),
    ("dns_search", Shape::Words),
    ("dns_opt", Shape::Words),
    ("platform", Shape::Text),
    ("read_only", Shape::Flag),
];

/// Keys that are read part by part, and what they are at all.
const READ: &[(&str, Shape)] = &[
    ("build", Shape::Mapping),
    ("cap_add", Shape::Words),
    ("cap_drop", Shape::Words),
    ("configs", Shape::Entries),
    ("depends_on", Shape::Mapping),
    ("deploy", Shape::Mapping),
    ("extra_hosts", Shape::Hosts),
    ("gpus", Shape::Entries),
    ("healthcheck", Shape::Mapping),
    ("image", Shape::Text),
    ("links", Shape::Words),
    ("logging", Shape::Mapping),
    ("network_mode", Shape::Text),
    ("networks", Shape::Mapping),
    ("ports", Shape::Entries),
    ("secrets", Shape::Entries),
    ("security_opt", Shape::Words),
    ("tmpfs", Shape::Words),
    ("ulimits", Shape::Mapping),
    ("volumes", Shape::Entries),
];

/// Keys that mean nothing here, or that others decide: what is restarted, pulled, shown, and known outside the stack.
/// `profiles` has done its work when the model is there.
const DROPPED: &[&str] =
    &["attach", "container_name", "develop", "mem_reservation", "memswap_limit", "profiles", "pull_policy", "restart"];

/// What a container gets that is root in its own bounds (4.17), and a port below 1024.
const CAPABILITIES: &[&str] =
    &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"];

/// What a service may ask for besides.
const MORE_CAPABILITIES: &[&str] = &["IPC_LOCK", "SYS_NICE"];

impl Admission<'_> {
    pub(super) fn service(&mut self, name: &str, service: &Value) -> Value {
        let location = Location::service(name);
        let mut out = Map::new();
        for (key, value) in entries(Some(service)) {
            if let Some((_, shape)) = COPIED.iter().find(|(it, _)| *it == key) {
                if !value.is_null() {
                    let copied = self.copied(location, Violation::new(key, ""), value, *shape);
                    out.extend(copied.map(|it| (key.to_owned(), it)));
                }
                continue;
            }
            let odd = READ.iter().find(|(it, shape)| *it == key && !value.is_null() && shape.check(value).is_none());
            if let Some((_, shape)) = odd {
                self.refuse(location, Violation::new(key, ""), shape.expectation());
                continue;
            }
            let part = match key {
                "depends_on" => self.depends_on(location, value),
                "healthcheck" => self.healthcheck(location, value),
                "ulimits" => self.ulimits(location, value),
                "hostname" => self.hostname(location, value),
                "links" => self.links(location, value),
                "extra_hosts" => self.extra_hosts(location, "extra_hosts", value),
                "labels" => Some(Value::Object(self.labels(location, value))),
                "security_opt" => self.security_opt(location, value),
                // Written below, for each service.
                "image" | "build" | "ports" | "volumes" | "tmpfs" | "configs" | "secrets" | "networks"
                | "network_mode" | "logging" | "cap_add" | "cap_drop" | "deploy" | "gpus" | "mem_limit" | "cpus"
                | "pids_limit" | "scale" | "shm_size" => None,
                key if DROPPED.contains(&key) => None,
                key if is_known(key) && is_empty(value) => None,
                key => {
                    self.refuse(location, Violation::new(key, &excerpt(value)), "is not allowed in a stack");
                    None
                }
            };
            if let Some(part) = part {
                out.insert(key.to_owned(), part);
            }
        }
        self.image(name, service, &mut out);
        self.limits(location, service, &mut out);
        self.mounts(name, service, &mut out);
        self.attached(location, service, &mut out);
        self.ports(name, service, &mut out);
        self.capabilities(location, service, &mut out);
        let logging = self.logging(location, service.get("logging"));
        out.insert("logging".into(), logging);
        out.insert("security_opt".into(), json!(["no-new-privileges"]));
        out.insert("restart".into(), "no".into());
        Value::Object(out)
    }

    /// A value that goes on as it is, if it has the shape.
    pub(super) fn copied(
        &mut self,
        location: Location<'_>,
        violation: Violation<'_>,
        value: &Value,
        shape: Shape,
    ) -> Option<Value> {
        let copied = shape.check(value);
        if copied.is_none() {
            self.refuse(location, violation, shape.expectation());
        }
        copied
    }

    /// A service that is built has no other name than Compose's: its tag could be that of an image of the person's.
    fn image(&mut self, name: &str, service: &Value, out: &mut Map<String, Value>) {
        let location = Location::service(name);
        if let Some(build) = service.get("build").filter(|it| !it.is_null()) {
            let build = self.build(location, build);
            out.insert("build".into(), build);
            self.images.push(StackImage { service: name.to_owned(), image: None });
            return;
        }
        let text = service.get("image").and_then(Value::as_str).unwrap_or_default();
        let Ok(image) = ImageRef::parse(text) else {
            let why = "is no image: it needs one, such as `postgres:16`";
            return self.refuse(location, Violation::new("image", text), why);
        };
        let images = &self.rules.policy.images;
        if !images.matches(image.as_str()) && !images.matches(image.completed().as_str()) {
            self.refuse(location, Violation::new("image", text).unless("security.images"), "is not on the list");
        }
        out.insert("image".into(), text.into());
        out.insert("pull_policy".into(), "never".into());
        self.images.push(StackImage { service: name.to_owned(), image: Some(image) });
    }

    fn depends_on(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        let mut out = Map::new();
        for (service, how) in entries(Some(value)) {
            let condition = how.get("condition").and_then(Value::as_str).unwrap_or("service_started");
            let known = ["service_started", "service_healthy", "service_completed_successfully"].contains(&condition);
            let keys = entries(Some(how)).all(|(key, _)| ["condition", "required", "restart"].contains(&key));
            let required = how.get("required").and_then(Value::as_bool).unwrap_or(true);
            if !self.has_service(service) {
                if required {
                    self.refuse(location, Violation::new("depends_on", service), "names no service of this stack");
                }
            } else if !known || !keys {
                self.refuse(location, Violation::new("depends_on", service), "has a condition that is not known");
            } else {
                out.insert(service.to_owned(), json!({ "condition": condition, "required": required }));
            }
        }
        Some(Value::Object(out))
    }

    fn healthcheck(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        let mut out = Map::new();
        for (key, value) in entries(Some(value)) {
            let fits = match key {
                "test" => words(value).is_some(),
                "interval" | "timeout" | "start_period" | "start_interval" => value.is_string(),
                "retries" => number(value).is_some(),
                "disable" => value.is_boolean(),
                _ => false,
            };
            if fits {
                out.insert(key.to_owned(), value.clone());
            } else {
                let value = excerpt(value);
                self.refuse(location, Violation::within("healthcheck", key, &value), "is nothing of a health check");
            }
        }
        Some(Value::Object(out))
    }

    fn ulimits(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        const REACHES_HOST: [&str; 3] = ["core", "nice", "rtprio"];
        let is_zero = |limit: &Value| *limit == 0 || entries(Some(limit)).all(|(_, it)| *it == 0) && limit.is_object();
        for (name, limit) in entries(Some(value)) {
            let plain = |it: &Value| it.is_i64() || it.is_u64();
            let pair = |it: &Value| entries(Some(it)).all(|(key, it)| ["soft", "hard"].contains(&key) && plain(it));
            if !name.chars().all(|c| c.is_ascii_lowercase()) || !(plain(limit) || limit.is_object() && pair(limit)) {
                self.refuse(location, Violation::new("ulimits", name), "is no limit: a number, or `soft` and `hard`");
            } else if REACHES_HOST.contains(&name) && !is_zero(limit) {
                let why = "may only be 0: programs of the host take core dumps, and realtime priority goes past the limit of processors";
                self.refuse(location, Violation::new("ulimits", name), why);
            }
        }
        value.is_object().then(|| value.clone())
    }

    fn hostname(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        let text = value.as_str().unwrap_or_default();
        if !is_host_name(text) {
            self.refuse(location, Violation::new("hostname", text), "is no host name");
        }
        Some(text.into())
    }

    fn links(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        for link in words(value).unwrap_or_default() {
            let (service, alias) = link.split_once(':').unwrap_or((link, link));
            if !self.has_service(service) || !is_host_name(alias) {
                self.refuse(location, Violation::new("links", link), "names no service of this stack");
            }
        }
        Some(value.clone())
    }

    fn security_opt(&mut self, location: Location<'_>, value: &Value) -> Option<Value> {
        for option in words(value).unwrap_or_default() {
            if !["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"].contains(&option) {
                let why = "may be `no-new-privileges`, which every service has, and nothing else";
                self.refuse(location, Violation::new("security_opt", option), why);
            }
        }
        None
    }

    /// Every service has the same few, less what it gives up itself.
    fn capabilities(&mut self, location: Location<'_>, service: &Value, out: &mut Map<String, Value>) {
        let named = |key: &str| -> Vec<String> {
            let listed = service.get(key).and_then(words).unwrap_or_default();
            let plain = |it: &str| it.to_ascii_uppercase().trim_start_matches("CAP_").to_owned();
            listed.into_iter().map(plain).collect()
        };
        let (added, dropped) = (named("cap_add"), named("cap_drop"));
        for one in added.iter().filter(|it| ![CAPABILITIES, MORE_CAPABILITIES].concat().contains(&it.as_str())) {
            let why = "is not among the capabilities that a service may have";
            self.refuse(location, Violation::new("cap_add", one), why);
        }
        let given_up = |it: &str| dropped.iter().any(|gone| gone == "ALL" || gone == it);
        let mut kept: Vec<&str> = CAPABILITIES.iter().copied().filter(|it| !given_up(it)).collect();
        kept.extend(added.iter().map(String::as_str).filter(|it| !CAPABILITIES.contains(it) || given_up(it)));
        kept.sort_unstable();
        kept.dedup();
        out.insert("cap_drop".into(), json!(["ALL"]));
        out.insert("cap_add".into(), json!(kept));
    }

    fn logging(&mut self, location: Location<'_>, value: Option<&Value>) -> Value {
        let driver = value.and_then(|it| it.get("driver")).and_then(Value::as_str).unwrap_or("json-file");
        if !["json-file", "local", "none"].contains(&driver) {
            let why = "may be `json-file`, `local` or `none`: others send what a service prints elsewhere";
            self.refuse(location, Violation::within("logging", "logging.driver", driver), why);
        }
        for (key, _) in entries(value).filter(|(key, _)| !["driver", "options"].contains(key)) {
            self.refuse(location, Violation::within("logging", key, ""), "is nothing of `logging`");
        }
        match driver {
            "none" => json!({ "driver": "none" }),
            driver => json!({ "driver": driver, "options": { "max-size": "10m", "max-file": "3" } }),
        }
    }

    /// A number of bytes, at most the ceiling of memory.
    pub(super) fn within_memory(&mut self, location: Location<'_>, violation: Violation<'_>, value: &Value) -> Value {
        let Some(bytes) = size(value) else {
            self.refuse(location, Violation { value: &excerpt(value), ..violation }, Shape::Size.expectation());
            return Value::Null;
        };
        bytes.min(self.rules.policy.memory_max.0).to_string().into()
    }
}

/// A value in a finding: a word of it at most, since it may be long or live.
pub(super) fn excerpt(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => list.iter().map(excerpt).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    }
}
