//! The networks of a file and of its services.

use std::collections::BTreeMap;

use coracle_runtime::stack_model::{Attachment, Network, Service};
use serde_json::{Map, Value};

use super::keys::{Keys, is_empty};
use super::{Admission, is_host_name};
use crate::diagnostics::{Location, Violation};

impl Admission<'_> {
    pub(super) fn network(&mut self, name: &str, file: Map<String, Value>) -> Network {
        let mut keys = Keys::new(Location::part("network", name), file);
        let external: bool = self.take(&mut keys, "external");
        let engine_name: Option<String> = self.take(&mut keys, "name");
        if external {
            let engine_name = engine_name.unwrap_or_else(|| name.to_owned());
            if !self.rules.our_networks.contains(&engine_name) {
                let why = "is not a network of ours: `create_network` makes one";
                self.refuse(keys.location, Violation::new("external", &engine_name), why);
            }
            return Network { external, name: Some(engine_name), ..Network::default() };
        }
        keys.ignore(&["attachable", "enable_ipv4"]);
        self.default_driver(&mut keys, "bridge");
        // The engine chooses addresses: with fixed ones two stacks of one file could not run concurrently, and a range
        // could hide one that the host has to reach.
        let mut ipam: Map<String, Value> = self.take(&mut keys, "ipam");
        ipam.retain(|key, value| !(is_empty(value) || key == "driver" && value == "default"));
        if !ipam.is_empty() {
            self.refuse(keys.location, Violation::new("ipam", ""), "is not allowed");
        }
        let internal = self.take(&mut keys, "internal");
        let labels = self.labels(&mut keys);
        self.refuse_rest(keys, "is not allowed");
        Network { external, name: None, internal, labels }
    }

    /// Accepts only a driver that every engine has.
    pub(super) fn default_driver(&mut self, keys: &mut Keys<'_>, usual: &str) {
        let driver: Option<String> = self.take(keys, "driver");
        if let Some(refused) = driver.filter(|it| it != usual) {
            self.refuse(keys.location, Violation::new("driver", &refused), "is not allowed");
        }
    }

    /// Reads `network_mode` and `networks` of a service.
    pub(super) fn attached(&mut self, keys: &mut Keys<'_>, service: &mut Service) {
        let mode: String = self.take(keys, "network_mode");
        let listed: Vec<(String, Map<String, Value>)> = self.named(keys, "networks");
        let container_name: Option<String> = self.take(keys, "container_name");
        match mode.as_str() {
            // The engine's own bridge is shared with other containers, so the service is on the stack's network
            // instead.
            "" | "bridge" => {}
            mode => {
                if mode != "none" && !mode.strip_prefix("service:").is_some_and(|it| self.has_service(it)) {
                    let why = "may be `none`, `bridge`, or `service:` with one of this stack";
                    self.refuse(keys.location, Violation::new("network_mode", mode), why);
                }
                service.network_mode = Some(mode.to_owned());
                return;
            }
        }
        if !self.rules.policy.open_network {
            let violation = Violation::new("networks", "").unless("security.network");
            self.refuse(keys.location, violation, "have a way out, which is not granted: say `network_mode: none`");
        }
        let mut networks = BTreeMap::new();
        for (name, mut entry) in listed {
            if name != "default" && !self.file.networks.contains_key(&name) {
                let violation = Violation::new("networks", &name);
                self.refuse(keys.location, violation, "has a network that the file does not have");
            }
            entry.retain(|key, value| !is_empty(value) && !["priority", "gw_priority"].contains(&key.as_str()));
            networks.extend(self.parse::<Attachment>(keys, "networks", Value::Object(entry)).map(|it| (name, it)));
        }
        if networks.is_empty() {
            networks.insert("default".to_owned(), Attachment::default());
        }
        for Attachment { aliases } in networks.values_mut() {
            // The container is renamed, so the name in the file becomes an alias.
            aliases.extend(container_name.clone());
            for alias in aliases.iter().filter(|it| !is_host_name(it)) {
                self.refuse(keys.location, Violation::within("networks", "aliases", alias), "is no host name");
            }
        }
        service.networks = networks;
    }

    /// Reads lines `name=address`, as `add_hosts` does.
    pub(super) fn extra_hosts(&mut self, keys: &mut Keys<'_>) -> Vec<String> {
        let mut out = Vec::new();
        for line in self.items::<String>(keys, "extra_hosts") {
            let (name, to) = line.split_once('=').or_else(|| line.split_once(':')).unwrap_or((&line, ""));
            let to = to.trim_matches(['[', ']']);
            let violation = Violation::within(keys.rule("extra_hosts"), "extra_hosts", name);
            if to == "host-gateway" {
                if !self.rules.policy.allow_host_gateway {
                    let violation = violation.unless("security.allow_host_gateway");
                    self.refuse(keys.location, violation, "names the host, which is not granted");
                }
            } else if !is_host_name(name) || to.parse::<std::net::IpAddr>().is_err() {
                self.refuse(keys.location, violation, "has an entry that is not a name and an address");
            }
            out.push(format!("{name}:{to}"));
        }
        out
    }
}
