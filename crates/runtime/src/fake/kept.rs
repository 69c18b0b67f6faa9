//! What an engine holds, written down: containers with their files, images, networks and volumes.
//!
//! A test that begins with the state directory of an earlier version needs the containers of its records, under the same
//! ids. The format is its own: files that were written once are read by every later version, so what is in it is not named
//! by the types of this crate.
//!
//! What is in memory is lost, as when the machine is started anew: processes, jobs, and what guests had.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::containers::Machine;
use super::files::Files;
use super::images::Stored;
use super::networks::{gateways, subnets};
use super::volumes::Content;
use super::{FakeRuntime, State};
use crate::{
    Access, ByteSize, Container, ContainerId, ContainerPath, Image, ImageConfig, ImageId, Limits, MountPoint, Network,
    Port, Status, Tmpfs, Volume, VolumeMount, VolumeName,
};

const LIST: &str = "engine.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    images: Vec<KeptImage>,
    networks: Vec<KeptNetwork>,
    volumes: Vec<KeptVolume>,
    containers: Vec<KeptContainer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptImage {
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
    /// A tar beside the list has its files; else they are those of the local image.
    own_files: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptNetwork {
    id: String,
    name: String,
    labels: BTreeMap<String, String>,
    internal: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptVolume {
    name: String,
    labels: BTreeMap<String, String>,
    created: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptContainer {
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
    ports: Vec<Port>,
    volumes: Vec<KeptMount>,
    in_memory: Vec<KeptTmpfs>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptMount {
    volume: String,
    at: String,
    writable: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptTmpfs {
    at: String,
    mode: u32,
}

impl FakeRuntime {
    /// Writes all that it holds to a directory: a list in JSON, and a tar for the files of each container, image and volume.
    ///
    /// # Errors
    /// Whatever the file system says. [`io::ErrorKind::Unsupported`] for a container that has something of the host bound.
    pub fn keep(&self, dir: &Path) -> io::Result<()> {
        let kept = self.with(|state| {
            let images = state.images.iter().map(|it| keep_image(dir, it)).collect::<io::Result<_>>()?;
            let volumes = state.volumes.iter().map(|it| keep_volume(dir, state, it)).collect::<io::Result<_>>()?;
            let containers = state.containers.values().map(|it| keep_container(dir, it)).collect::<io::Result<_>>()?;
            let networks = state.networks.iter().filter(|it| !it.labels.is_empty()).map(keep_network).collect();
            Ok::<_, io::Error>(Kept { images, networks, volumes, containers })
        })?;
        fs::write(dir.join(LIST), serde_json::to_string_pretty(&kept)? + "\n")
    }

    /// Takes up what another engine [wrote](Self::keep), beside what this one holds. Containers that ran are started, with
    /// guests that know nothing of before.
    ///
    /// # Errors
    /// Whatever the file system says, and [`io::ErrorKind::Other`] for what is not what was written.
    pub fn take_up(&self, dir: &Path) -> io::Result<()> {
        let kept: Kept = serde_json::from_slice(&fs::read(dir.join(LIST))?)?;
        let engine = Arc::downgrade(&self.state);
        self.with(|state| {
            kept.images.into_iter().try_for_each(|it| state.take_image(dir, it))?;
            state.networks.extend(kept.networks.into_iter().map(taken_network));
            kept.volumes.into_iter().try_for_each(|it| state.take_volume(dir, it))?;
            for container in kept.containers {
                let running = container.running;
                let id = state.take_container(dir, container)?;
                if running {
                    state.start(&id, engine.clone()).map_err(io::Error::other)?;
                }
            }
            Ok(())
        })
    }
}

/// Where the files of something are. The id of an image has a colon.
fn tar_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{}.tar", name.replace(':', "-")))
}

fn keep_image(dir: &Path, stored: &Stored) -> io::Result<KeptImage> {
    let image = stored.image.clone();
    if let Some(layer) = &stored.layer {
        let mut layer = layer.try_clone()?;
        layer.rewind()?;
        io::copy(&mut layer, &mut File::create(tar_of(dir, image.id.as_str()))?)?;
    }
    Ok(KeptImage {
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

fn keep_network(network: &Network) -> KeptNetwork {
    let Network { id, name, labels, internal, .. } = network.clone();
    KeptNetwork { id, name, labels, internal }
}

fn keep_volume(dir: &Path, state: &State, volume: &Volume) -> io::Result<KeptVolume> {
    let Volume { name, labels, created } = volume.clone();
    if let Some(content) = state.contents.get(&name) {
        let mut tar = tar::Builder::new(File::create(tar_of(dir, &name))?);
        tar.follow_symlinks(false);
        tar.append_dir_all(".", content.place())?;
        tar.finish()?;
    }
    Ok(KeptVolume { name, labels, created })
}

fn keep_container(dir: &Path, machine: &Machine) -> io::Result<KeptContainer> {
    if machine.files.has_binds() {
        let message = format!("`{}` has something of the host bound, which is not kept", machine.seen.name);
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let seen = machine.seen.clone();
    let (mut layer, _) = machine.files.layer().map_err(io::Error::other)?;
    io::copy(&mut layer, &mut File::create(tar_of(dir, seen.id.as_str()))?)?;
    let volume = |it: &VolumeMount| KeptMount {
        volume: it.name.to_string(),
        at: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
    };
    Ok(KeptContainer {
        id: seen.id.to_string(),
        image: seen.image.to_string(),
        running: matches!(seen.status, Status::Running | Status::Paused),
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
        ports: machine.published.1.clone(),
        volumes: machine.volumes.iter().map(volume).collect(),
        in_memory: in_memory(machine)?,
    })
}

/// The directories in memory, with the bits that they have.
fn in_memory(machine: &Machine) -> io::Result<Vec<KeptTmpfs>> {
    let is_volume = |at: &ContainerPath| machine.volumes.iter().any(|it| it.at == *at);
    let kept = |at: &ContainerPath| {
        let path = machine.files.root().join(at.as_str().trim_start_matches('/'));
        let mode = path.metadata()?.permissions().mode() & 0o7777;
        Ok(KeptTmpfs { at: at.to_string(), mode })
    };
    machine.files.apart().iter().filter(|it| !is_volume(it)).map(kept).collect()
}

fn taken_network(network: KeptNetwork) -> Network {
    let KeptNetwork { id, name, labels, internal } = network;
    Network { id, name, labels, internal, gateways: gateways(), subnets: subnets() }
}

impl State {
    fn take_image(&mut self, dir: &Path, kept: KeptImage) -> io::Result<()> {
        let layer = kept.own_files.then(|| File::open(tar_of(dir, &kept.id))).transpose()?;
        let image = Image {
            id: ImageId::parse(kept.id).map_err(io::Error::other)?,
            tags: kept.tags,
            digest: kept.digest,
            labels: kept.labels,
            env: kept.env,
            config: ImageConfig { entrypoint: kept.entrypoint, cmd: kept.cmd, user: kept.user, workdir: kept.workdir },
            volumes: Vec::new(),
            arch: kept.arch,
            size_bytes: kept.size_bytes,
            created: kept.created,
        };
        self.add_image(Stored { image, layer: layer.map(Arc::new) });
        Ok(())
    }

    fn take_volume(&mut self, dir: &Path, kept: KeptVolume) -> io::Result<()> {
        let KeptVolume { name, labels, created } = kept;
        let (content, files) = (Content::new()?, tar_of(dir, &name));
        if files.exists() {
            let mut tar = tar::Archive::new(File::open(files)?);
            tar.set_preserve_ownerships(rustix::process::geteuid().is_root());
            tar.unpack(content.home())?;
        }
        self.contents.insert(name.clone(), content);
        self.volumes.push(Volume { name, labels, created });
        Ok(())
    }

    fn take_container(&mut self, dir: &Path, kept: KeptContainer) -> io::Result<ContainerId> {
        let id = ContainerId::parse(&kept.id).map_err(io::Error::other)?;
        let volumes = kept.volumes.iter().map(taken_mount).collect::<io::Result<Vec<_>>>()?;
        let tmpfs = kept.in_memory.iter().map(taken_tmpfs).collect::<io::Result<Vec<_>>>()?;
        let tar = tar_of(dir, &kept.id);
        let files = Files::make(Some(Arc::new(File::open(&tar)?)), Vec::new(), (&volumes, &tmpfs));
        let files = Arc::new(files.map_err(io::Error::other)?);
        set_times(files.root(), &tar)?;
        self.lend(&files, &volumes).map_err(io::Error::other)?;
        let (published, guided) = ((kept.ports_bind, kept.ports.clone()), kept.guest);
        let mut machine = Machine::new(taken_seen(id.clone(), kept, &volumes)?, files, published);
        (machine.volumes, machine.guided, machine.programs) = (volumes, guided, self.programs);
        self.containers.insert(id.clone(), machine);
        Ok(id)
    }
}

fn taken_mount(kept: &KeptMount) -> io::Result<VolumeMount> {
    let name = VolumeName::parse(&kept.volume).map_err(io::Error::other)?;
    let at = ContainerPath::parse(&kept.at).map_err(io::Error::other)?;
    Ok(VolumeMount { name, at, access: if kept.writable { Access::ReadWrite } else { Access::ReadOnly } })
}

fn taken_tmpfs(kept: &KeptTmpfs) -> io::Result<Tmpfs> {
    let at = ContainerPath::parse(&kept.at).map_err(io::Error::other)?;
    Ok(Tmpfs { at, size: ByteSize(0), mode: kept.mode })
}

fn taken_seen(id: ContainerId, kept: KeptContainer, volumes: &[VolumeMount]) -> io::Result<Container> {
    let mount = |it: &VolumeMount| MountPoint {
        source: Path::new("/nonexistent/coracle-fake").join(it.name.as_str()),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
    };
    Ok(Container {
        id,
        name: kept.name,
        image: ImageId::parse(&kept.image).map_err(io::Error::other)?,
        status: if kept.started_at.is_some() { Status::Exited } else { Status::Created },
        pid: None,
        exit_code: kept.exit_code,
        oom_killed: false,
        created: kept.created,
        started_at: kept.started_at,
        labels: kept.labels,
        user: String::new(),
        workdir: "/".into(),
        env: kept.env,
        ports: Vec::new(),
        mounts: volumes.iter().map(mount).collect(),
        networks: kept.networks,
        limits: Limits { memory: kept.memory_bytes.map(ByteSize), cpus: kept.cpus, pids: kept.pids },
        execs: 0,
        health: None,
    })
}

/// Files keep the time of their last change: by it what was written in a container is told from what was there before.
fn set_times(root: &Path, tar: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(File::open(tar)?).entries()? {
        let entry = entry?;
        if entry.header().entry_type().is_file() {
            let at = UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?);
            File::open(root.join(entry.path()?))?.set_modified(at)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContainerRuntime, Handle, Stacks, VolumeAct};

    #[tokio::test]
    async fn another_engine_takes_up_what_one_held() {
        let (dir, first) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let (running, _link) = first.runs_guest("running").await;
        let stopped = first.runs("stopped").await;
        first.stop(&stopped, Duration::ZERO).await.unwrap();
        fs::write(first.root(&running).unwrap().join("tmp/a"), "kept").unwrap();
        let name = VolumeName::parse("data").unwrap();
        first.volume(VolumeAct::Create { name, labels: Vec::new(), size: None }).await.unwrap();
        first.keep(dir.path()).unwrap();

        let second = FakeRuntime::new();
        second.take_up(dir.path()).unwrap();
        for id in [&running, &stopped] {
            let of = async |engine: &FakeRuntime| engine.inspect(&Handle::from(id)).await.unwrap();
            let (was, is) = (of(&first).await, of(&second).await);
            assert_eq!(is, Container { pid: is.pid, started_at: is.started_at.clone(), ..was });
        }
        assert_eq!(fs::read_to_string(second.root(&running).unwrap().join("tmp/a")).unwrap(), "kept");
        assert_eq!(second.volume(VolumeAct::List(crate::LabelFilter::default())).await.unwrap().len(), 1);
        let link = second.link(&running, None, crate::link::LinkSettings::default()).await.unwrap();
        assert!(link.open().await.is_ok(), "its guest answers");
    }
}
