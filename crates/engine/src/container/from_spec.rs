//! Converts a request to a container's configuration.

use coracle_protocol::paths;
use coracle_runtime::{Access, GuestDelivery, Image, NetworkAttachment, Placed};
use coracle_types::{Capability, ContainerId, Ids, Result, random_hex};

use crate::config::{ContainerConfig, HostLine, Init, MountConfig, NetworkConfig, NetworkMode, ServiceConfig};
use crate::engine::Engine;
use crate::error::unsupported;
use crate::health_check::HealthCheck;
use crate::isolation::capabilities;
use crate::network::NetworkRecords;

/// The default for images without `PATH`.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// PID 1 of a container without a guest, which only waits.
const WAIT: [&str; 2] = ["sleep", "2147483647"];

const RUN_BYTES: u64 = 16 << 20;
const SPILL_BYTES: u64 = 64 << 20;

pub(super) fn config_of(engine: &Engine, placed: &Placed, image: &Image) -> Result<ContainerConfig> {
    let spec = placed.spec();
    if engine.privileges.has_single_user() && spec.exec_user != Ids::ROOT {
        return Err(unsupported(Capability::OtherUsers));
    }
    let user = if spec.is_rootless_inside() { spec.exec_user } else { Ids::ROOT };
    let mut labels = image.labels.clone();
    labels.extend(spec.labels.clone());
    let id = ContainerId::parse(random_hex::<32>()).map_err(|err| super::unreadable("create", &err))?;
    Ok(ContainerConfig {
        ids: Some(engine.privileges.map_for(&id)),
        service: spec.image_health.then(|| health_of(engine, image)).transpose()?,
        id,
        name: spec.name.clone(),
        image: image.id.clone(),
        created: jiff::Timestamp::now().to_string(),
        hostname: spec.hostname(),
        init: init_of(placed),
        env: environment(image),
        user,
        workdir: "/".to_owned(),
        mounts: mounts_of(placed, user),
        read_only: spec.read_only,
        network: NetworkConfig {
            mode: match placed.network() {
                NetworkAttachment::EngineDefault | NetworkAttachment::Alone => NetworkMode::Outgoing,
                NetworkAttachment::None => NetworkMode::None,
                NetworkAttachment::Host => NetworkMode::Host,
                NetworkAttachment::Id(handle) => {
                    NetworkMode::Named(NetworkRecords::new(&engine.directories).required_id(handle)?)
                }
            },
            ports: spec.ports.clone(),
            ports_bind: placed.ports_bind(),
        },
        hosts: spec.add_hosts.iter().map(|it| HostLine { name: it.name.clone(), address: it.address }).collect(),
        limits: spec.limits,
        nofile: spec.ulimits.nofile,
        core: spec.ulimits.core,
        capabilities: capabilities::bits(spec.capabilities),
        labels,
        inherited_stubs: Vec::new(),
        runtime: engine.runtime,
    })
}

fn health_of(engine: &Engine, image: &Image) -> Result<ServiceConfig> {
    Ok(ServiceConfig { health: HealthCheck::of_image(engine, &image.id)?, ..ServiceConfig::default() })
}

fn environment(image: &Image) -> Vec<String> {
    let has_path = image.env.iter().any(|it| it.starts_with("PATH="));
    image.env.iter().cloned().chain((!has_path).then(|| PATH.to_owned())).collect()
}

fn init_of(placed: &Placed) -> Init {
    match placed.guest() {
        Some(GuestDelivery::Bound { program, link }) => Init::Guest {
            program: Some(program.clone()),
            worker: placed.worker().map(ToOwned::to_owned),
            link: Some(link.clone()),
            lifeline: placed.spec().lifeline.map(|it| it.as_secs()),
        },
        Some(GuestDelivery::Uploaded) => Init::Guest {
            program: None,
            worker: None,
            link: None,
            lifeline: placed.spec().lifeline.map(|it| it.as_secs()),
        },
        None => Init::Command(WAIT.map(str::to_owned).to_vec()),
    }
}

/// Returns the mounts in Docker's order: tmpfs first, then volumes, then binds.
fn mounts_of(placed: &Placed, owner: Ids) -> Vec<MountConfig> {
    let spec = placed.spec();
    let of_guest = placed.guest().is_some();
    let private =
        |target: &str, bytes, mode| MountConfig::Tmpfs { target: target.into(), bytes, mode, owner, exec: false };
    // The guest spills output that exceeds its memory into this directory, which must be writable.
    let spill = (of_guest && spec.read_only).then(|| private(paths::DIR, SPILL_BYTES, 0o755));
    let run_mode = if spec.is_rootless_inside() { 0o700 } else { 0o755 };
    let run = of_guest.then(|| private(paths::RUN, RUN_BYTES, run_mode));
    let tmpfs = spec.tmpfs.iter().map(|it| MountConfig::Tmpfs {
        target: it.at.to_string(),
        bytes: it.size.0,
        mode: it.mode,
        owner,
        exec: true,
    });
    let volumes = spec.volumes.iter().map(|it| MountConfig::Volume {
        name: it.name.to_string(),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
        as_in_image: spec.is_rootless_inside() && it.access == Access::ReadWrite,
    });
    let binds = spec.mounts.iter().map(|it| MountConfig::Bind {
        source: it.host.real().to_owned(),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
    });
    spill.into_iter().chain(run).chain(tmpfs).chain(volumes).chain(binds).collect()
}
