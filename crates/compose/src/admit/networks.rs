//! Networks: the stack's own and those of ours, and what services are on.

use serde_json::{Map, Value, json};

use super::schema::{entries, is_empty, words};
use super::{Admission, is_host_name};
use crate::diagnostics::{Location, Violation};

impl Admission<'_> {
    /// The networks of the file. What Compose adds by itself, the default one, is written out.
    pub(super) fn networks(&mut self) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, network) in entries(self.model.get("networks")) {
            let network = self.network(name, network);
            out.insert(name.to_owned(), network);
        }
        let on_default = |it: &Value| {
            let mode = it.get("network_mode").and_then(Value::as_str).unwrap_or_default();
            matches!(mode, "" | "bridge") && it.get("networks").is_none_or(is_empty)
        };
        if entries(self.model.get("services")).any(|(_, it)| on_default(it)) {
            out.entry("default").or_insert_with(|| json!({}));
        }
        out
    }

    fn network(&mut self, name: &str, network: &Value) -> Value {
        let location = Location::part("network", name);
        if network.get("external") == Some(&Value::Bool(true)) {
            let engine_name = network.get("name").and_then(Value::as_str).unwrap_or(name);
            if !self.rules.our_networks.contains(engine_name) {
                let why = "is not a network of ours: `create_network` makes one";
                self.refuse(location, Violation::new("external", engine_name), why);
            }
            return json!({ "external": true, "name": engine_name });
        }
        let mut out = Map::new();
        for (key, value) in entries(Some(network)) {
            match key {
                "name" | "attachable" | "external" | "enable_ipv4" => {}
                "internal" => drop(out.insert("internal".into(), (*value == Value::Bool(true)).into())),
                "labels" => drop(out.insert("labels".into(), Value::Object(self.labels(location, value)))),
                "driver" if is_empty(value) || value == "bridge" => {}
                "ipam" if is_plain_ipam(value) => {}
                _ if is_empty(value) => {}
                key => self.refuse(location, Violation::new(key, &super::service::excerpt(value)), "is not allowed"),
            }
        }
        Value::Object(out)
    }

    /// `network_mode`, `networks` and `extra_hosts` of a service.
    pub(super) fn attached(&mut self, location: Location<'_>, service: &Value, out: &mut Map<String, Value>) {
        let mode = service.get("network_mode").and_then(Value::as_str).unwrap_or_default();
        match mode {
            // The engine's own bridge has containers of others on it, so a service that asks for it is on the stack's.
            "" | "bridge" => {}
            "none" => return drop(out.insert("network_mode".into(), "none".into())),
            mode => {
                let of_stack = mode.strip_prefix("service:").is_some_and(|it| self.has_service(it));
                if of_stack {
                    out.insert("network_mode".into(), mode.into());
                } else {
                    let why = "may be `none`, `bridge`, or `service:` with one of this stack";
                    self.refuse(location, Violation::new("network_mode", mode), why);
                }
                return;
            }
        }
        if !self.rules.policy.open_network {
            let violation = Violation::new("networks", "").unless("security.network");
            self.refuse(location, violation, "have a way out, which is not granted: say `network_mode: none`");
        }
        let mut networks = Map::new();
        for (name, how) in entries(service.get("networks")) {
            if name != "default" && entries(self.model.get("networks")).all(|(it, _)| it != name) {
                self.refuse(location, Violation::new("networks", name), "has a network that the file does not have");
            }
            let aliases = self.aliases(location, service, how);
            networks.insert(name.to_owned(), aliases);
        }
        if networks.is_empty() {
            let aliases = self.aliases(location, service, &Value::Null);
            networks.insert("default".into(), aliases);
        }
        out.insert("networks".into(), Value::Object(networks));
    }

    /// How a service is known on a network. Its container has another name than the file gave it, which still leads to it.
    fn aliases(&mut self, location: Location<'_>, service: &Value, how: &Value) -> Value {
        let mut aliases = Vec::new();
        for (key, value) in entries(Some(how)) {
            match key {
                "aliases" => aliases.extend(words(value).unwrap_or_default()),
                "priority" | "gw_priority" => {}
                _ if is_empty(value) => {}
                key => self.refuse(location, Violation::within("networks", key, ""), "is not allowed on a network"),
            }
        }
        aliases.extend(service.get("container_name").and_then(Value::as_str));
        for alias in aliases.iter().filter(|it| !is_host_name(it)) {
            self.refuse(location, Violation::within("networks", "aliases", alias), "is no host name");
        }
        if aliases.is_empty() { json!({}) } else { json!({ "aliases": aliases }) }
    }

    /// As `add_hosts` (4.13): a list of `name=address`, or names with addresses.
    pub(super) fn extra_hosts(&mut self, location: Location<'_>, key: &str, value: &Value) -> Option<Value> {
        let rule = if key == "extra_hosts" { key } else { "build" };
        let listed: Vec<(String, String)> = match value {
            Value::Object(hosts) => hosts
                .iter()
                .flat_map(|(name, to)| {
                    words(to).unwrap_or_default().into_iter().map(|to| (name.clone(), to.to_owned()))
                })
                .collect(),
            list => {
                let split = |it: &str| {
                    let (name, to) = it.split_once('=').or_else(|| it.split_once(':')).unwrap_or((it, ""));
                    (name.to_owned(), to.to_owned())
                };
                words(list).unwrap_or_default().into_iter().map(split).collect()
            }
        };
        for (name, to) in &listed {
            let violation = Violation::within(rule, key, name);
            if to == "host-gateway" {
                if !self.rules.policy.allow_host_gateway {
                    let violation = violation.unless("security.allow_host_gateway");
                    self.refuse(location, violation, "names the host, which is not granted");
                }
            } else if !is_host_name(name) || to.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err() {
                self.refuse(location, violation, "has an entry that is not a name and an address");
            }
        }
        let lines = listed.iter().map(|(name, to)| format!("{name}:{}", to.trim_matches(['[', ']'])));
        Some(lines.collect::<Vec<_>>().into())
    }
}

/// Addresses are the engine's to choose: two stacks of one file could not run side by side with addresses of its own, and
/// a range of the file could cover one that the host has to reach.
fn is_plain_ipam(ipam: &Value) -> bool {
    entries(Some(ipam)).all(|(key, value)| is_empty(value) || key == "driver" && value == "default")
}
