//! Containers in the JSON of Docker and Podman.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use coracle_runtime::{Container, Health, Limits, MountPoint, Protocol, PublishedPort};
use coracle_types::{ByteSize, ContainerStatus, Handle, IsolationKind, Result};
use serde::Deserialize;

use super::{array, digits, image_id, unreadable};

/// Containers of an `inspect`. What the engine cannot say of one is an error, never a guess.
pub(crate) fn containers(json: &[u8]) -> Result<Vec<Container>> {
    array::<ContainerJson>("inspect", json)?.into_iter().map(ContainerJson::read).collect()
}

/// The container of a handle among those of an `inspect`: engines take a short name for the first digits of an id as well.
pub(crate) fn container_of(handle: &Handle, json: &[u8]) -> Result<Option<Container>> {
    let is_meant = |it: &Container| match handle {
        Handle::Name(name) => it.name.eq_ignore_ascii_case(name.as_str()),
        Handle::IdPrefix(_) => true,
    };
    Ok(containers(json)?.into_iter().find(is_meant))
}

/// TCP ports on this host's loopback address that a container shall have, whether it runs or not.
pub(crate) fn wanted_ports(json: &[u8]) -> Result<Vec<u16>> {
    let containers = array::<ContainerJson>("inspect", json)?;
    let bindings = containers.into_iter().flat_map(|it| it.host_config.port_bindings.unwrap_or_default());
    let ports = bindings.flat_map(|(inside, hosts)| published(&inside, hosts.as_deref()));
    let on_loopback = |it: &PublishedPort| match it.address {
        IpAddr::V4(address) => address.is_unspecified() || address == Ipv4Addr::LOCALHOST,
        IpAddr::V6(address) => address.is_unspecified(),
    };
    let wanted = ports.filter(|it| it.protocol == Protocol::Tcp && it.host != 0 && on_loopback(it));
    Ok(wanted.map(|it| it.host).collect())
}

/// Bytes of a container's own layer, if they were requested.
pub(crate) fn written_bytes(json: &[u8]) -> Result<Option<u64>> {
    let all = array::<SizedJson>("inspect", json)?;
    Ok(all.into_iter().next().and_then(|it| it.size_rw))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerJson {
    id: String,
    name: String,
    image: String,
    created: String,
    state: StateJson,
    config: ConfigJson,
    host_config: HostConfigJson,
    #[serde(default)]
    network_settings: NetworkSettingsJson,
    #[serde(default)]
    mounts: Vec<MountJson>,
    #[serde(rename = "ExecIDs")]
    exec_ids: Option<Vec<serde::de::IgnoredAny>>,
    /// Podman's; in its `HostConfig` it says `oci`.
    #[serde(rename = "OCIRuntime")]
    oci_runtime: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateJson {
    status: String,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    exit_code: i64,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
    started_at: Option<String>,
    /// Docker's word, and Podman's since version 5.
    health: Option<HealthJson>,
    /// Podman's word before.
    healthcheck: Option<HealthJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SizedJson {
    size_rw: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HealthJson {
    #[serde(default)]
    status: String,
}

impl HealthJson {
    /// An image without a check reports neither value.
    fn read(self) -> Option<Health> {
        match self.status.as_str() {
            "starting" => Some(Health::Starting),
            "healthy" => Some(Health::Healthy),
            "unhealthy" => Some(Health::Unhealthy),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigJson {
    labels: Option<BTreeMap<String, String>>,
    env: Option<Vec<String>>,
    #[serde(default)]
    user: String,
    #[serde(default)]
    working_dir: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfigJson {
    #[serde(default)]
    network_mode: String,
    #[serde(default)]
    memory: i64,
    #[serde(default)]
    nano_cpus: i64,
    #[serde(default)]
    cpu_quota: i64,
    #[serde(default)]
    cpu_period: i64,
    pids_limit: Option<i64>,
    /// The runtime by the name that the engine's configuration gives it.
    #[serde(default)]
    runtime: String,
    port_bindings: Option<BTreeMap<String, Option<Vec<HostPortJson>>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettingsJson {
    ports: Option<BTreeMap<String, Option<Vec<HostPortJson>>>>,
    networks: Option<BTreeMap<String, serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostPortJson {
    #[serde(default)]
    host_ip: String,
    #[serde(default)]
    host_port: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MountJson {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(default)]
    source: PathBuf,
    destination: String,
    #[serde(rename = "RW", default)]
    writable: bool,
}

impl ContainerJson {
    fn read(self) -> Result<Container> {
        let status = status(&self.state.status)?;
        let ended = matches!(status, ContainerStatus::Exited | ContainerStatus::Dead);
        Ok(Container {
            id: digits("inspect", &self.id)?,
            name: self.name.trim_start_matches('/').to_owned(),
            image: image_id(&self.image)?,
            status,
            pid: (self.state.pid > 0).then_some(self.state.pid),
            exit_code: ended.then_some(self.state.exit_code),
            oom_killed: self.state.oom_killed,
            created: self.created,
            // Both engines say "year 1" for never.
            started_at: self.state.started_at.filter(|it| !it.is_empty() && !it.starts_with("0001-")),
            labels: self.config.labels.unwrap_or_default(),
            user: self.config.user,
            workdir: self.config.working_dir,
            env: self.config.env.unwrap_or_default(),
            ports: self
                .network_settings
                .ports
                .iter()
                .flatten()
                .flat_map(|(inside, hosts)| published(inside, hosts.as_deref()))
                .collect(),
            mounts: self.mounts.into_iter().map(MountJson::read).collect(),
            networks: networks(self.network_settings.networks, &self.host_config.network_mode),
            limits: self.host_config.limits(),
            execs: self.exec_ids.map_or(0, |it| it.len()),
            health: self.state.health.or(self.state.healthcheck).and_then(HealthJson::read),
            lifetime_over: None,
            isolation: isolation(self.oci_runtime.as_deref().unwrap_or(&self.host_config.runtime)),
        })
    }
}

/// By the usual names of runtimes: an engine's configuration may give others, which tell nothing.
fn isolation(runtime: &str) -> Option<IsolationKind> {
    let name = runtime.rsplit('/').next().unwrap_or_default();
    match name {
        "crun" | "runc" | "youki" | "io.containerd.runc.v2" => Some(IsolationKind::Namespaces),
        _ if name.contains("runsc") => Some(IsolationKind::Gvisor),
        _ if name.contains("kata") => Some(IsolationKind::VirtualMachine),
        _ => None,
    }
}

/// A rootless Podman keeps a container on a network that it does not list.
fn networks(listed: Option<BTreeMap<String, serde::de::IgnoredAny>>, mode: &str) -> Vec<String> {
    let listed: Vec<_> = listed.unwrap_or_default().into_keys().collect();
    let unlisted = listed.is_empty() && !matches!(mode, "" | "none");
    if unlisted { vec![mode.to_owned()] } else { listed }
}

impl HostConfigJson {
    fn limits(&self) -> Limits {
        let share = (self.cpu_period > 0 && self.cpu_quota > 0).then(|| self.cpu_quota as f64 / self.cpu_period as f64);
        Limits {
            memory: (self.memory > 0).then_some(ByteSize(self.memory.unsigned_abs())),
            cpus: if self.nano_cpus > 0 { Some(self.nano_cpus as f64 / 1e9) } else { share },
            pids: self.pids_limit.and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0),
        }
    }
}

impl MountJson {
    fn read(self) -> MountPoint {
        let is_bind = self.kind == "bind";
        MountPoint { source: self.source, target: self.destination, writable: self.writable, is_bind }
    }
}

/// A container port on each of its host addresses; a port that is only exposed has none.
fn published(inside: &str, hosts: Option<&[HostPortJson]>) -> Vec<PublishedPort> {
    let (port, protocol) = inside.split_once('/').unwrap_or((inside, "tcp"));
    let protocol = if protocol == "udp" { Protocol::Udp } else { Protocol::Tcp };
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let read = |it: &HostPortJson| {
        let (container, host) = (port.parse().ok()?, it.host_port.parse().ok()?);
        Some(PublishedPort { container, host, address: it.host_ip.parse().unwrap_or(any), protocol })
    };
    hosts.into_iter().flatten().filter_map(read).collect()
}

/// Podman has more words for the same states.
fn status(word: &str) -> Result<ContainerStatus> {
    Ok(match word {
        "created" | "configured" | "initialized" => ContainerStatus::Created,
        "running" => ContainerStatus::Running,
        "paused" => ContainerStatus::Paused,
        "restarting" => ContainerStatus::Restarting,
        "exited" | "stopped" => ContainerStatus::Exited,
        "dead" | "removing" | "stopping" => ContainerStatus::Dead,
        other => return Err(unreadable("inspect", &format_args!("unknown status `{other}`"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspected(name: &str, image: &str, state: &str) -> String {
        let id = "a".repeat(64);
        format!(
            r#"[{{"Id":"{id}","Name":"{name}","Image":"{image}","Created":"2026-01-01T00:00:00Z","State":{state},
            "Config":{{"Labels":null,"Env":["PATH=/bin"]}},
            "HostConfig":{{"Memory":1024,"NanoCpus":1500000000,"PidsLimit":64,
              "PortBindings":{{"80/tcp":[{{"HostIp":"127.0.0.1","HostPort":"8080"}}],"81/tcp":[{{"HostPort":""}}]}}}},
            "NetworkSettings":{{"Ports":{{"80/tcp":[{{"HostIp":"127.0.0.1","HostPort":"8080"}}],"9/udp":null}},"Networks":{{"n":{{}}}}}},
            "Mounts":[{{"Type":"bind","Source":"/s","Destination":"/d","RW":true}}]}}]"#
        )
    }

    fn docker() -> String {
        let state = r#"{"Status":"running","Pid":42,"ExitCode":0,"StartedAt":"2026-01-01T00:00:01Z"}"#;
        inspected("/web", &format!("sha256:{}", "b".repeat(64)), state)
    }

    fn podman() -> String {
        let state =
            r#"{"Status":"running","Pid":42,"ExitCode":0,"OOMKilled":false,"StartedAt":"2026-01-01T00:00:01Z"}"#;
        inspected("web", &"b".repeat(64), state)
    }

    #[test]
    fn both_engines_tell_the_same_container() {
        let (docker, podman) = (containers(docker().as_bytes()).unwrap(), containers(podman().as_bytes()).unwrap());
        assert_eq!(docker, podman);
        let it = &docker[0];
        assert_eq!((it.name.as_str(), it.pid, it.running()), ("web", Some(42), true));
        assert_eq!(it.ports[0].to_string(), "127.0.0.1:8080->80/tcp");
        assert_eq!(it.limits, Limits { memory: Some(ByteSize(1024)), cpus: Some(1.5), pids: Some(64) });
    }

    #[test]
    fn runtimes_are_known_by_their_usual_names() {
        for (name, expected) in [
            ("runc", Some(IsolationKind::Namespaces)),
            ("/usr/bin/crun", Some(IsolationKind::Namespaces)),
            ("runsc-kvm", Some(IsolationKind::Gvisor)),
            ("io.containerd.kata.v2", Some(IsolationKind::VirtualMachine)),
            ("mine", None),
            ("", None),
        ] {
            assert_eq!(isolation(name), expected, "{name}");
        }
    }

    #[test]
    fn a_network_that_is_not_listed_is_known_by_its_mode() {
        assert_eq!(networks(None, "slirp4netns"), ["slirp4netns"]);
        assert_eq!(networks(Some(BTreeMap::new()), "none"), [""; 0]);
    }

    #[test]
    fn a_container_that_never_ran_has_no_start_and_no_exit() {
        let state = r#"{"Status":"created","Pid":0,"ExitCode":0,"StartedAt":"0001-01-01T00:00:00Z"}"#;
        let it = &containers(inspected("web", &"b".repeat(64), state).as_bytes()).unwrap()[0];
        assert_eq!((it.started_at.as_deref(), it.exit_code, it.pid), (None, None, None));
    }

    #[test]
    fn wanted_host_ports_are_the_fixed_ones_of_the_loopback_address() {
        assert_eq!(wanted_ports(docker().as_bytes()).unwrap(), [8080]);
        let bound = |from: &str, to: &str| wanted_ports(docker().replace(from, to).as_bytes()).unwrap();
        assert_eq!(bound(r#""127.0.0.1""#, r#""""#), [8080]);
        assert_eq!(bound(r#""80/tcp""#, r#""80/udp""#), [0; 0]);
        assert_eq!(bound(r#""127.0.0.1""#, r#""192.0.2.1""#), [0; 0]);
    }

    #[test]
    fn an_answer_cut_anywhere_is_an_error_and_no_guess() {
        let whole = docker();
        for end in 0..whole.len() {
            assert!(containers(&whole.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        assert!(containers(whole.replace("running", "dancing").as_bytes()).is_err());
    }
}
