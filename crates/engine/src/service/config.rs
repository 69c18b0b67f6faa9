//! Converts a service of an admitted model to the configuration of its container.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use coracle_runtime::stack_model::{Port as PublishedPort, Service};
use coracle_runtime::{Image, Limits, Port, StackUp};
use coracle_types::{ContainerId, ContainerName, Result, random_hex};
use sha2::{Digest as _, Sha256};

use super::health::check_of_service;
use super::mounts::{self, ServiceMounts};
use super::user::{self, ServiceUser};
use super::{labels, refused};
use crate::config::{ContainerConfig, HostLine, Init, NetworkConfig, NetworkMode, ServiceConfig};
use crate::engine::Engine;
use crate::isolation::capabilities;

/// The default for images without `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One container of a service to create.
#[derive(Debug)]
pub(super) struct ServiceContainer<'a> {
    pub(super) stack: &'a StackUp,
    pub(super) name: &'a str,
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) image: &'a Image,
}

impl ServiceContainer<'_> {
    pub(super) fn model(&self) -> &Service {
        &self.stack.model.services[self.name]
    }

    pub(super) fn container_name(&self) -> Result<ContainerName> {
        let name = format!("{}-{}-{}", self.stack.project, self.name, self.number);
        ContainerName::parse(&name).map_err(|err| refused(&err.to_string()))
    }

    /// A digest of its configuration. If the digest differs, the container is recreated.
    pub(super) fn fingerprint(&self) -> String {
        let parts = (self.model(), self.image.id.as_str(), &self.stack.model.configs);
        hex::encode(Sha256::digest(serde_json::to_vec(&parts).expect("a model has texts for keys")))
    }

    /// Returns the configuration, and the files that it mounts.
    pub(super) fn config(&self, engine: &Engine) -> Result<(ContainerConfig, ServiceMounts)> {
        let model = self.model();
        let id = ContainerId::parse(random_hex::<32>()).map_err(|err| refused(&err.to_string()))?;
        let requested = model.user.as_deref().unwrap_or(&self.image.config.user);
        let user = user::resolve(engine, &self.image.id, requested).map_err(|why| self.refused("user", &why))?;
        let hostname = model.hostname.clone().unwrap_or_else(|| id.short().to_owned());
        let mounts = mounts::of_service(self, &id, engine)?;
        let image_dir = self.image.config.workdir.as_str();
        let workdir = model.working_dir.as_deref().unwrap_or(image_dir);
        let health = check_of_service(engine, &self.image.id, model.healthcheck.as_ref())?;
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
            read_only: model.read_only,
            network: self.network(),
            hosts: self.hosts()?,
            limits: Limits { memory: model.mem_limit, cpus: model.cpus, pids: model.pids_limit },
            nofile: self.ulimit("nofile").map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
            core: self.ulimit("core"),
            capabilities: if user.ids.is_root() { capabilities::bits_of(&model.cap_add) } else { 0 },
            labels: self.labels(),
            service: Some(ServiceConfig {
                aliases: self.aliases(),
                stop_signal: model.stop_signal.as_deref().map(signal).transpose()?,
                health,
            }),
            runtime: engine.runtime,
            hostname,
            id,
        };
        Ok((config, mounts))
    }

    pub(super) fn refused(&self, key: &str, why: &str) -> coracle_types::Error {
        refused(&format!("service `{}`: `{key}` {why}", self.name))
    }

    /// As in Docker, an entrypoint of the service discards the image's command.
    fn words(&self) -> Result<Vec<String>> {
        let (image, model) = (&self.image.config, self.model());
        let set = |words: &Option<Vec<String>>| words.clone().filter(|it| !it.is_empty());
        let (entrypoint, command) = (set(&model.entrypoint), set(&model.command));
        let usual = if entrypoint.is_some() { Vec::new() } else { image.cmd.clone() };
        let mut words = entrypoint.unwrap_or_else(|| image.entrypoint.clone());
        words.extend(command.unwrap_or(usual));
        if words.is_empty() { Err(self.refused("command", "is missing, in the image too")) } else { Ok(words) }
    }

    fn environment(&self, user: &ServiceUser, hostname: &str) -> Vec<String> {
        let mut all = BTreeMap::from([("PATH", PATH), ("HOME", user.home.as_str()), ("HOSTNAME", hostname)]);
        all.extend(self.image.env.iter().filter_map(|it| it.split_once('=')));
        all.extend(self.model().environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.image.labels.clone();
        labels.extend(self.model().labels.clone());
        labels.extend([
            (labels::PROJECT.into(), self.stack.project.to_string()),
            (labels::SERVICE.into(), self.name.to_owned()),
            (labels::NUMBER.into(), self.number.to_string()),
            (labels::ONE_OFF.into(), "False".into()),
            (labels::FINGERPRINT.into(), self.fingerprint()),
        ]);
        labels
    }

    /// The hard limit.
    fn ulimit(&self, name: &str) -> Option<u64> {
        let limit = self.model().ulimits.get(name)?;
        limit.hard.or(limit.soft).and_then(|it| u64::try_from(it).ok())
    }

    fn network(&self) -> NetworkConfig {
        let model = self.model();
        let mode = match model.networks.keys().next() {
            Some(name) if model.network_mode.is_none() => {
                NetworkMode::Named(super::parts::network_name(self.stack, name))
            }
            _ => NetworkMode::None,
        };
        let port = |it: &PublishedPort| Port { container: it.target, host: it.published, protocol: it.protocol };
        let ports = model.ports.iter().map(port).collect();
        // The admission writes one address into all of them.
        let ports_bind = model.ports.iter().find_map(|port| port.host_ip);
        NetworkConfig { mode, ports, ports_bind: ports_bind.unwrap_or(Ipv4Addr::LOCALHOST.into()) }
    }

    /// Lines of `NAME:ADDRESS`.
    fn hosts(&self) -> Result<Vec<HostLine>> {
        let mut lines = Vec::new();
        for line in &self.model().extra_hosts {
            let (name, address) = line.split_once([':', '=']).unwrap_or((line, ""));
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
        names.extend(self.model().networks.values().flat_map(|it| it.aliases.clone()));
        let links = self.stack.model.services.values().flat_map(|service| &service.links);
        let of_us = links.filter_map(|link| link.split_once(':')).filter(|(to, _)| *to == self.name);
        names.extend(of_us.map(|(_, alias)| alias.to_owned()));
        names.sort();
        names.dedup();
        names
    }
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
