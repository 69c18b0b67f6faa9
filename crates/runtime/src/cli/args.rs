//! From our types to an engine's words. Pure.
//!
//! Docker and Podman share most of them. Those of Apple's engine are in `apple`, whose functions stand in for the ones here:
//! an arm for it that does nothing of its own is there because a `match` needs one.

pub(crate) mod apple;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::{
    Access, Capabilities, ContainerId, ContainerPath, CreateSpec, Exec, GuestOn, Handle, Ids, ImageBuild, ImageConfig,
    ImageId, ImageRef, LabelFilter, NetworkOn, Placed, Port, Tmpfs, VolumeMount, VolumeName,
};

use super::Dialect;

/// What every exec of ours carries in its environment, so that its processes are found again.
pub(super) const MARK: &str = "CORACLE_MARK";

/// Root's capabilities inside: enough for package managers, nothing that reaches the host (containers.md 4.17).
const FOR_PACKAGES: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"];

/// Those that the guest uses itself (workspace.md 1.9).
const FOR_GUEST: &[&str] = &["CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"];

/// Where everything of the guest lies inside.
const GUEST_DIR: &str = "/.coracle";

/// Longer than any container lives. `infinity` is not known to every `sleep`.
const SLEEP_SECONDS: &str = "2147483647";

/// Enters a directory and becomes the command. The directory is an argument and never the engine's `--workdir`: old
/// runtimes can be tricked by what that leads to (CVE-2024-21626).
const ENTER: &str = r#"cd -- "$1" 2>/dev/null || exit 127; unset OLDPWD; shift; exec "$@""#;

/// Asks whether a directory is there.
const IS_DIR: &str = r#"[ -d "$1" ]"#;

/// Ends every process that carries a mark, is the child of one that does, or lives in its session: TERM, then KILL.
/// Whom it has seen once it does not lose when a parent ends first. Exits 0 when none is left. `$1` is the mark, `$2` the grace in tenths of a second.
const END_TREE: &str = r#"exec 2>/dev/null
mark=$1 grace=$2 seen=
find_members() {
  members=' '
  for pid in $seen; do
    read -r line <"/proc/$pid/stat" || continue
    case ${line##*) } in Z*) ;; *) members="$members$pid " ;; esac
  done
  for file in $(grep -slzF "CORACLE_MARK=$mark" /proc/[0-9]*/environ); do
    pid=${file#/proc/} pid=${pid%/environ}
    case $members in *" $pid "*) ;; *) members="$members$pid " ;; esac
  done
  grown=1
  while [ $grown = 1 ]; do
    grown=0
    for file in /proc/[0-9]*/stat; do
      read -r line < "$file" || continue
      pid=${file#/proc/} pid=${pid%/stat}
      set -- ${line##*) }
      [ "$1" = Z ] && continue
      case $members in *" $pid "*) continue ;; esac
      case $members in *" $2 "* | *" $4 "*) members="$members$pid " grown=1 ;; esac
    done
  done
  seen=$members
}
signal() { for pid in $members; do kill "-$1" "$pid"; done; }
find_members
signal TERM
while [ "$grace" -gt 0 ]; do
  find_members
  [ "$members" = ' ' ] && exit 0
  sleep 0.1
  grace=$((grace - 1))
done
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  find_members
  [ "$members" = ' ' ] && exit 0
  signal KILL
  sleep 0.1
done
exit 1"#;

/// The words of one invocation, each free value behind `--flag=` or `--`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<OsString>);

impl Words {
    pub(super) fn verb(words: &str) -> Self {
        Self(words.split(' ').map(OsString::from).collect())
    }

    pub(super) fn word(mut self, word: impl Into<OsString>) -> Self {
        self.0.push(word.into());
        self
    }

    pub(super) fn words(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        words.into_iter().fold(self, Self::word)
    }

    pub(super) fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.word(format!("--{name}={value}"))
    }

    fn flags(self, name: &str, values: impl IntoIterator<Item = impl std::fmt::Display>) -> Self {
        values.into_iter().fold(self, |it, value| it.flag(name, value))
    }

    fn option(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        self.flags(name, value)
    }

    fn labels<'a>(self, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        self.flags("label", labels.into_iter().map(|(key, value)| format!("{key}={value}")))
    }
}

/// Facts of the machine that change the words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub(super) rootless: bool,
    pub(super) selinux: bool,
    /// Podman can pause a container: it freezes a control group, and without root only version 2 has one for it.
    pub(super) pauses: bool,
    /// Open files and processes, where Podman may not have the defaults that it asks for. Those of its configuration
    /// are gone as soon as one limit is named.
    pub(super) bounds: Option<(u64, u64)>,
    /// The program of Podman's user-mode network that is installed.
    pub(super) user_network: Option<&'static str>,
}

/// The whole table of containers.md 4.6.
pub(super) fn create(dialect: Dialect, facts: Facts, placed: &Placed) -> Words {
    let spec = placed.spec();
    let own = spec.is_rootless_inside().then_some(spec.exec_user);
    let it = Words::verb("create --pull=never --workdir=/").flag("user", own.unwrap_or(Ids::ROOT));
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
    let it = spec
        .mounts
        .iter()
        .fold(it, |it, mount| bind(it, dialect, (mount.host.real(), mount.at.as_str()), mount.access));
    let it = network(it, facts, placed);
    let it = it.words(["--ipc=private", "--cgroupns=private", "--restart=no"]);
    let it = if spec.image_health { it } else { it.word("--no-healthcheck") };
    let it = it.word("--log-driver=none");
    let it = it.words(["--stop-signal=SIGTERM", "--stop-timeout=10"]);
    let it = match dialect {
        Dialect::Docker | Dialect::Apple => it,
        Dialect::Podman => it
            .words(["--http-proxy=false", "--systemd=false", "--sdnotify=ignore", "--image-volume=tmpfs"])
            // Variables of its own. An image that was committed brings those of the container it was made of.
            .words(["--unsetenv=HOSTNAME", "--unsetenv=TERM", "--unsetenv=container"]),
    };
    let it = it.labels(&spec.labels).word("--").word(placed.image().as_str());
    if placed.guest().is_some() { init(it, spec) } else { it.word(SLEEP_SECONDS) }
}

/// What the guest is told as PID 1.
fn init(it: Words, spec: &CreateSpec) -> Words {
    spec.lifeline.iter().fold(it.word("init"), |it, wait| it.flag("lifeline", wait.as_secs().max(1)))
}

/// The guest as PID 1, where it finds its sockets, and a place in memory for what must not reach a disk.
fn with_guest(it: Words, dialect: Dialect, guest: &GuestOn, placed: &Placed) -> Words {
    let it = it.flag("entrypoint", format_args!("{GUEST_DIR}/guest"));
    let (spec, of_guest) = (placed.spec(), "rw,noexec,nosuid,nodev");
    let own = spec.is_rootless_inside().then_some(spec.exec_user);
    // What is too much for its memory goes beside it, which has to be writable.
    let spill = spec.read_only.then(|| format!("{GUEST_DIR}:{of_guest},size=64m,mode=0755"));
    let run = format!("{GUEST_DIR}/run:{of_guest},size=16m,mode=0{}", if own.is_some() { "700" } else { "755" });
    let it = it.flags("tmpfs", spill.into_iter().chain([run]).map(|options| empty(dialect, options, own)));
    let GuestOn::Bound { program, link } = guest else { return it };
    let it = bind(it, dialect, (program, &format!("{GUEST_DIR}/guest")), Access::ReadOnly);
    let it = bind(it, dialect, (link, &format!("{GUEST_DIR}/link")), Access::ReadWrite);
    match placed.worker() {
        Some(worker) => bind(it, dialect, (worker, &format!("{GUEST_DIR}/worker")), Access::ReadOnly),
        None => it,
    }
}

fn privileges(it: Words, dialect: Dialect, facts: Facts, spec: &CreateSpec) -> Words {
    let it =
        it.flag("cap-drop", "ALL").flags("cap-add", named(spec.capabilities)).flag("security-opt", "no-new-privileges");
    let it = if facts.selinux { it.flag("security-opt", "label=disable") } else { it };
    let it = match (dialect, spec.gpu) {
        (_, false) => it,
        (Dialect::Docker | Dialect::Apple, true) => it.flag("gpus", "all"),
        (Dialect::Podman, true) => it.flag("device", "nvidia.com/gpu=all"),
    };
    let Ids { uid, gid } = spec.exec_user;
    let mapped = dialect == Dialect::Podman && facts.rootless && uid != 0;
    if mapped { it.flag("userns", format_args!("keep-id:uid={uid},gid={gid}")) } else { it }
}

/// As the kernel names them, without their prefix.
fn named(capabilities: Capabilities) -> &'static [&'static str] {
    match capabilities {
        Capabilities::Packages => FOR_PACKAGES,
        Capabilities::Guest => FOR_GUEST,
        Capabilities::None => &[],
    }
}

/// Podman copies what the image has at its place into a tmpfs, and puts some of its own over a root that is read-only.
/// One that is not to be root's is given to PID 1.
fn empty(dialect: Dialect, tmpfs: String, owner: Option<Ids>) -> String {
    match (dialect, owner) {
        (Dialect::Docker | Dialect::Apple, None) => tmpfs,
        (Dialect::Docker | Dialect::Apple, Some(Ids { uid, gid })) => format!("{tmpfs},uid={uid},gid={gid}"),
        (Dialect::Podman, None) => format!("{tmpfs},notmpcopyup"),
        (Dialect::Podman, Some(_)) => format!("{tmpfs},notmpcopyup,U"),
    }
}

fn root(it: Words, dialect: Dialect, read_only: bool) -> Words {
    match (dialect, read_only) {
        (_, false) => it,
        (Dialect::Docker | Dialect::Apple, true) => it.word("--read-only"),
        (Dialect::Podman, true) => it.word("--read-only").word("--read-only-tmpfs=false"),
    }
}

fn in_memory(dialect: Dialect, Tmpfs { at, size, mode }: &Tmpfs, owner: Option<Ids>) -> String {
    empty(dialect, format!("{at}:rw,exec,nosuid,nodev,size={},mode={mode:04o}", size.0), owner)
}

/// Where nobody inside could give a new volume to who is to write there, it takes the owner of the image's directory:
/// that comes with a copy of what is in it.
fn volume(it: Words, dialect: Dialect, VolumeMount { name, at, access }: &VolumeMount, as_in_image: bool) -> Words {
    let as_in_image = as_in_image && *access == Access::ReadWrite;
    match dialect {
        Dialect::Docker | Dialect::Apple => {
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

fn limits(it: Words, facts: Facts, spec: &CreateSpec) -> Words {
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

fn bind(it: Words, dialect: Dialect, (source, target): (&Path, &str), access: Access) -> Words {
    let source = source.to_str().unwrap_or_default();
    match dialect {
        Dialect::Docker | Dialect::Apple => {
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

fn network(it: Words, facts: Facts, placed: &Placed) -> Words {
    let it = match placed.network() {
        NetworkOn::EngineDefault => it,
        NetworkOn::Alone => it.flag("network", facts.user_network.unwrap_or("slirp4netns")),
        NetworkOn::None => it.flag("network", "none"),
        NetworkOn::Host => it.flag("network", "host"),
        NetworkOn::Id(id) => it.flag("network", id),
    };
    let publish = |port: &Port| {
        let host = port.host.map_or_else(String::new, |it| it.to_string());
        format!("{}:{host}:{}/{}", placed.ports_bind(), port.container, port.protocol)
    };
    let hosts = placed.spec().add_hosts.iter().map(|entry| {
        let address = entry.address.map_or_else(|| "host-gateway".into(), |it| it.to_string());
        format!("{}:{address}", entry.name)
    });
    it.flags("publish", placed.spec().ports.iter().map(publish)).flags("add-host", hosts)
}

/// A command as the engine runs it: through the constant program that enters its directory. With it go the variables
/// that the engine's own program needs for that.
pub(super) fn exec(dialect: Dialect, id: &ContainerId, exec: &Exec, mark: &str) -> (Words, Vec<(String, OsString)>) {
    if dialect == Dialect::Apple {
        return apple::exec(id, exec, mark);
    }
    let it = Words::verb("exec");
    let it = if exec.stdin.is_some() { it.word("--interactive") } else { it };
    let it = it.flag("user", exec.user).flag("workdir", "/").flag("env", format_args!("{MARK}={mark}"));
    let it = it.flags("env", exec.env.iter().map(|(name, value)| format!("{name}={value}")));
    let it = it.word("--").word(id.as_str());
    let it = it.words(["/bin/sh", "-c", ENTER, "coracle", exec.workdir.as_str()]);
    (it.words(exec.command.clone().into_argv()), Vec::new())
}

/// Asks, as that user, whether a directory is there.
pub(super) fn is_dir(dialect: Dialect, id: &ContainerId, user: Ids, path: &ContainerPath) -> Words {
    constant_program(dialect, id, user, IS_DIR).word(path.as_str())
}

/// Ends what carries a mark.
pub(super) fn end_tree(dialect: Dialect, id: &ContainerId, user: Ids, mark: &str, grace: Duration) -> Words {
    let tenths = grace.as_millis().div_ceil(100);
    constant_program(dialect, id, user, END_TREE).word(mark).word(tenths.to_string())
}

fn constant_program(dialect: Dialect, id: &ContainerId, user: Ids, program: &str) -> Words {
    if dialect == Dialect::Apple {
        return apple::constant_program(id, user, program);
    }
    let it = Words::verb("exec").flag("user", user).flag("workdir", "/").word("--").word(id.as_str());
    it.words(["/bin/sh", "-c", program, "coracle"])
}

/// The guest's own way to itself, which stays open as long as a link.
pub(super) fn connect(dialect: Dialect, id: &ContainerId) -> Words {
    if dialect == Dialect::Apple {
        return apple::connect(id);
    }
    let guest = format!("{GUEST_DIR}/guest");
    // As the container's own user, who is PID 1's.
    on("exec --interactive --workdir=/", [id.as_str(), &guest, "connect"])
}

/// A verb on one container.
pub(super) fn on_container(dialect: Dialect, verb: &str, id: &str) -> Words {
    match dialect {
        Dialect::Docker | Dialect::Podman => on(verb, [id]),
        // Names and ids of ours begin with a letter or digit.
        Dialect::Apple => Words::verb(verb).word(id),
    }
}

pub(super) fn inspect(dialect: Dialect, id: &str) -> Words {
    let verb = if dialect == Dialect::Apple { "inspect" } else { "container inspect" };
    on_container(dialect, verb, id)
}

pub(super) fn stop(dialect: Dialect, id: &ContainerId, grace: Duration) -> Words {
    match dialect {
        Dialect::Docker | Dialect::Podman => on(&format!("stop --time={}", grace.as_secs()), [id.as_str()]),
        Dialect::Apple => apple::stop(id, grace),
    }
}

pub(super) fn logs(dialect: Dialect, id: &ContainerId, lines: usize) -> Words {
    match dialect {
        Dialect::Docker | Dialect::Podman => on(&format!("logs --tail={lines}"), [id.as_str()]),
        Dialect::Apple => apple::logs(id, lines),
    }
}

/// All ids, or those of one handle, or those that carry labels.
pub(super) fn ids() -> Words {
    Words::verb("ps --all --quiet --no-trunc")
}

pub(super) fn ids_of(handle: &Handle) -> Words {
    match handle {
        // The filter is a regular expression; a dot is the only character of a name that means something in one.
        Handle::Name(name) => ids().flag("filter", format_args!("name=^/?{}$", name.as_str().replace('.', "\\."))),
        Handle::IdPrefix(digits) => ids().flag("filter", format_args!("id={digits}")),
    }
}

pub(super) fn with_labels(it: Words, filter: &LabelFilter) -> Words {
    filter.0.iter().fold(it, |it, (key, value)| match value {
        Some(value) => it.flag("filter", format_args!("label={key}={value}")),
        None => it.flag("filter", format_args!("label={key}")),
    })
}

pub(super) fn on(verb: &str, subjects: impl IntoIterator<Item = impl Into<OsString>>) -> Words {
    Words::verb(verb).word("--").words(subjects)
}

/// Another name for an image.
pub(super) fn tag(image: &ImageId, tag: &ImageRef) -> Words {
    on("tag", [image.as_str(), tag.as_str()])
}

/// As `inspect`, with the size of what it wrote, which the engine counts file by file.
pub(super) fn sized(id: &ContainerId) -> Words {
    on("container inspect --size", [id.as_str()])
}

pub(super) fn remove(dialect: Dialect, id: &ContainerId) -> Words {
    match dialect {
        Dialect::Docker => on("rm --force --volumes", [id.as_str()]),
        Dialect::Apple => apple::delete(id),
        // Podman waits ten seconds for a process that ignores TERM, even with --force.
        Dialect::Podman => on("rm --force --volumes --time=0", [id.as_str()]),
    }
}

pub(super) fn upload(dialect: Dialect, id: &ContainerId, at: &ContainerPath) -> Words {
    let target = format!("{id}:{at}");
    match dialect {
        Dialect::Docker | Dialect::Apple => Words::verb("cp").words(["--", "-", &target]),
        // Podman's "archive" mode means the container's own user, not the owners in the archive.
        Dialect::Podman => Words::verb("cp --archive=false").words(["--", "-", &target]),
    }
}

pub(super) fn download(id: &ContainerId, path: &ContainerPath) -> Words {
    Words::verb("cp").words(["--", &format!("{id}:{path}"), "-"])
}

/// The root file system comes on standard input.
pub(super) fn import(dialect: Dialect, tag: &ImageRef, env: &[(String, String)], labels: &[(String, String)]) -> Words {
    let env = env.iter().map(|(name, value)| format!("ENV {name}={}", instruction(dialect, value)));
    let labels = labels.iter().map(|(key, value)| format!("LABEL {key}={}", instruction(dialect, value)));
    Words::verb("import").flags("change", env.chain(labels)).words(["--", "-", tag.as_str()])
}

/// An image of a container. The engine prints its id and nothing else.
pub(super) fn commit(
    (dialect, facts): (Dialect, Facts),
    id: &ContainerId,
    tag: Option<&ImageRef>,
    (labels, config): (&[(String, String)], &ImageConfig),
) -> Words {
    let it = match dialect {
        // Paused unless told otherwise, by a flag that goes by another name in each version.
        Dialect::Docker | Dialect::Apple => Words::verb("commit"),
        Dialect::Podman => Words::verb("commit --quiet").flag("pause", facts.pauses),
    };
    let labels = labels.iter().map(|(key, value)| format!("LABEL {key}={}", instruction(dialect, value)));
    let it = it.flags("change", starting(dialect, config).into_iter().chain(labels));
    it.word("--").word(id.as_str()).words(tag.map(ImageRef::as_str))
}

/// An image by a Dockerfile. Nothing of this host's environment gets in, and no image is fetched.
pub(super) fn build(dialect: Dialect, facts: Facts, build: &ImageBuild) -> Words {
    let it = match dialect {
        Dialect::Docker | Dialect::Apple => Words::verb("build --quiet --pull=false --force-rm"),
        Dialect::Podman => Words::verb("build --quiet --pull=never --force-rm --http-proxy=false"),
    };
    let it =
        it.flag("file", build.dockerfile.display()).flag("tag", &build.tag).option("target", build.target.as_ref());
    let it = if build.offline { it.flag("network", "none") } else { it };
    // Without root there may be no control group to hold it.
    let memory = build.memory.filter(|_| !facts.rootless).map(|it| it.0);
    let it = it.option("memory", memory).option("memory-swap", memory);
    let it = it.flags("build-arg", build.args.iter().map(|(name, value)| format!("{name}={value}")));
    it.labels(build.labels.iter().map(|(key, value)| (key, value))).word("--").word(&build.context)
}

/// The instructions that make an image start as it is said. Neither engine takes an empty user or directory.
fn starting(dialect: Dialect, config: &ImageConfig) -> Vec<String> {
    let words = |words: &[String]| match (words, dialect) {
        // An empty list leaves what the container has; one empty word is how Docker itself says "none".
        ([], Dialect::Docker | Dialect::Apple) => r#"[""]"#.to_owned(),
        _ => serde_json::json!(words).to_string(),
    };
    let text = |text: &str, none: &str| match dialect {
        _ if text.is_empty() => none.to_owned(),
        Dialect::Docker | Dialect::Apple => instruction(dialect, text),
        Dialect::Podman => text.to_owned(),
    };
    let mut changes = vec![
        format!("ENTRYPOINT {}", words(&config.entrypoint)),
        format!("CMD {}", words(&config.cmd)),
        format!("USER {}", text(&config.user, "0:0")),
        format!("WORKDIR {}", text(&config.workdir, "/")),
    ];
    if dialect == Dialect::Podman {
        // It writes the container's own into the image, from where every container made of it would have it.
        changes.push("ENV HOSTNAME=".into());
    }
    changes
}

/// A value of a Dockerfile instruction.
pub(super) fn instruction(dialect: Dialect, value: &str) -> String {
    if dialect == Dialect::Podman {
        // It takes one pair of quotes away and knows no escapes.
        return format!("\"{value}\"");
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$"))
}

pub(super) fn create_volume(name: &VolumeName, labels: &[(String, String)]) -> Words {
    let it = Words::verb("volume create --driver=local").labels(labels.iter().map(|(key, value)| (key, value)));
    it.word("--").word(name.as_str())
}

pub(super) fn pull(dialect: Dialect, image: &ImageRef) -> Words {
    if dialect == Dialect::Apple {
        return apple::pull(image);
    }
    on("pull --quiet", [image.completed().as_str()])
}

pub(super) fn create_network(
    dialect: Dialect,
    name: &str,
    labels: &[(String, String)],
    (reach, internal): (bool, bool),
) -> Words {
    let it = Words::verb("network create --driver=bridge").labels(labels.iter().map(|(key, value)| (key, value)));
    let it = if internal { it.word("--internal") } else { it };
    let it = match (dialect, reach) {
        (Dialect::Docker | Dialect::Apple, true) => it,
        (Dialect::Docker | Dialect::Apple, false) => it.flag("opt", "com.docker.network.bridge.enable_icc=false"),
        // Without it the networks of one Podman are routed to each other.
        (Dialect::Podman, _) => it.flag("opt", "isolate=true"),
    };
    it.word("--").word(name)
}

/// A model as the engine has to get it.
pub(super) fn stack(dialect: Dialect, mut model: Value) -> Value {
    let networks = model.get_mut("networks").and_then(Value::as_object_mut).into_iter().flatten();
    let made = networks.map(|it| it.1).filter(|it| dialect == Dialect::Podman && it["external"] != true);
    for network in made.filter_map(Value::as_object_mut) {
        // As for networks that we make ourselves.
        network.insert("driver_opts".into(), serde_json::json!({ "isolate": "true" }));
    }
    model
}

#[cfg(test)]
mod tests;
