//! The words of Apple's `container`.
//!
//! Its parser takes a value as the next word, knows no `--` before a name, and reads commas, equals signs and colons of
//! a mount as its own. So a value that cannot be encoded is refused here, before any program starts.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use coracle_engine_program::argv::{EngineArgs, SLEEP_SECONDS, dockerfile_value, init};
use coracle_protocol::paths;
use coracle_runtime::plain_exec::{ENTER, MARK};
use coracle_runtime::{
    Access, CreateSpec, GuestDelivery, LEAST_MEMORY, Limits, Mount, NetworkAttachment, Placed, Tmpfs, VolumeMount,
    whole_cpus,
};
use coracle_types::{ByteSize, Capability, ContainerId, ContainerPath, EngineKind, Error, Exec, Ids, ImageRef, Result};

const MIB: u64 = 1 << 20;

/// Variables of a command travel in variables of the engine's program, whole and under these names: a value is never an
/// argument, and no variable can change that program's behaviour.
const VARIABLE_PREFIX: &str = "CORACLE_ENV_";

/// The archive of a root file system, as a build finds it.
pub(super) const ROOT_FS: &str = "rootfs.tar";

/// Restores the variables that were carried, then does what [`ENTER`] does. `$1` is their number.
const TAKE: &str = r#"n=$1; shift; while [ "$n" -gt 0 ]; do n=$((n-1)); eval "export \"\$CORACLE_ENV_$n\""; unset "CORACLE_ENV_$n"; done; "#;

/// Sets owners that a copy cannot carry: pairs of lines, owner and path.
const OWN: &str = r#"while IFS= read -r owner && IFS= read -r path; do chown -h -- "$owner" "$path" || exit 1; done"#;

fn not_encodable(what: &'static str, value: &str, why: &'static str) -> Error {
    Error::NotEncodable { engine: EngineKind::Container, what, value: value.to_owned(), why }
}

fn lacks(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Container, capability }
}

/// A text in a place where an option could be.
fn name<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.is_empty() || text.starts_with('-') {
        return Err(not_encodable(what, text, "is empty or begins with `-`"));
    }
    Ok(text)
}

/// The image of a container: how the engine finds it, and whether it has a user of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) reference: ImageRef,
    pub(super) has_user: bool,
}

/// A container. What it is made with is decided one concern after the other, in the order of the table.
pub(super) fn create(placed: &Placed, base: &Base) -> Result<EngineArgs> {
    let spec = placed.spec();
    lacked(spec)?;
    let it = EngineArgs::verb("create").pair("--name", name("the name", spec.name.as_str())?);
    let it = labels(it, &spec.labels)?;
    let it = limits(it, spec.limits);
    let it = network(it, placed.network())?;
    let it = privileges(it, spec);
    let it = it.words(["--workdir", "/"]);
    // An image may name a user, and PID 1 becomes others.
    let it = if base.has_user { it.words(["--user", "0:0"]) } else { it };
    let it = guest_mounts(it, placed)?;
    let it = spec.mounts.iter().try_fold(it, bind)?;
    let it = spec.tmpfs.iter().try_fold(it, in_memory)?;
    let it = spec.volumes.iter().try_fold(it, volume)?;
    let entry = if placed.guest().is_some() { paths::PROGRAM } else { "sleep" };
    let it = it.pair("--entrypoint", entry).word(name("the image", base.reference.as_str())?);
    Ok(if placed.guest().is_some() { init(it, spec) } else { it.word(SLEEP_SECONDS) })
}

/// Refuses unsupported options. Limits only lead to a warning.
fn lacked(spec: &CreateSpec) -> Result<()> {
    let unsupported = [
        (spec.gpu, Capability::Gpu),
        (!spec.ports.is_empty(), Capability::Publish),
        (!spec.add_hosts.is_empty(), Capability::HostEntries),
    ];
    match unsupported.into_iter().find(|it| it.0) {
        Some((_, capability)) => Err(lacks(capability)),
        None => Ok(()),
    }
}

fn labels<'a>(it: EngineArgs, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<EngineArgs> {
    labels
        .into_iter()
        .try_fold(it, |it, (key, value)| Ok(it.pair("--label", format_args!("{}={value}", name("the label", key)?))))
}

/// Whole processors, and the memory of a separate machine: swap and the number of processes cannot be limited.
fn limits(it: EngineArgs, limits: Limits) -> EngineArgs {
    let it = it.pairs("--cpus", limits.cpus.map(whole_cpus));
    it.pairs("--memory", limits.memory.map(|it| format!("{}M", it.0.max(LEAST_MEMORY.0).div_ceil(MIB))))
}

fn network(it: EngineArgs, network: &NetworkAttachment) -> Result<EngineArgs> {
    match network {
        NetworkAttachment::EngineDefault => Ok(it),
        NetworkAttachment::None => Ok(it.words(["--network", "none", "--no-dns"])),
        NetworkAttachment::Id(id) => Ok(it.pair("--network", name("the network", id)?)),
        NetworkAttachment::Alone => Err(lacks(Capability::PartedNetwork)),
        NetworkAttachment::Host => Err(lacks(Capability::HostNetwork)),
    }
}

fn privileges(it: EngineArgs, spec: &CreateSpec) -> EngineArgs {
    let it = it.words(["--cap-drop", "ALL"]);
    let it = it.pairs("--cap-add", spec.capabilities.kernel_names().iter().map(|it| format!("CAP_{it}")));
    let it = if spec.read_only { it.word("--read-only") } else { it };
    let each = [("nofile", spec.ulimits.nofile.map(u64::from)), ("core", spec.ulimits.core)];
    it.pairs("--ulimit", each.into_iter().filter_map(|(name, it)| it.map(|it| format!("{name}={it}:{it}"))))
}

/// The guest's program and its place in memory. A socket in a bound directory does not work, so none is bound.
fn guest_mounts(it: EngineArgs, placed: &Placed) -> Result<EngineArgs> {
    let (guest, read_only) = (placed.guest(), placed.spec().read_only);
    // Files that are too large for its memory are written to disk next to it, so that place has to be writable.
    let it = if read_only && guest.is_some() { tmpfs(it, paths::DIR, 64, "0755")? } else { it };
    let it = match guest {
        None => return Ok(it),
        Some(GuestDelivery::Uploaded) => it,
        Some(GuestDelivery::Bound { program, .. }) => {
            let it = file(it, program, paths::PROGRAM, Access::ReadOnly)?;
            match placed.worker() {
                Some(worker) => file(it, worker, paths::WORKER, Access::ReadOnly)?,
                None => it,
            }
        }
    };
    tmpfs(it, paths::RUN, 16, "0755")
}

fn bind(it: EngineArgs, mount: &Mount) -> Result<EngineArgs> {
    let (host, at) = (mount.host.real(), mount.at.as_str());
    if mount.host.is_dir() { dir(it, host, at, mount.access) } else { file(it, host, at, mount.access) }
}

fn dir(it: EngineArgs, host: &Path, at: &str, access: Access) -> Result<EngineArgs> {
    let source = field("the source of a mount", host.to_str().unwrap_or_default())?;
    let target = field("the target of a mount", at)?;
    let readonly = if access == Access::ReadOnly { ",readonly" } else { "" };
    Ok(it.pair("--mount", format_args!("type=bind,source={source},target={target}{readonly}")))
}

/// A single file or socket.
fn file(it: EngineArgs, host: &Path, at: &str, access: Access) -> Result<EngineArgs> {
    let source = no_colon("the source of a volume", host.to_str().unwrap_or_default())?;
    let target = no_colon("the target of a volume", at)?;
    let readonly = if access == Access::ReadOnly { ":ro" } else { "" };
    Ok(it.pair("--volume", format_args!("{source}:{target}{readonly}")))
}

fn tmpfs(it: EngineArgs, at: &str, mib: u64, mode: &str) -> Result<EngineArgs> {
    let target = field("the target of a mount", at)?;
    Ok(it.pair("--mount", format_args!("type=tmpfs,target={target},size={mib}M,mode={mode}")))
}

fn in_memory(it: EngineArgs, Tmpfs { at, size, mode }: &Tmpfs) -> Result<EngineArgs> {
    tmpfs(it, at.as_str(), size.0.div_ceil(MIB), &format!("{mode:04o}"))
}

fn volume(it: EngineArgs, VolumeMount { name: source, at, access }: &VolumeMount) -> Result<EngineArgs> {
    let (source, target) =
        (field("the name of a volume", source.as_str())?, field("the target of a mount", at.as_str())?);
    let readonly = if *access == Access::ReadOnly { ",readonly" } else { "" };
    Ok(it.pair("--mount", format_args!("type=volume,source={source},target={target}{readonly}")))
}

/// A field of `--mount`.
fn field<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.contains([',', '=']) {
        return Err(not_encodable(what, text, "has a comma or an equals sign"));
    }
    Ok(text)
}

/// A part of `--volume` or `copy`.
fn no_colon<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.contains(':') {
        return Err(not_encodable(what, text, "has a colon"));
    }
    name(what, text)
}

/// A command as the engine runs it, and the variables that its program needs for it.
pub(super) fn exec(id: &ContainerId, exec: &Exec, mark: &str) -> (EngineArgs, Vec<(String, OsString)>) {
    let mark = (MARK.to_owned(), mark.to_owned());
    let env: Vec<_> = exec.env.iter().map(|(name, value)| (name.clone(), value.clone())).chain([mark]).collect();
    let carried = |at: usize| format!("{VARIABLE_PREFIX}{at}");
    let it = enters(id, exec.user, exec.stdin.is_some(), (0..env.len()).map(carried));
    let it = it.word(format!("{TAKE}{ENTER}")).word("coracle").word(env.len().to_string());
    let it = it.word(exec.workdir.as_str()).words(exec.command.clone().into_argv());
    let carries = env.iter().enumerate().map(|(at, (name, value))| (carried(at), format!("{name}={value}").into()));
    (it, carries.collect())
}

/// One of our constant programs; its arguments follow.
pub(super) fn constant_program(id: &ContainerId, user: Ids, program: &str) -> EngineArgs {
    enters(id, user, false, []).word(program).word("coracle")
}

/// A shell inside; what it shall do follows.
fn enters(id: &ContainerId, user: Ids, stdin: bool, env: impl IntoIterator<Item = String>) -> EngineArgs {
    let it = EngineArgs::verb("exec");
    let it = if stdin { it.word("--interactive") } else { it };
    let it = it.pairs("--env", env).pair("--user", user).words(["--workdir", "/", id.as_str()]);
    it.words(["/bin/sh", "-c"])
}

/// Sets owners, which come on standard input.
pub(super) fn own(id: &ContainerId) -> EngineArgs {
    enters(id, Ids::ROOT, true, []).words([OWN, "coracle"])
}

pub(super) fn connect(id: &ContainerId) -> EngineArgs {
    let it = EngineArgs::verb("exec --interactive --user 0:0 --workdir /");
    it.word(id.as_str()).word(paths::PROGRAM).word("connect")
}

pub(super) fn start(id: &ContainerId) -> EngineArgs {
    // Coracle's names and ids begin with a letter or digit.
    EngineArgs::verb("start").word(id.as_str())
}

pub(super) fn inspect(id: &str) -> EngineArgs {
    EngineArgs::verb("inspect").word(id)
}

pub(super) fn kill(id: &ContainerId) -> EngineArgs {
    EngineArgs::verb("kill --signal KILL").word(id.as_str())
}

pub(super) fn delete(id: &ContainerId) -> EngineArgs {
    EngineArgs::verb("delete --force").word(id.as_str())
}

pub(super) fn stop(id: &ContainerId, grace: Duration) -> EngineArgs {
    EngineArgs::verb("stop").pair("--time", grace.as_secs()).word(id.as_str())
}

pub(super) fn list() -> EngineArgs {
    EngineArgs::verb("list --all --format json")
}

pub(super) fn system(what: &str) -> EngineArgs {
    EngineArgs::verb("system").word(what).words(["--format", "json"])
}

pub(super) fn stats(id: &ContainerId) -> EngineArgs {
    EngineArgs::verb("stats --no-stream --format json").word(id.as_str())
}

pub(super) fn logs(id: &ContainerId, lines: usize) -> EngineArgs {
    EngineArgs::verb("logs").pair("-n", lines).word(id.as_str())
}

/// A file or a directory, under its own name into an existing directory: the slash prevents creating one.
pub(super) fn copy_in(from: &Path, id: &ContainerId, at: &ContainerPath) -> Result<EngineArgs> {
    let (from, at) = (no_colon("the path", from.to_str().unwrap_or_default())?, no_colon("the path", at.as_str())?);
    Ok(EngineArgs::verb("copy").words([from, &format!("{id}:{}/", at.trim_end_matches('/'))]))
}

pub(super) fn copy_out(id: &ContainerId, path: &ContainerPath, into: &Path) -> Result<EngineArgs> {
    let into = no_colon("the path", into.to_str().unwrap_or_default())?;
    let path = no_colon("the path", path.as_str())?;
    Ok(EngineArgs::verb("copy").words([&format!("{id}:{path}"), into]))
}

/// An image from a directory that Coracle created.
pub(super) fn build(dir: &Path, file: &Path, tag: &ImageRef, labelled: &[(String, String)]) -> Result<EngineArgs> {
    let it = EngineArgs::verb("build --progress plain").pair("--tag", name("the tag", tag.as_str())?);
    let it = it.pair("--file", file.display());
    Ok(labels(it, labelled.iter().map(|(key, value)| (key, value)))?.word(dir.as_os_str()))
}

/// An image of one layer, of a root file system.
pub(super) fn dockerfile(env: &[(String, String)]) -> String {
    let env = env.iter().map(|(name, value)| format!("ENV {name}={}\n", dockerfile_value(value)));
    format!("FROM scratch\nADD {ROOT_FS} /\n{}", env.collect::<String>())
}

pub(super) fn pull(image: &ImageRef) -> EngineArgs {
    EngineArgs::verb("image pull --progress none").word(image.completed().as_str())
}

pub(super) fn images() -> EngineArgs {
    EngineArgs::verb("image list --format json")
}

pub(super) fn inspect_images<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<EngineArgs> {
    names.into_iter().try_fold(EngineArgs::verb("image inspect"), |it, text| Ok(it.word(name("the image", text)?)))
}

pub(super) fn delete_image(reference: &str) -> Result<EngineArgs> {
    Ok(EngineArgs::verb("image delete").word(name("the image", reference)?))
}

pub(super) fn create_network(text: &str, labelled: &[(String, String)], internal: bool) -> Result<EngineArgs> {
    let it = EngineArgs::verb("network create");
    let it = if internal { it.word("--internal") } else { it };
    Ok(labels(it, labelled.iter().map(|(key, value)| (key, value)))?.word(name("the network", text)?))
}

pub(super) fn networks() -> EngineArgs {
    EngineArgs::verb("network list --format json")
}

pub(super) fn delete_network(text: &str) -> Result<EngineArgs> {
    Ok(EngineArgs::verb("network delete").word(name("the network", text)?))
}

pub(super) fn volumes() -> EngineArgs {
    EngineArgs::verb("volume list --format json")
}

pub(super) fn create_volume(text: &str, labelled: &[(String, String)], size: Option<ByteSize>) -> Result<EngineArgs> {
    let it = labels(EngineArgs::verb("volume create"), labelled.iter().map(|(key, value)| (key, value)))?;
    let it = it.pairs("-s", size.map(|it| format!("{}M", it.0.div_ceil(MIB))));
    Ok(it.word(name("the volume", text)?))
}

/// Another name for an image.
pub(super) fn tag(image: &str, other: &ImageRef) -> Result<EngineArgs> {
    Ok(EngineArgs::verb("image tag").word(name("the image", image)?).word(name("the image", other.as_str())?))
}

pub(super) fn delete_volume(text: &str) -> Result<EngineArgs> {
    Ok(EngineArgs::verb("volume delete").word(name("the volume", text)?))
}

#[cfg(test)]
mod tests;
