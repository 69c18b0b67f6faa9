//! The limits of a service: lowered to the maximum, and set to the default if the file has none.

use coracle_runtime::stack_model::{Amounts, Deploy, Device, Resources, Service};
use coracle_types::ByteSize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Admission;
use super::keys::Keys;
use crate::diagnostics::{Location, Violation};

/// Maximum number of containers of one service.
const MAX_REPLICAS: u64 = 5;

/// Keys of `deploy` that only apply to clusters.
const OF_CLUSTERS: &[&str] =
    &["mode", "endpoint_mode", "placement", "update_config", "rollback_config", "restart_policy"];

/// Capabilities of GPUs.
const OF_GPUS: &[&str] = &["gpu", "nvidia", "compute", "utility", "video", "graphics"];

impl Admission<'_> {
    /// `mem_limit` and similar keys have the same meaning as those of `deploy`; one of them is passed on.
    pub(super) fn limits(&mut self, keys: &mut Keys<'_>, service: &mut Service) {
        let deploy = self.deploy(keys);
        let Resources { limits, reservations } = deploy.resources;
        let (policy, default) = (self.rules.policy, &self.rules.default_limits);

        // Zero and negative values mean no limit to engines.
        let memory = self.either::<ByteSize>(keys, "mem_limit", limits.memory).filter(|it| it.0 > 0);
        service.mem_limit = memory.or(default.memory).map(|it| it.min(policy.memory_max));
        // The same number, so that no swap is added.
        service.memswap_limit = service.mem_limit;

        let cpus = self.either::<f64>(keys, "cpus", limits.cpus).filter(|it| *it > 0.0);
        let cpus = cpus.or(default.cpus).or(policy.cpus_max);
        service.cpus = cpus.map(|it| policy.cpus_max.map_or(it, |max| it.min(max)));

        let pids = self.either::<i64>(keys, "pids_limit", limits.pids).filter(|it| *it > 0);
        let pids = pids.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        service.pids_limit = Some(pids.or(default.pids).unwrap_or(policy.pids_max).min(policy.pids_max));

        let shm_size: Option<ByteSize> = self.take(keys, "shm_size");
        service.shm_size = shm_size.map(|it| it.min(policy.memory_max));

        let scale = self.either::<u64>(keys, "scale", deploy.replicas).map(|it| it.min(MAX_REPLICAS));
        service.scale = scale.filter(|it| *it != 1);

        let mut devices = reservations.devices;
        devices.extend(self.items::<Device>(keys, "gpus"));
        service.deploy = self.gpus(keys.location, devices);
    }

    /// Reads a value that may be at two places, where it has to be the same.
    fn either<T: DeserializeOwned + PartialEq>(
        &mut self,
        keys: &mut Keys<'_>,
        key: &str,
        deployed: Option<T>,
    ) -> Option<T> {
        let own: Option<T> = self.take(keys, key);
        if own.is_some() && deployed.is_some() && own != deployed {
            self.refuse(keys.location, Violation::new(key, ""), "has another value than `deploy`");
        }
        own.or(deployed)
    }

    fn deploy(&mut self, keys: &mut Keys<'_>) -> Deploy {
        let deploy: Map<String, Value> = self.take(keys, "deploy");
        let mut deploy = Keys::within(keys.location, "deploy", deploy);
        deploy.ignore(OF_CLUSTERS);
        self.labels(&mut deploy);
        let read = self.copy(&mut deploy, &["replicas", "resources"]);
        self.refuse_rest(deploy, "is not allowed in a stack");
        read
    }

    /// Accepts GPUs, and no other device.
    fn gpus(&mut self, location: Location<'_>, mut devices: Vec<Device>) -> Option<Deploy> {
        for device in &mut devices {
            if device.capabilities.is_empty() {
                device.capabilities.push("gpu".to_owned());
            }
            let is_gpu = device.capabilities.iter().all(|it| OF_GPUS.contains(&it.as_str()));
            if !is_gpu || device.driver.as_deref().is_some_and(|it| it != "nvidia") {
                self.refuse(location, Violation::new("devices", ""), "may be GPUs, and nothing else");
                return None;
            }
            device.count = device.count.or(Some(-1)).filter(|_| device.device_ids.is_empty());
        }
        if devices.is_empty() {
            return None;
        }
        if !self.rules.policy.allow_gpu {
            let violation = Violation::new("gpus", "").unless("security.allow_gpu");
            self.refuse(location, violation, "are not granted");
        }
        self.gpu = true;
        let reservations = Amounts { devices, ..Amounts::default() };
        Some(Deploy { replicas: None, resources: Resources { limits: Amounts::default(), reservations } })
    }
}
