//! Published ports: on loopback, and on a free host port.

use coracle_runtime::stack_model::Port;
use serde_json::{Map, Value};

use super::keys::Keys;
use super::{Admission, ReassignedPort};
use crate::diagnostics::Violation;

impl Admission<'_> {
    /// Addresses in the file are ignored: the configuration sets the only one. A missing host port is chosen by the
    /// engine when the container starts, so that no process can take it in between.
    pub(super) fn ports(&mut self, service: &str, keys: &mut Keys<'_>, scale: Option<u64>) -> Vec<Port> {
        let mut ports = Vec::new();
        for mut entry in self.items::<Map<String, Value>>(keys, "ports") {
            entry.retain(|key, _| !["mode", "name", "app_protocol", "host_ip"].contains(&key.as_str()));
            let published =
                entry.remove("published").map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
            let Some(mut port) = self.parse::<Port>(keys, "ports", Value::Object(entry)) else { continue };
            if port.target == 0 {
                self.refuse(keys.location, Violation::new("ports", ""), "has a port that is not 1 to 65535");
                continue;
            }
            port.host_ip = Some(self.rules.policy.ports_bind);
            // Of a range, any port may be chosen.
            let published = published.unwrap_or_default();
            let first = published.split('-').next().unwrap_or_default();
            if !["", "0"].contains(&first) {
                let Ok(wanted) = first.parse::<u16>() else {
                    let violation = Violation::within("ports", "ports.published", &published);
                    self.refuse(keys.location, violation, "is no port");
                    continue;
                };
                let rules = self.rules;
                let is_single = !published.contains('-') && scale.is_none();
                let fixed = is_single && !rules.namespace && wanted >= rules.policy.port_min;
                let claim = (wanted, port.protocol.to_string());
                if fixed && (rules.is_free)(wanted, port.protocol) && self.claimed.insert(claim) {
                    port.published = Some(wanted);
                } else {
                    let (container, protocol) = (port.target, port.protocol);
                    self.moved.push(ReassignedPort {
                        service: service.to_owned(),
                        container,
                        protocol,
                        requested: wanted,
                    });
                }
            }
            ports.push(port);
        }
        ports
    }
}
