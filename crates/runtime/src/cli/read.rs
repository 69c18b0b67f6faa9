//! From an engine's JSON to our types. Pure.

pub(super) mod apple;
mod info;
mod stack;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(super) use self::info::info;
pub(super) use self::stack::{escaped, stack_model, volumes};
use super::Dialect;
use crate::{
    ByteSize, Container, ContainerId, Error, Health, Image, ImageConfig, ImageId, Limits, MountPoint, Network,
    Protocol, PublishedPort, Result, Status,
};

/// Containers of an `inspect`. What the engine cannot say of one is an error, never a guess.
pub(super) fn containers(dialect: Dialect, json: &[u8]) -> Result<Vec<Container>> {
    if dialect == Dialect::Apple {
        return apple::containers(json);
    }
    array::<ContainerJson>("inspect", json)?.into_iter().map(ContainerJson::read).collect()
}

/// Host ports that a container shall have, whether it runs or not.
pub(super) fn wanted_ports(json: &[u8]) -> Result<Vec<u16>> {
    let containers = array::<ContainerJson>("inspect", json)?;
    let bindings = containers.into_iter().flat_map(|it| it.host_config.port_bindings.unwrap_or_default());
    let ports = bindings.flat_map(|(_, hosts)| hosts.unwrap_or_default());
    Ok(ports.filter_map(|it| it.host_port.parse().ok()).filter(|port| *port != 0).collect())
}

/// Bytes of a container's own layer, where they were asked for.
pub(super) fn written_bytes(json: &[u8]) -> Result<Option<u64>> {
    let all = array::<SizedJson>("inspect", json)?;
    Ok(all.into_iter().next().and_then(|it| it.size_rw))
}

pub(super) fn images(json: &[u8]) -> Result<Vec<Image>> {
    array::<ImageJson>("image inspect", json)?.into_iter().map(ImageJson::read).collect()
}

pub(super) fn read_networks(json: &[u8]) -> Result<Vec<Network>> {
    Ok(array::<NetworkJson>("network inspect", json)?.into_iter().map(NetworkJson::read).collect())
}

/// Ids, one a line.
pub(super) fn ids(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output).split_whitespace().map(str::to_owned).collect()
}

/// The id that `create` printed last.
pub(super) fn created(dialect: Dialect, output: &[u8]) -> Result<ContainerId> {
    let last = ids(output).pop().unwrap_or_default();
    match dialect {
        Dialect::Docker | Dialect::Podman => digits("create", &last),
        Dialect::Apple => ContainerId::parse(last).map_err(|err| unreadable("create", &err)),
    }
}

/// An id that the engine chose.
fn digits(verb: &'static str, text: &str) -> Result<ContainerId> {
    let id = ContainerId::parse(text).map_err(|err| unreadable(verb, &err))?;
    if id.is_digits() { Ok(id) } else { Err(unreadable(verb, &format_args!("`{id}` is not an id"))) }
}

/// The id that `commit` printed last.
pub(super) fn committed(output: &[u8]) -> Result<ImageId> {
    image_id(&ids(output).pop().unwrap_or_default())
}

fn array<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<Vec<T>> {
    one(verb, json)
}

fn one<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|err| unreadable(verb, &err))
}

fn unreadable(verb: &'static str, err: &dyn std::fmt::Display) -> Error {
    Error::Unreadable { verb, detail: err.to_string() }
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
    /// Neither word is told for an image without a check.
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
    #[serde(default)]
    source: PathBuf,
    destination: String,
    #[serde(rename = "RW", default)]
    writable: bool,
}

impl ContainerJson {
    fn read(self) -> Result<Container> {
        let status = status(&self.state.status)?;
        let ended = matches!(status, Status::Exited | Status::Dead);
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
            ports: self.network_settings.ports.iter().flatten().flat_map(published).collect(),
            mounts: self.mounts.into_iter().map(MountJson::read).collect(),
            networks: networks(self.network_settings.networks, &self.host_config.network_mode),
            limits: self.host_config.limits(),
            execs: self.exec_ids.map_or(0, |it| it.len()),
            health: self.state.health.or(self.state.healthcheck).and_then(HealthJson::read),
        })
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
        MountPoint { source: self.source, target: self.destination, writable: self.writable }
    }
}

/// One container port on each of its host addresses; a port that is only exposed has none.
fn published((inside, hosts): (&String, &Option<Vec<HostPortJson>>)) -> Vec<PublishedPort> {
    let (port, protocol) = inside.split_once('/').unwrap_or((inside, "tcp"));
    let protocol = if protocol == "udp" { Protocol::Udp } else { Protocol::Tcp };
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let read = |it: &HostPortJson| {
        let (container, host) = (port.parse().ok()?, it.host_port.parse().ok()?);
        Some(PublishedPort { container, host, address: it.host_ip.parse().unwrap_or(any), protocol })
    };
    hosts.iter().flatten().filter_map(read).collect()
}

/// Podman has more words for the same states.
fn status(word: &str) -> Result<Status> {
    Ok(match word {
        "created" | "configured" | "initialized" => Status::Created,
        "running" => Status::Running,
        "paused" => Status::Paused,
        "restarting" => Status::Restarting,
        "exited" | "stopped" => Status::Exited,
        "dead" | "removing" | "stopping" => Status::Dead,
        other => return Err(unreadable("inspect", &format_args!("unknown status `{other}`"))),
    })
}

/// Docker says `sha256:…`, Podman only the digits.
fn image_id(text: &str) -> Result<ImageId> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    ImageId::parse(format!("sha256:{digits}")).map_err(|err| unreadable("inspect", &err))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageJson {
    id: String,
    repo_tags: Option<Vec<String>>,
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    config: Option<ImageConfigJson>,
    architecture: String,
    #[serde(default)]
    size: u64,
    created: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct ImageConfigJson {
    labels: Option<BTreeMap<String, String>>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    volumes: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    #[serde(default)]
    user: String,
    #[serde(default)]
    working_dir: String,
}

impl From<ImageConfigJson> for ImageConfig {
    /// What can be said in several ways is said in one: engines cannot take back what a container was made with, so that
    /// an image of one names root and the root directory where its own image is silent.
    fn from(it: ImageConfigJson) -> Self {
        let words = |words: Option<Vec<String>>| words.filter(|it| it[..] != [""]).unwrap_or_default();
        let is_root = matches!(it.user.as_str(), "0" | "root" | "0:0" | "root:root");
        Self {
            entrypoint: words(it.entrypoint),
            cmd: words(it.cmd),
            user: if is_root { String::new() } else { it.user },
            workdir: if it.working_dir == "/" { String::new() } else { it.working_dir },
        }
    }
}

impl ImageJson {
    fn read(self) -> Result<Image> {
        let mut config = self.config.unwrap_or_default();
        Ok(Image {
            id: image_id(&self.id)?,
            tags: self.repo_tags.unwrap_or_default(),
            digest: self.repo_digests.unwrap_or_default().first().and_then(|it| Some(it.split_once('@')?.1.to_owned())),
            labels: config.labels.take().unwrap_or_default(),
            env: config.env.iter().flatten().filter(|it| *it != "HOSTNAME=").cloned().collect(),
            volumes: config.volumes.iter().flatten().map(|(path, _)| path.clone()).collect(),
            config: ImageConfig::from(config),
            arch: self.architecture,
            size_bytes: self.size,
            created: self.created,
        })
    }
}

/// Docker writes `Name`, Podman `name`.
#[derive(Deserialize)]
struct NetworkJson {
    #[serde(alias = "Id")]
    id: String,
    #[serde(alias = "Name")]
    name: String,
    #[serde(alias = "Labels")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, alias = "Internal")]
    internal: bool,
    /// Docker's.
    #[serde(default, rename = "IPAM")]
    ipam: Option<IpamJson>,
    /// Podman's.
    #[serde(default)]
    subnets: Option<Vec<SubnetJson>>,
}

#[derive(Deserialize)]
struct IpamJson {
    #[serde(rename = "Config")]
    config: Option<Vec<SubnetJson>>,
}

#[derive(Deserialize)]
struct SubnetJson {
    #[serde(default, alias = "Gateway")]
    gateway: Option<String>,
    #[serde(default, alias = "Subnet")]
    subnet: Option<String>,
}

impl NetworkJson {
    fn read(self) -> Network {
        let told = || self.subnets.iter().chain(self.ipam.iter().filter_map(|it| it.config.as_ref())).flatten();
        Network {
            // Some versions of Docker write it with the length of its subnet.
            gateways: told().filter_map(|it| it.gateway.as_ref()?.split('/').next()?.parse().ok()).collect(),
            subnets: told().filter_map(|it| it.subnet.as_ref()?.parse().ok()).collect(),
            id: self.id,
            name: self.name,
            labels: self.labels.unwrap_or_default(),
            internal: self.internal,
        }
    }
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
        let (docker, podman) = (
            containers(Dialect::Docker, docker().as_bytes()).unwrap(),
            containers(Dialect::Podman, podman().as_bytes()).unwrap(),
        );
        assert_eq!(docker, podman);
        let it = &docker[0];
        assert_eq!((it.name.as_str(), it.pid, it.running()), ("web", Some(42), true));
        assert_eq!(it.ports[0].to_string(), "127.0.0.1:8080->80/tcp");
        assert_eq!(it.limits, Limits { memory: Some(ByteSize(1024)), cpus: Some(1.5), pids: Some(64) });
    }

    #[test]
    fn both_engines_tell_the_same_image_that_was_committed() {
        let image = |id: &str, config: &str| {
            let json = format!(
                r#"[{{"Id":"{id}","RepoTags":["x:1"],"RepoDigests":[],"Config":{config},"Architecture":"amd64","Size":7,
                "Created":"2026-01-01T00:00:00Z"}}]"#
            );
            images(json.as_bytes()).unwrap().remove(0)
        };
        let docker = image(
            &format!("sha256:{}", "b".repeat(64)),
            r#"{"User":"0:0","Env":["A=b"],"Entrypoint":[""],"Cmd":["x"],"WorkingDir":"/","Volumes":null,"Labels":null}"#,
        );
        let podman = image(&"b".repeat(64), r#"{"User":"root","Env":["A=b","HOSTNAME="],"Cmd":["x"]}"#);
        assert_eq!(docker, podman);
        assert_eq!(docker.config, ImageConfig { cmd: vec!["x".into()], ..ImageConfig::default() });
        assert_eq!(image(&"b".repeat(64), r#"{"Volumes":{"/data":{}}}"#).volumes, ["/data"]);
    }

    #[test]
    fn both_engines_tell_the_same_addresses_of_a_network() {
        let docker = br#"[{"Id":"a","Name":"n","Labels":{},"Internal":true,
            "IPAM":{"Driver":"default","Config":[{"Subnet":"172.18.0.0/16","Gateway":"172.18.0.1/16"}]}}]"#;
        let podman = br#"[{"id":"a","name":"n","labels":{},"internal":true,
            "subnets":[{"subnet":"172.18.0.0/16","gateway":"172.18.0.1"}]}]"#;
        let [docker, podman] = [&docker[..], podman].map(|it| read_networks(it).unwrap().remove(0));
        assert_eq!(docker, podman);
        assert!(docker.subnets[0].contains(&docker.gateways[0]));
        assert_eq!(docker.subnets[0].prefix_len(), 16);
        let none = read_networks(br#"[{"Id":"a","Name":"none","IPAM":{"Config":[{"Subnet":"odd"}]}}]"#).unwrap();
        assert!(none[0].subnets.is_empty() && none[0].gateways.is_empty());
    }

    #[test]
    fn a_network_that_is_not_listed_is_told_by_its_mode() {
        assert_eq!(networks(None, "slirp4netns"), ["slirp4netns"]);
        assert_eq!(networks(Some(BTreeMap::new()), "none"), [""; 0]);
    }

    #[test]
    fn a_container_that_never_ran_has_no_start_and_no_exit() {
        let state = r#"{"Status":"created","Pid":0,"ExitCode":0,"StartedAt":"0001-01-01T00:00:00Z"}"#;
        let it = &containers(Dialect::Podman, inspected("web", &"b".repeat(64), state).as_bytes()).unwrap()[0];
        assert_eq!((it.started_at.as_deref(), it.exit_code, it.pid), (None, None, None));
    }

    #[test]
    fn wanted_host_ports_are_the_fixed_ones() {
        assert_eq!(wanted_ports(docker().as_bytes()).unwrap(), [8080]);
    }

    #[test]
    fn an_answer_cut_anywhere_is_an_error_and_no_guess() {
        let whole = docker();
        for end in 0..whole.len() {
            assert!(containers(Dialect::Docker, &whole.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        assert!(containers(Dialect::Docker, whole.replace("running", "dancing").as_bytes()).is_err());
    }

    #[test]
    fn rootless_podman_on_version_1_keeps_no_limit() {
        let json = r#"{"host":{"arch":"amd64","cgroupVersion":"v1","security":{"rootless":true}},
            "store":{"graphRoot":"/g"},"version":{"Version":"4.3.1"}}"#;
        let it = info(Dialect::Podman, json.as_bytes(), ("local", "/root".as_ref())).unwrap();
        assert_eq!((it.version.as_str(), it.ignored_limits.join(" ").as_str()), ("4.3.1", "memory cpus pids"));
    }
}
