//! Published ports: on the loopback, and on a host port that is free.

use coracle_runtime::Protocol;
use serde_json::{Map, Value, json};

use super::schema::entries;
use super::{Admission, ReassignedPort};
use crate::diagnostics::{Location, Violation};

impl Admission<'_> {
    pub(super) fn ports(&mut self, name: &str, service: &Value, out: &mut Map<String, Value>) {
        let location = Location::service(name);
        let Some(ports) = service.get("ports").filter(|it| !it.is_null()) else { return };
        let Some(ports) = ports.as_array() else {
            return self.refuse(location, Violation::new("ports", ""), "is no list");
        };
        let single = self.replicas(service) <= 1;
        let ports: Vec<Value> = ports.iter().filter_map(|it| self.port(name, it, single)).collect();
        if !ports.is_empty() {
            out.insert("ports".into(), Value::Array(ports));
        }
    }

    /// Addresses of the file do not matter: there is one, and the person chooses it. A host port that is left out is
    /// chosen by the engine when the container starts, so that no process can take it in between.
    fn port(&mut self, name: &str, port: &Value, single: bool) -> Option<Value> {
        let location = Location::service(name);
        for (key, _) in entries(Some(port)) {
            let known = ["mode", "target", "published", "protocol", "host_ip", "name", "app_protocol"].contains(&key);
            if !known {
                self.refuse(location, Violation::within("ports", key, ""), "is nothing of a port");
            }
        }
        let target = port.get("target").and_then(Value::as_u64).and_then(|it| u16::try_from(it).ok());
        let protocol = match port.get("protocol").and_then(Value::as_str).unwrap_or("tcp") {
            "tcp" => Some(Protocol::Tcp),
            "udp" => Some(Protocol::Udp),
            _ => None,
        };
        let (Some(container), Some(protocol)) = (target.filter(|it| *it > 0), protocol) else {
            let why = "has a port that is not 1 to 65535 of tcp or udp";
            self.refuse(location, Violation::new("ports", ""), why);
            return None;
        };
        let published = match port.get("published") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut out = json!({
            "mode": "ingress",
            "target": container,
            "protocol": protocol.to_string(),
            "host_ip": self.rules.policy.ports_bind.to_string(),
        });
        // A range is a wish for any port of it.
        let first = published.split('-').next().unwrap_or_default();
        if first.is_empty() || first == "0" {
            return Some(out);
        }
        let Ok(asked) = first.parse::<u16>() else {
            self.refuse(location, Violation::within("ports", "ports.published", &published), "is no port");
            return None;
        };
        let fixed = !published.contains('-') && single && !self.rules.namespace && asked >= self.rules.policy.port_min;
        if fixed && (self.rules.is_free)(asked, protocol) && self.claimed.insert((asked, word(protocol))) {
            out["published"] = asked.to_string().into();
        } else {
            self.moved.push(ReassignedPort { service: name.to_owned(), container, protocol, asked });
        }
        Some(out)
    }
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}
