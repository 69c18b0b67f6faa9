//! Saves the state of a fake engine to a directory and loads it again: containers with their files, images, networks, volumes.
//!
//! A test of an upgrade needs the containers that the records of an earlier version name, under the same ids. The format has
//! types of its own, because files that an earlier version saved must stay readable when the types of this crate change.
//!
//! State in memory is not saved, as in a reboot: processes, jobs, and variables and secrets that guests hold.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_archive::restore::restore;
use coracle_archive::tar::{Reader, Writer, pack_tree};
use coracle_types::{ByteSize, ContainerId, ContainerPath, ContainerStatus, ImageId, VolumeName};
use serde::{Deserialize, Serialize};

use super::containers::FakeContainer;
use super::files::ContainerFiles;
use super::images::StoredImage;
use super::networks::{gateways, subnets};
use super::volumes::Content;
use super::{EngineState, FakeRuntime};
use crate::{
    Access, Container, Image, ImageConfig, Limits, MountPoint, Network, Port, Protocol, Tmpfs, Volume, VolumeMount,
};

const LIST: &str = "engine.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct EngineDump {
    images: Vec<ImageDump>,
    networks: Vec<NetworkDump>,
    volumes: Vec<VolumeDump>,
    containers: Vec<ContainerDump>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ImageDump {
    id: String,
    tags: Vec<String>,
    digest: Option<String>,
    labels: BTreeMap<String, String>,
    env: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    user: String,
    workdir: String,
    arch: String,
    size_bytes: u64,
    created: String,
    /// It has a tar; otherwise its files are those of the local image.
    own_files: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct NetworkDump {
    id: String,
    name: String,
    labels: BTreeMap<String, String>,
    internal: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct VolumeDump {
    name: String,
    labels: BTreeMap<String, String>,
    created: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct ContainerDump {
    id: String,
    name: String,
    image: String,
    running: bool,
    exit_code: Option<i64>,
    created: String,
    started_at: Option<String>,
    labels: BTreeMap<String, String>,
    env: Vec<String>,
    networks: Vec<String>,
    memory_bytes: Option<u64>,
    cpus: Option<f64>,
    pids: Option<u32>,
    guest: bool,
    ports_bind: IpAddr,
    ports: Vec<PortDump>,
    volumes: Vec<MountDump>,
    tmpfs: Vec<TmpfsDump>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PortDump {
    container: u16,
    host: Option<u16>,
    udp: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct MountDump {
    volume: String,
    at: String,
    writable: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct TmpfsDump {
    at: String,
    mode: u32,
}

impl FakeRuntime {
    /// Saves its state to a directory: a list in JSON, and a tar for the files of each container, image and volume.
    ///
    /// # Errors
    /// Any error of the file system; [`io::ErrorKind::Unsupported`] for a container with a bind mount.
    pub fn save_to(&self, dir: &Path) -> io::Result<()> {
        let dump = self.with(|state| {
            let images = state.images.iter().map(|it| dump_image(dir, it)).collect::<io::Result<_>>()?;
            let volumes = state.volumes.iter().map(|it| dump_volume(dir, state, it)).collect::<io::Result<_>>()?;
            let containers = state.containers.values().map(|it| dump_container(dir, it)).collect::<io::Result<_>>()?;
            let networks = state.networks.iter().filter(|it| !it.labels.is_empty()).map(dump_network).collect();
            Ok::<_, io::Error>(EngineDump { images, networks, volumes, containers })
        })?;
        fs::write(dir.join(LIST), serde_json::to_string_pretty(&dump)? + "\n")
    }

    /// Adds the state that another engine [saved](Self::save_to) to its own. Containers that were running are started, each with
    /// a new guest.
    ///
    /// # Errors
    /// Any error of the file system; [`io::ErrorKind::Other`] for an invalid name or path in the list.
    pub fn load_from(&self, dir: &Path) -> io::Result<()> {
        let dump: EngineDump = serde_json::from_slice(&fs::read(dir.join(LIST))?)?;
        let engine = Arc::downgrade(&self.state);
        self.with(|state| {
            dump.images.into_iter().try_for_each(|it| state.load_image(dir, it))?;
            state.networks.extend(dump.networks.into_iter().map(loaded_network));
            dump.volumes.into_iter().try_for_each(|it| state.load_volume(dir, it))?;
            for container in dump.containers {
                let running = container.running;
                let id = state.load_container(dir, container)?;
                if running {
                    state.start(&id, engine.clone()).map_err(io::Error::other)?;
                }
            }
            Ok(())
        })
    }
}

/// The tar with the files of a container, image or volume. The id of an image has a colon.
fn tar_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{}.tar", name.replace(':', "-")))
}

fn dump_image(dir: &Path, stored: &StoredImage) -> io::Result<ImageDump> {
    let image = stored.image.clone();
    if let Some(layer) = &stored.layer {
        let mut layer = layer.try_clone()?;
        layer.rewind()?;
        io::copy(&mut layer, &mut File::create(tar_of(dir, image.id.as_str()))?)?;
    }
    Ok(ImageDump {
        id: image.id.to_string(),
        tags: image.tags,
        digest: image.digest,
        labels: image.labels,
        env: image.env,
        entrypoint: image.config.entrypoint,
        cmd: image.config.cmd,
        user: image.config.user,
        workdir: image.config.workdir,
        arch: image.arch,
        size_bytes: image.size_bytes,
        created: image.created,
        own_files: stored.layer.is_some(),
    })
}

fn dump_network(network: &Network) -> NetworkDump {
    let Network { id, name, labels, internal, .. } = network.clone();
    NetworkDump { id, name, labels, internal }
}

fn dump_volume(dir: &Path, state: &EngineState, volume: &Volume) -> io::Result<VolumeDump> {
    let Volume { name, labels, created } = volume.clone();
    if let Some(content) = state.contents.get(&name) {
        let mut tar = Writer::new(File::create(tar_of(dir, &name))?);
        pack_tree(&mut tar, &content.place(), Path::new("."))?;
        tar.finish()?;
    }
    Ok(VolumeDump { name, labels, created })
}

fn dump_container(dir: &Path, machine: &FakeContainer) -> io::Result<ContainerDump> {
    if machine.files.has_binds() {
        let message = format!("`{}` has a bind mount, which cannot be saved", machine.seen.name);
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let seen = machine.seen.clone();
    let (mut layer, _) = machine.files.layer().map_err(io::Error::other)?;
    io::copy(&mut layer, &mut File::create(tar_of(dir, seen.id.as_str()))?)?;
    let volume = |it: &VolumeMount| MountDump {
        volume: it.name.to_string(),
        at: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
    };
    Ok(ContainerDump {
        id: seen.id.to_string(),
        image: seen.image.to_string(),
        running: matches!(seen.status, ContainerStatus::Running | ContainerStatus::Paused),
        exit_code: seen.exit_code,
        name: seen.name,
        created: seen.created,
        started_at: seen.started_at,
        labels: seen.labels,
        env: seen.env,
        networks: seen.networks,
        memory_bytes: seen.limits.memory.map(|it| it.0),
        cpus: seen.limits.cpus,
        pids: seen.limits.pids,
        guest: machine.guided,
        ports_bind: machine.published.0,
        ports: machine.published.1.iter().map(dump_port).collect(),
        volumes: machine.volumes.iter().map(volume).collect(),
        tmpfs: tmpfs(machine)?,
    })
}

fn dump_port(port: &Port) -> PortDump {
    PortDump { container: port.container, host: port.host, udp: port.protocol == Protocol::Udp }
}

fn loaded_port(dump: &PortDump) -> Port {
    let protocol = if dump.udp { Protocol::Udp } else { Protocol::Tcp };
    Port { container: dump.container, host: dump.host, protocol }
}

/// Its tmpfs mounts, with their permission bits.
fn tmpfs(machine: &FakeContainer) -> io::Result<Vec<TmpfsDump>> {
    let is_volume = |at: &ContainerPath| machine.volumes.iter().any(|it| it.at == *at);
    let dump = |at: &ContainerPath| {
        let path = machine.files.root().join(at.as_str().trim_start_matches('/'));
        let mode = path.metadata()?.permissions().mode() & 0o7777;
        Ok(TmpfsDump { at: at.to_string(), mode })
    };
    machine.files.mount_points().iter().filter(|it| !is_volume(it)).map(dump).collect()
}

fn loaded_network(network: NetworkDump) -> Network {
    let NetworkDump { id, name, labels, internal } = network;
    Network { id, name, labels, internal, gateways: gateways(), subnets: subnets() }
}

impl EngineState {
    fn load_image(&mut self, dir: &Path, dump: ImageDump) -> io::Result<()> {
        let layer = dump.own_files.then(|| File::open(tar_of(dir, &dump.id))).transpose()?;
        let image = Image {
            id: ImageId::parse(dump.id).map_err(io::Error::other)?,
            tags: dump.tags,
            digest: dump.digest,
            labels: dump.labels,
            env: dump.env,
            config: ImageConfig { entrypoint: dump.entrypoint, cmd: dump.cmd, user: dump.user, workdir: dump.workdir },
            volumes: Vec::new(),
            arch: dump.arch,
            size_bytes: dump.size_bytes,
            created: dump.created,
        };
        self.add_image(StoredImage { image, layer: layer.map(Arc::new) });
        Ok(())
    }

    fn load_volume(&mut self, dir: &Path, dump: VolumeDump) -> io::Result<()> {
        let VolumeDump { name, labels, created } = dump;
        let (content, files) = (Content::new()?, tar_of(dir, &name));
        if files.exists() {
            restore(&mut Reader::open(File::open(files)?)?, File::open(content.home())?, Path::new(""))?;
        }
        self.contents.insert(name.clone(), content);
        self.volumes.push(Volume { name, labels, created });
        Ok(())
    }

    fn load_container(&mut self, dir: &Path, dump: ContainerDump) -> io::Result<ContainerId> {
        let id = ContainerId::parse(&dump.id).map_err(io::Error::other)?;
        let volumes = dump.volumes.iter().map(loaded_mount).collect::<io::Result<Vec<_>>>()?;
        let tmpfs = dump.tmpfs.iter().map(loaded_tmpfs).collect::<io::Result<Vec<_>>>()?;
        let tar = tar_of(dir, &dump.id);
        let files = ContainerFiles::create(Some(Arc::new(File::open(&tar)?)), Vec::new(), &volumes, &tmpfs);
        let files = Arc::new(files.map_err(io::Error::other)?);
        self.lend(&files, &volumes).map_err(io::Error::other)?;
        let (published, guided) = ((dump.ports_bind, dump.ports.iter().map(loaded_port).collect()), dump.guest);
        let mut machine = FakeContainer::new(loaded_seen(id.clone(), dump, &volumes)?, files, published);
        (machine.volumes, machine.guided, machine.programs) = (volumes, guided, self.programs);
        self.containers.insert(id.clone(), machine);
        Ok(id)
    }
}

fn loaded_mount(dump: &MountDump) -> io::Result<VolumeMount> {
    let name = VolumeName::parse(&dump.volume).map_err(io::Error::other)?;
    let at = ContainerPath::parse(&dump.at).map_err(io::Error::other)?;
    Ok(VolumeMount { name, at, access: if dump.writable { Access::ReadWrite } else { Access::ReadOnly } })
}

fn loaded_tmpfs(dump: &TmpfsDump) -> io::Result<Tmpfs> {
    let at = ContainerPath::parse(&dump.at).map_err(io::Error::other)?;
    Ok(Tmpfs { at, size: ByteSize(0), mode: dump.mode })
}

fn loaded_seen(id: ContainerId, dump: ContainerDump, volumes: &[VolumeMount]) -> io::Result<Container> {
    let mount = |it: &VolumeMount| MountPoint {
        source: Path::new("/nonexistent/coracle-fake").join(it.name.as_str()),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
        is_bind: false,
    };
    Ok(Container {
        id,
        name: dump.name,
        image: ImageId::parse(&dump.image).map_err(io::Error::other)?,
        status: if dump.started_at.is_some() { ContainerStatus::Exited } else { ContainerStatus::Created },
        pid: None,
        exit_code: dump.exit_code,
        oom_killed: false,
        created: dump.created,
        started_at: dump.started_at,
        labels: dump.labels,
        user: String::new(),
        workdir: "/".into(),
        env: dump.env,
        ports: Vec::new(),
        mounts: volumes.iter().map(mount).collect(),
        networks: dump.networks,
        limits: Limits { memory: dump.memory_bytes.map(ByteSize), cpus: dump.cpus, pids: dump.pids },
        execs: 0,
        health: None,
        lifetime_over: None,
        isolation: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::volumes::Volumes as _;
    use crate::{ContainerRuntime, VolumeCreate};
    use coracle_types::Handle;

    #[tokio::test]
    async fn another_engine_loads_what_one_saved() {
        let (dir, first) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let (running, _link) = first.runs_guest("running").await;
        let stopped = first.runs("stopped").await;
        first.stop(&stopped, Duration::ZERO).await.unwrap();
        fs::write(first.root(&running).unwrap().join("tmp/a"), "saved").unwrap();
        let name = VolumeName::parse("data").unwrap();
        first.create_volume(&VolumeCreate { name, labels: Vec::new(), size: None }).await.unwrap();
        first.save_to(dir.path()).unwrap();

        let second = FakeRuntime::new();
        second.load_from(dir.path()).unwrap();
        for id in [&running, &stopped] {
            let of = async |engine: &FakeRuntime| engine.inspect(&Handle::from(id)).await.unwrap();
            let (was, is) = (of(&first).await, of(&second).await);
            assert_eq!(is, Container { pid: is.pid, started_at: is.started_at.clone(), ..was });
        }
        assert_eq!(fs::read_to_string(second.root(&running).unwrap().join("tmp/a")).unwrap(), "saved");
        assert_eq!(second.list_volumes(&crate::LabelFilter::default()).await.unwrap().len(), 1);
        let link = second.link(&running, None, coracle_client::LinkSettings::default()).await.unwrap();
        assert!(link.open().await.is_ok(), "its guest answers");
    }
}
