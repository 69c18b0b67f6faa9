//! What a service may use: lowered to the ceilings, given where nothing was asked.

use serde_json::{Map, Value, json};

use super::Admission;
use super::schema::{entries, is_empty, number, size, words};
use super::service::excerpt;
use crate::diagnostics::{Location, Violation};

/// How many containers of one service there may be.
const MAX_REPLICAS: u64 = 5;

/// Keys of `deploy` that only a cluster reads.
const OF_CLUSTERS: &[&str] =
    &["mode", "endpoint_mode", "placement", "update_config", "rollback_config", "restart_policy"];

impl Admission<'_> {
    /// `mem_limit` and the like and `deploy` say the same in two ways; one of them goes on.
    pub(super) fn limits(&mut self, location: Location<'_>, service: &Value, out: &mut Map<String, Value>) {
        let deploy = service.get("deploy");
        let mut devices = Vec::new();
        self.deploy(location, deploy, &mut devices);
        devices.extend(service.get("gpus").and_then(Value::as_array).into_iter().flatten());
        self.gpus(location, &devices, out);
        let limits = deploy.and_then(|it| it.get("resources")).and_then(|it| it.get("limits"));
        let either = |own: &str, deployed: &str| {
            let asked = |it: Option<&Value>| it.filter(|it| !is_empty(it)).cloned();
            asked(service.get(own)).or_else(|| asked(limits.and_then(|it| it.get(deployed))))
        };
        let (policy, default) = (self.rules.policy, &self.rules.default_limits);
        let memory = either("mem_limit", "memory");
        let (cpus, pids) = (either("cpus", "cpus"), either("pids_limit", "pids"));

        let asked = memory.as_ref().map(|it| (it, size(it))).filter(|(_, bytes)| *bytes != Some(0));
        if let Some((value, None)) = asked {
            self.refuse(location, Violation::new("mem_limit", &excerpt(value)), "is no number of bytes");
        }
        let memory = asked.and_then(|(_, bytes)| bytes).or(default.memory.map(|it| it.0));
        if let Some(memory) = memory.map(|it| it.min(policy.memory_max.0)) {
            out.insert("mem_limit".into(), memory.to_string().into());
            // The same number: no swap is added.
            out.insert("memswap_limit".into(), memory.to_string().into());
        }

        let asked = cpus.as_ref().map(|it| (it, number(it))).filter(|(_, cores)| *cores != Some(0.0));
        if let Some((value, None)) = asked {
            self.refuse(location, Violation::new("cpus", &excerpt(value)), "is no number of cores");
        }
        let cores = asked.and_then(|(_, cores)| cores).or(default.cpus).or(policy.cpus_max);
        if let Some(cores) = cores.map(|it| policy.cpus_max.map_or(it, |max| it.min(max))) {
            out.insert("cpus".into(), json!(cores));
        }

        let asked = pids.as_ref().map(|it| (it, it.as_i64()));
        if let Some((value, None)) = asked {
            self.refuse(location, Violation::new("pids_limit", &excerpt(value)), "is no number of processes");
        }
        // Zero and less mean none to engines.
        let asked = asked.and_then(|(_, it)| it).and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
        let pids = asked.or(default.pids).unwrap_or(policy.pids_max).min(policy.pids_max);
        out.insert("pids_limit".into(), pids.into());

        if let Some(shm) = service.get("shm_size").filter(|it| !is_empty(it)) {
            let shm = self.within_memory(location, Violation::new("shm_size", ""), shm);
            out.insert("shm_size".into(), shm);
        }
        let replicas = self.replicas(service);
        if replicas != 1 {
            out.insert("scale".into(), replicas.into());
        }
    }

    /// How many containers a service gets.
    pub(super) fn replicas(&self, service: &Value) -> u64 {
        let asked = service.get("scale").or_else(|| service.get("deploy").and_then(|it| it.get("replicas")));
        asked.and_then(Value::as_u64).unwrap_or(1).min(MAX_REPLICAS)
    }

    fn deploy<'m>(&mut self, location: Location<'_>, deploy: Option<&'m Value>, devices: &mut Vec<&'m Value>) {
        for (key, value) in entries(deploy) {
            match key {
                "replicas" if value.is_u64() => {}
                "labels" => drop(self.labels(location, value)),
                "resources" => self.resources(location, value, devices),
                key if OF_CLUSTERS.contains(&key) || is_empty(value) => {}
                key => self.refuse_in_deploy(location, key, value),
            }
        }
    }

    fn resources<'m>(&mut self, location: Location<'_>, resources: &'m Value, devices: &mut Vec<&'m Value>) {
        for (kind, amounts) in entries(Some(resources)) {
            for (key, value) in entries(Some(amounts)) {
                match (kind, key) {
                    // Limits are read above; what is reserved is for a cluster to location.
                    ("limits" | "reservations", "cpus" | "memory" | "pids") => {}
                    ("reservations", "devices") => devices.extend(value.as_array().into_iter().flatten()),
                    _ if is_empty(value) => {}
                    _ => self.refuse_in_deploy(location, key, value),
                }
            }
            if !["limits", "reservations"].contains(&kind) {
                self.refuse_in_deploy(location, kind, amounts);
            }
        }
    }

    fn refuse_in_deploy(&mut self, location: Location<'_>, key: &str, value: &Value) {
        let (key, value) = (format!("deploy.{key}"), excerpt(value));
        self.refuse(location, Violation::within("deploy", &key, &value), "is not allowed in a stack");
    }

    /// GPUs, and no other device (4.14).
    fn gpus(&mut self, location: Location<'_>, devices: &[&Value], out: &mut Map<String, Value>) {
        let mut kept = Vec::new();
        for device in devices {
            let capabilities = device.get("capabilities").map_or_else(|| Some(vec!["gpu"]), words).unwrap_or_default();
            let of_gpus = |it: &&str| ["gpu", "nvidia", "compute", "utility", "video", "graphics"].contains(it);
            let plain = entries(Some(device)).all(|(key, value)| {
                matches!(key, "capabilities" | "count" | "device_ids")
                    || key == "driver" && (is_empty(value) || value == "nvidia")
                    || is_empty(value)
            });
            if !plain || capabilities.is_empty() || !capabilities.iter().all(of_gpus) {
                self.refuse(location, Violation::new("devices", ""), "may be GPUs, and nothing else");
                continue;
            }
            let mut one = Map::from_iter([("capabilities".to_owned(), json!(capabilities))]);
            for key in ["driver", "device_ids"] {
                one.extend(device.get(key).filter(|it| !is_empty(it)).map(|it| (key.to_owned(), it.clone())));
            }
            if !one.contains_key("device_ids") {
                let count = device.get("count").and_then(Value::as_u64);
                one.insert("count".into(), count.map_or_else(|| "all".into(), Value::from));
            }
            kept.push(Value::Object(one));
        }
        if kept.is_empty() {
            return;
        }
        if !self.rules.policy.allow_gpu {
            let violation = Violation::new("gpus", "").unless("security.allow_gpu");
            self.refuse(location, violation, "are not granted");
        }
        self.gpu = true;
        out.insert("deploy".into(), json!({ "resources": { "reservations": { "devices": kept } } }));
    }
}
