//! Engines' information about themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_engine_program::json::oci_arch;
use coracle_runtime::EngineInfo;
use coracle_types::{EngineKind, Result};
use serde::Deserialize;

use super::one;
use crate::Dialect;

pub(crate) fn info(dialect: Dialect, json: &[u8], endpoint: &str) -> Result<EngineInfo> {
    match dialect {
        Dialect::Docker => Ok(one::<DockerInfo>("info", json)?.read(endpoint)),
        Dialect::Podman => Ok(one::<PodmanInfo>("info", json)?.read(endpoint)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerInfo {
    server_version: String,
    architecture: String,
    #[serde(default)]
    cgroup_version: String,
    docker_root_dir: PathBuf,
    #[serde(default)]
    driver: Option<String>,
    #[serde(default)]
    security_options: Vec<String>,
    #[serde(default)]
    runtimes: BTreeMap<String, serde::de::IgnoredAny>,
    #[serde(default = "yes")]
    memory_limit: bool,
    #[serde(default = "yes")]
    pids_limit: bool,
    #[serde(default = "yes", rename = "CpuCfsQuota")]
    cpu_quota: bool,
}

fn yes() -> bool {
    true
}

impl DockerInfo {
    fn read(self, endpoint: &str) -> EngineInfo {
        let has = |word: &str| self.security_options.iter().any(|it| it.contains(word));
        let limits = [("memory", self.memory_limit), ("pids", self.pids_limit), ("cpus", self.cpu_quota)];
        EngineInfo {
            kind: EngineKind::Docker,
            version: self.server_version,
            endpoint: endpoint.to_owned(),
            rootless: has("rootless"),
            single_user: false,
            arch: oci_arch(&self.architecture),
            cgroup: if self.cgroup_version == "2" { 2 } else { 1 },
            data_root: self.docker_root_dir,
            storage_driver: self.driver,
            compose_version: None,
            gpu: self.runtimes.contains_key("nvidia"),
            selinux: has("selinux"),
            ignored_limits: limits
                .iter()
                .filter(|(_, is_enforced)| !is_enforced)
                .map(|(name, _)| (*name).to_owned())
                .collect(),
        }
    }
}

#[derive(Deserialize)]
struct PodmanInfo {
    host: PodmanHost,
    store: PodmanStore,
    version: PodmanVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanHost {
    arch: String,
    cgroup_version: String,
    #[serde(default)]
    cgroup_controllers: Option<Vec<String>>,
    security: PodmanSecurity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanSecurity {
    rootless: bool,
    #[serde(default)]
    selinux_enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanStore {
    graph_root: PathBuf,
    #[serde(default)]
    graph_driver_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanVersion {
    version: String,
}

impl PodmanInfo {
    fn read(self, endpoint: &str) -> EngineInfo {
        let cgroup = if self.host.cgroup_version.trim_start_matches('v') == "2" { 2 } else { 1 };
        let controllers = self.host.cgroup_controllers.unwrap_or_default();
        let rootless = self.host.security.rootless;
        // Rootless Podman takes limits on version 1 and ignores them; on version 2 it needs the controller delegated.
        let ignored = |controller: &str| rootless && (cgroup == 1 || !controllers.iter().any(|it| it == controller));
        let limits = [("memory", "memory"), ("cpus", "cpu"), ("pids", "pids")];
        EngineInfo {
            kind: EngineKind::Podman,
            version: self.version.version,
            endpoint: endpoint.to_owned(),
            rootless,
            single_user: false,
            arch: oci_arch(&self.host.arch),
            cgroup,
            data_root: self.store.graph_root,
            storage_driver: self.store.graph_driver_name,
            compose_version: None,
            gpu: std::path::Path::new("/etc/cdi/nvidia.yaml").exists(),
            selinux: self.host.security.selinux_enabled,
            ignored_limits: limits.iter().filter(|it| ignored(it.1)).map(|it| it.0.to_owned()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rootless_podman_on_version_1_keeps_no_limit() {
        let json = r#"{"host":{"arch":"amd64","cgroupVersion":"v1","security":{"rootless":true}},
            "store":{"graphRoot":"/g","graphDriverName":"vfs"},"version":{"Version":"4.3.1"}}"#;
        let it = info(Dialect::Podman, json.as_bytes(), "local").unwrap();
        assert_eq!((it.version.as_str(), it.ignored_limits.join(" ").as_str()), ("4.3.1", "memory cpus pids"));
        assert_eq!(it.storage_driver.as_deref(), Some("vfs"));
    }
}
