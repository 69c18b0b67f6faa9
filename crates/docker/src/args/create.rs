//! The arguments of `create` for Docker and Podman.

use std::path::Path;

use coracle_engine_program::argv::{SLEEP_SECONDS, init};
use coracle_protocol::paths;
use coracle_runtime::{Access, CreateSpec, GuestDelivery, NetworkAttachment, Placed, Port, Tmpfs, VolumeMount};
use coracle_types::Ids;

use super::{EngineArgs, EngineFacts};
use crate::Dialect;

pub(crate) fn create(dialect: Dialect, facts: EngineFacts, placed: &Placed) -> EngineArgs {
    let spec = placed.spec();
    let own = spec.is_rootless_inside().then_some(spec.exec_user);
    let it = EngineArgs::verb("create --pull=never --workdir=/").flag("user", own.unwrap_or(Ids::ROOT));
    let it = match placed.guest() {
        Some(guest) => with_guest(it, dialect, guest, placed),
        None => it.word("--init").word("--entrypoint=sleep"),
    };
    let it = it.flag("name", &spec.name).flag("hostname", spec.hostname());
    let it = privileges(it, dialect, facts, spec);
    let it = limits(it, facts, spec);
    let it = root(it, dialect, spec.read_only);
    let it = spec.tmpfs.iter().fold(it, |it, tmpfs| it.flag("tmpfs", in_memory(dialect, tmpfs, own)));
    let it = spec.volumes.iter().fold(it, |it, mount| volume(it, dialect, mount, own.is_some()));
    let it = spec.mounts.iter().fold(it, |it, mount| {
        bind(it, dialect, BindMount { source: mount.host.real(), target: mount.at.as_str(), access: mount.access })
    });
    let it = network(it, facts, placed);
    let it = it.words(["--ipc=private", "--cgroupns=private", "--restart=no"]);
    let it = if spec.image_health { it } else { it.word("--no-healthcheck") };
    let it = it.word("--log-driver=none");
    let it = it.words(["--stop-signal=SIGTERM", "--stop-timeout=10"]);
    let it = match dialect {
        Dialect::Docker => it,
        Dialect::Podman => it
            .words(["--http-proxy=false", "--systemd=false", "--sdnotify=ignore", "--image-volume=tmpfs"])
            // The container's own variables. A committed image has those of the container that it was committed from.
            .words(["--unsetenv=HOSTNAME", "--unsetenv=TERM", "--unsetenv=container"]),
    };
    let it = it.labels(&spec.labels).word("--").word(placed.image().as_str());
    if placed.guest().is_some() { init(it, spec) } else { it.word(SLEEP_SECONDS) }
}

/// The guest as PID 1, where it finds its sockets, and a place in memory for what must not reach a disk.
fn with_guest(it: EngineArgs, dialect: Dialect, guest: &GuestDelivery, placed: &Placed) -> EngineArgs {
    let it = it.flag("entrypoint", paths::PROGRAM);
    let (spec, of_guest) = (placed.spec(), "rw,noexec,nosuid,nodev");
    let own = spec.is_rootless_inside().then_some(spec.exec_user);
    // Files that are too large for its memory are written to disk next to it, so that place has to be writable.
    let spill = spec.read_only.then(|| format!("{}:{of_guest},size=64m,mode=0755", paths::DIR));
    let run = format!("{}:{of_guest},size=16m,mode=0{}", paths::RUN, if own.is_some() { "700" } else { "755" });
    let it = it.flags("tmpfs", spill.into_iter().chain([run]).map(|options| empty(dialect, options, own)));
    let GuestDelivery::Bound { program, link } = guest else { return it };
    let it = bind(it, dialect, BindMount { source: program, target: paths::PROGRAM, access: Access::ReadOnly });
    let it = bind(it, dialect, BindMount { source: link, target: paths::LINK, access: Access::ReadWrite });
    match placed.worker() {
        Some(worker) => {
            bind(it, dialect, BindMount { source: worker, target: paths::WORKER, access: Access::ReadOnly })
        }
        None => it,
    }
}

fn privileges(it: EngineArgs, dialect: Dialect, facts: EngineFacts, spec: &CreateSpec) -> EngineArgs {
    let it = it
        .flag("cap-drop", "ALL")
        .flags("cap-add", spec.capabilities.kernel_names())
        .flag("security-opt", "no-new-privileges");
    let it = if facts.selinux { it.flag("security-opt", "label=disable") } else { it };
    let it = match (dialect, spec.gpu) {
        (_, false) => it,
        (Dialect::Docker, true) => it.flag("gpus", "all"),
        (Dialect::Podman, true) => it.flag("device", "nvidia.com/gpu=all"),
    };
    let Ids { uid, gid } = spec.exec_user;
    let mapped = dialect == Dialect::Podman && facts.rootless && uid != 0;
    if mapped { it.flag("userns", format_args!("keep-id:uid={uid},gid={gid}")) } else { it }
}

/// Podman copies what the image has at its place into a tmpfs, and puts some of its own over a root that is read-only.
/// One that is not to be root's is given to PID 1.
fn empty(dialect: Dialect, tmpfs: String, owner: Option<Ids>) -> String {
    match (dialect, owner) {
        (Dialect::Docker, None) => tmpfs,
        (Dialect::Docker, Some(Ids { uid, gid })) => format!("{tmpfs},uid={uid},gid={gid}"),
        (Dialect::Podman, None) => format!("{tmpfs},notmpcopyup"),
        (Dialect::Podman, Some(_)) => format!("{tmpfs},notmpcopyup,U"),
    }
}

fn root(it: EngineArgs, dialect: Dialect, read_only: bool) -> EngineArgs {
    match (dialect, read_only) {
        (_, false) => it,
        (Dialect::Docker, true) => it.word("--read-only"),
        (Dialect::Podman, true) => it.word("--read-only").word("--read-only-tmpfs=false"),
    }
}

fn in_memory(dialect: Dialect, Tmpfs { at, size, mode }: &Tmpfs, owner: Option<Ids>) -> String {
    empty(dialect, format!("{at}:rw,exec,nosuid,nodev,size={},mode={mode:04o}", size.0), owner)
}

/// A new volume takes the owner of the image's directory where no process inside may change its owner: the engine sets
/// it when it copies the directory's content.
fn volume(
    it: EngineArgs,
    dialect: Dialect,
    VolumeMount { name, at, access }: &VolumeMount,
    as_in_image: bool,
) -> EngineArgs {
    let as_in_image = as_in_image && *access == Access::ReadWrite;
    match dialect {
        Dialect::Docker => {
            let readonly = if *access == Access::ReadOnly { ",readonly" } else { "" };
            let nocopy = if as_in_image { "" } else { ",volume-nocopy" };
            let target = csv(&format!("target={at}"));
            it.flag("mount", format_args!("type=volume,source={name},{target}{nocopy}{readonly}"))
        }
        Dialect::Podman => {
            let access = if *access == Access::ReadOnly { "ro" } else { "rw" };
            let copy = if as_in_image { "copy" } else { "nocopy" };
            it.flag("volume", format_args!("{name}:{at}:{access},{copy},nosuid,nodev"))
        }
    }
}

fn limits(it: EngineArgs, facts: EngineFacts, spec: &CreateSpec) -> EngineArgs {
    let memory = spec.limits.memory.map(|it| it.0);
    let (nofile, core) = (spec.ulimits.nofile.map(u64::from), spec.ulimits.core);
    let bounds = facts.bounds.filter(|_| nofile.or(core).is_some());
    let each = [("nofile", nofile.or(bounds.map(|it| it.0))), ("nproc", bounds.map(|it| it.1)), ("core", core)];
    let each = each.into_iter().filter_map(|(name, it)| it.map(|it| format!("{name}={it}:{it}")));
    it.option("memory", memory)
        .option("memory-swap", memory)
        .option("pids-limit", spec.limits.pids)
        .option("cpus", spec.limits.cpus)
        .flags("ulimit", each)
        .flag("shm-size", "256m")
}

#[derive(Clone, Copy)]
pub(super) struct BindMount<'a> {
    pub(super) source: &'a Path,
    pub(super) target: &'a str,
    pub(super) access: Access,
}

pub(super) fn bind(
    it: EngineArgs,
    dialect: Dialect,
    BindMount { source, target, access }: BindMount<'_>,
) -> EngineArgs {
    let source = source.to_str().unwrap_or_default();
    match dialect {
        Dialect::Docker => {
            let readonly = if access == Access::ReadOnly { ",readonly" } else { "" };
            let (source, target) = (csv(&format!("source={source}")), csv(&format!("target={target}")));
            it.flag("mount", format_args!("type=bind,{source},{target},bind-propagation=rprivate{readonly}"))
        }
        Dialect::Podman => {
            let access = if access == Access::ReadOnly { "ro" } else { "rw" };
            it.flag("volume", format_args!("{source}:{target}:{access},rprivate,nosuid,nodev"))
        }
    }
}

/// A field of a CSV line: in quotes when it holds a comma or a quote.
fn csv(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn network(it: EngineArgs, facts: EngineFacts, placed: &Placed) -> EngineArgs {
    let it = match placed.network() {
        NetworkAttachment::EngineDefault => it,
        NetworkAttachment::Alone => it.flag("network", facts.user_network.unwrap_or("slirp4netns")),
        NetworkAttachment::None => it.flag("network", "none"),
        NetworkAttachment::Host => it.flag("network", "host"),
        NetworkAttachment::Id(id) => it.flag("network", id),
    };
    let publish = |port: &Port| {
        let host = port.host.map_or_else(String::new, |it| it.to_string());
        format!("{}:{host}:{}/{}", placed.ports_bind(), port.container, port.protocol)
    };
    let hosts = placed.spec().add_hosts.iter().map(|entry| {
        let address = entry.address.or(facts.host_gateway);
        let address = address.map_or_else(|| "host-gateway".into(), |it| it.to_string());
        format!("{}:{address}", entry.name)
    });
    it.flags("publish", placed.spec().ports.iter().map(publish)).flags("add-host", hosts)
}
