//! From a service of an admitted model to what its container is made of.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coracle_runtime::{
    ByteSize, ContainerId, ContainerName, Image, Limits, Port, ProjectName, Protocol, Result, StackUp, random_hex,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::health::check_of_service;
use super::mounts::{self, ServiceMounts};
use super::user::{self, ServiceUser};
use super::{labels, refused};
use crate::config::{ContainerConfig, HostLine, Init, NetworkConfig, NetworkMode, ServiceConfig};
use crate::engine::Engine;
use crate::isolation::capabilities;

/// Where programs of an image are found that names no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Keys of a service that are read here.
const READ: [&str; 24] = [
    "image",
    "command",
    "entrypoint",
    "environment",
    "user",
    "working_dir",
    "labels",
    "ports",
    "volumes",
    "tmpfs",
    "configs",
    "secrets",
    "read_only",
    "mem_limit",
    "cpus",
    "pids_limit",
    "shm_size",
    "ulimits",
    "cap_add",
    "networks",
    "network_mode",
    "extra_hosts",
    "healthcheck",
    "stop_signal",
];

/// Keys that mean nothing here: every container has it so, or others act on them.
const WITHOUT_EFFECT: [&str; 15] = [
    "cap_drop",
    "security_opt",
    "restart",
    "pull_policy",
    "logging",
    "memswap_limit",
    "expose",
    "init",
    "depends_on",
    "scale",
    "hostname",
    "links",
    "stop_grace_period",
    "tty",
    "stdin_open",
];

/// One container of a service that is to be.
#[derive(Debug)]
pub(super) struct ServiceContainer<'a> {
    pub(super) stack: &'a StackUp,
    pub(super) name: &'a str,
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) image: &'a Image,
}

impl ServiceContainer<'_> {
    pub(super) fn model(&self) -> &Value {
        &self.stack.model["services"][self.name]
    }

    pub(super) fn container_name(&self) -> Result<ContainerName> {
        let name = format!("{}-{}-{}", self.stack.project, self.name, self.number);
        ContainerName::parse(&name).map_err(|err| refused(&err.to_string()))
    }

    /// A digest of what it is made of: another one means that it has to be made anew.
    pub(super) fn fingerprint(&self) -> String {
        let parts = [self.model().to_string(), self.image.id.to_string(), self.stack.model["configs"].to_string()];
        hex::encode(Sha256::digest(parts.join("\0")))
    }

    /// The configuration, and the files that its mounts show.
    pub(super) fn config(&self, engine: &Engine) -> Result<(ContainerConfig, ServiceMounts)> {
        let model = self.model();
        self.only_known(model)?;
        let id = ContainerId::parse(random_hex::<32>()).map_err(|err| refused(&err.to_string()))?;
        let asked = text(model, "user").filter(|it| !it.is_empty()).unwrap_or(&self.image.config.user);
        let user = user::resolve(engine, &self.image.id, asked).map_err(|why| self.refused("user", &why))?;
        let hostname = text(model, "hostname").map_or_else(|| id.short().to_owned(), str::to_owned);
        let mounts = mounts::of_service(self, &id, engine)?;
        let image_dir = self.image.config.workdir.as_str();
        let workdir = text(model, "working_dir").filter(|it| !it.is_empty()).unwrap_or(image_dir);
        let health = check_of_service(engine, &self.image.id, &model["healthcheck"])?;
        let config = ContainerConfig {
            inherited_stubs: Vec::new(),
            ids: Some(engine.privileges.map_for(&id)),
            name: self.container_name()?,
            image: self.image.id.clone(),
            created: jiff::Timestamp::now().to_string(),
            init: Init::Command(self.words()?),
            env: self.environment(&user, &hostname),
            user: user.ids,
            workdir: if workdir.is_empty() { "/".into() } else { workdir.into() },
            mounts: mounts.configs.clone(),
            read_only: model["read_only"] == true,
            network: self.network()?,
            hosts: self.hosts()?,
            limits: self.limits()?,
            nofile: self.ulimit("nofile")?.map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
            core: self.ulimit("core")?,
            capabilities: if user.ids.is_root() { self.capabilities() } else { 0 },
            labels: self.labels(),
            service: Some(ServiceConfig {
                aliases: self.aliases(),
                stop_signal: text(model, "stop_signal").map(signal).transpose()?,
                health,
            }),
            runtime: engine.runtime,
            hostname,
            id,
        };
        Ok((config, mounts))
    }

    pub(super) fn refused(&self, key: &str, why: &str) -> coracle_runtime::Error {
        refused(&format!("service `{}`: `{key}` {why}", self.name))
    }

    /// A key that is neither read nor known to mean nothing is told, never ignored.
    fn only_known(&self, model: &Value) -> Result<()> {
        for (key, value) in model.as_object().into_iter().flatten() {
            let known = READ.contains(&key.as_str()) || WITHOUT_EFFECT.contains(&key.as_str()) || value.is_null();
            if !known {
                return Err(self.refused(key, "is not supported by the embedded engine: use docker or podman"));
            }
        }
        Ok(())
    }

    /// As Docker: an entrypoint of its own makes the image's command void.
    fn words(&self) -> Result<Vec<String>> {
        let image = &self.image.config;
        let of_model = |key: &str| Some(words(&self.model()[key])).filter(|it| !it.is_empty());
        let (entrypoint, command) = (of_model("entrypoint"), of_model("command"));
        let usual = if entrypoint.is_some() { Vec::new() } else { image.cmd.clone() };
        let mut words = entrypoint.unwrap_or_else(|| image.entrypoint.clone());
        words.extend(command.unwrap_or(usual));
        if words.is_empty() { Err(self.refused("command", "is missing, in the image too")) } else { Ok(words) }
    }

    fn environment(&self, user: &ServiceUser, hostname: &str) -> Vec<String> {
        let mut all = BTreeMap::from([("PATH", PATH), ("HOME", user.home.as_str()), ("HOSTNAME", hostname)]);
        all.extend(self.image.env.iter().filter_map(|it| it.split_once('=')));
        let own = self.model()["environment"].as_object().into_iter().flatten();
        all.extend(own.filter_map(|(name, it)| Some((name.as_str(), it.as_str()?))));
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.image.labels.clone();
        labels.extend(labels::of_file(self.model()));
        labels.extend([
            (labels::PROJECT.into(), self.stack.project.to_string()),
            (labels::SERVICE.into(), self.name.to_owned()),
            (labels::NUMBER.into(), self.number.to_string()),
            (labels::ONE_OFF.into(), "False".into()),
            (labels::FINGERPRINT.into(), self.fingerprint()),
        ]);
        labels
    }

    fn limits(&self) -> Result<Limits> {
        let model = self.model();
        let memory = mounts::size(&model["mem_limit"]).map(ByteSize);
        let pids = model["pids_limit"].as_u64().and_then(|it| u32::try_from(it).ok());
        Ok(Limits { memory, cpus: model["cpus"].as_f64(), pids })
    }

    /// The hard limit: one number holds for both.
    fn ulimit(&self, wanted: &str) -> Result<Option<u64>> {
        for (name, _) in self.model()["ulimits"].as_object().into_iter().flatten() {
            if !["nofile", "core"].contains(&name.as_str()) {
                return Err(self.refused(&format!("ulimits.{name}"), "is not supported by the embedded engine"));
            }
        }
        let limit = &self.model()["ulimits"][wanted];
        Ok(limit.as_u64().or_else(|| limit["hard"].as_u64()).or_else(|| limit["soft"].as_u64()))
    }

    fn capabilities(&self) -> u64 {
        capabilities::bits_of(&words(&self.model()["cap_add"]))
    }

    fn network(&self) -> Result<NetworkConfig> {
        let model = self.model();
        let networks: Vec<_> = model["networks"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        let mode = match (text(model, "network_mode"), networks.as_slice()) {
            (Some("none"), _) => NetworkMode::None,
            (Some(mode), _) => return Err(self.refused("network_mode", &format!("may be `none` here, not `{mode}`"))),
            (None, [name]) => NetworkMode::Named(super::parts::network_name(self.stack, name)),
            (None, []) => NetworkMode::None,
            (None, _) => return Err(self.refused("networks", "may be one here: a container is on one network")),
        };
        let mut ports = Vec::new();
        let mut ports_bind = IpAddr::from([127, 0, 0, 1]);
        for entry in model["ports"].as_array().into_iter().flatten() {
            let host = entry["published"].as_str().and_then(|it| it.parse().ok());
            let container = entry["target"].as_u64().and_then(|it| u16::try_from(it).ok());
            let container = container.ok_or_else(|| self.refused("ports", "has an entry without a target"))?;
            let protocol = if entry["protocol"] == "udp" { Protocol::Udp } else { Protocol::Tcp };
            ports.push(Port { container, host, protocol });
            if let Some(address) = entry["host_ip"].as_str().and_then(|it| it.parse().ok()) {
                ports_bind = address;
            }
        }
        Ok(NetworkConfig { mode, ports, ports_bind })
    }

    /// Lines of `NAME:ADDRESS`.
    fn hosts(&self) -> Result<Vec<HostLine>> {
        let mut lines = Vec::new();
        for line in words(&self.model()["extra_hosts"]) {
            let (name, address) = line.split_once([':', '=']).unwrap_or((&line, ""));
            let parsed = address.parse().ok();
            if parsed.is_none() && address != "host-gateway" {
                return Err(self.refused("extra_hosts", &format!("has no address in `{line}`")));
            }
            lines.push(HostLine { name: name.to_owned(), address: parsed });
        }
        Ok(lines)
    }

    /// Names on its network: the service's, those of the file, and those that links of other services give it.
    fn aliases(&self) -> Vec<String> {
        let mut names = vec![self.name.to_owned()];
        for (_, how) in self.model()["networks"].as_object().into_iter().flatten() {
            names.extend(words(&how["aliases"]));
        }
        for (_, other) in self.stack.model["services"].as_object().into_iter().flatten() {
            let links = words(&other["links"]);
            let of_us = links.iter().filter_map(|it| it.split_once(':')).filter(|(to, _)| *to == self.name);
            names.extend(of_us.map(|(_, alias)| alias.to_owned()));
        }
        names.sort();
        names.dedup();
        names
    }
}

fn text<'a>(model: &'a Value, key: &str) -> Option<&'a str> {
    model[key].as_str()
}

pub(super) fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// A name with or without `SIG`, or a number.
fn signal(text: &str) -> Result<i32> {
    let name = text.to_ascii_uppercase();
    let known = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("TERM", libc::SIGTERM),
        ("WINCH", libc::SIGWINCH),
        ("ABRT", libc::SIGABRT),
        ("ALRM", libc::SIGALRM),
        ("CONT", libc::SIGCONT),
        ("PWR", libc::SIGPWR),
    ];
    let named = known.iter().find(|(it, _)| *it == name.trim_start_matches("SIG")).map(|(_, number)| *number);
    let number = named.or_else(|| name.parse().ok());
    let valid = number.filter(|it| known.iter().any(|(_, known)| known == it));
    valid.ok_or_else(|| refused(&format!("stop_signal: `{text}` is no signal")))
}

/// The project whose name a network or volume of ours begins with.
pub(super) fn full_name(project: &ProjectName, name: &str) -> String {
    format!("{project}_{name}")
}
