//! Resolves the arguments of `create`, with every default. Reads host paths and nothing else beyond its arguments.

mod clone_source;
mod env;
mod fingerprint;
mod git_outside;
mod host_paths;
mod inside_path;
mod network;
mod profile;
pub mod protected;
mod provisioning;
mod stack;
mod strict;

use std::collections::BTreeMap;

use coracle_context::config::Config;
use coracle_context::context::Context;
use coracle_context::document::word;
use coracle_context::failure::{Code, Failure};
use coracle_context::strict::USER;
use coracle_images::Pull;
use coracle_images::profile::{ProfileServer, Purpose};
use coracle_lifecycle::{MadeFrom, NewRecord, Role, fresh_name};
use coracle_provision::UserRequest;
use coracle_runtime::{
    Access, CreateSpec, HostEntry, Limits, Mount, NetworkRequest, PolicyRefusal, Port, Problem, Protocol,
};
use coracle_types::{Command, ContainerName, ContainerPath, Ids, ImageRef};

use crate::requests::Create;

pub use self::clone_source::CloneSource;
pub use self::env::{no_secret, resolve as plain_env};
pub use self::fingerprint::fingerprint;
pub use self::git_outside::GitOutside;
pub use self::host_paths::{container_path, copy_request, mountable};
pub use self::host_paths::{copyable, host_path};
pub use self::inside_path::PathInside;
pub use self::profile::{RepoScan, ResolvedProfile, TryRepo};
pub use self::provisioning::{Provisioning, Repo};
pub use self::stack::{NewStack, StackRequest};

/// The resolved arguments of `create`: from here on, no `Option` means "default".
#[derive(Debug)]
pub struct Request {
    pub spec: CreateSpec,
    pub draft: NewRecord,
    /// The limits that the call or the configuration sets, without the defaults.
    pub requested_limits: Limits,
    /// The caller chose the image, so no other image may replace it.
    pub image_named: bool,
    pub pull: Pull,
    /// The exec user, as far as it is known without the image.
    pub user: UserRequest,
    /// The caller chose the exec user.
    pub user_given: bool,
    /// Why the working directory is not mounted, though the caller did not refuse it.
    pub unmounted: Option<String>,
    /// Directories whose git repository is outside of them.
    pub git_outside: Vec<GitOutside>,
    /// A host directory is bound at the work directory.
    pub bound: bool,
    /// The working directory's files are copied to the work directory (`workspace.mode`).
    pub copied: bool,
    /// The caller chose the work directory, so the profile does not change it.
    pub workdir_given: bool,
    pub chosen: ResolvedProfile,
    /// The program that the container runs.
    pub main: Option<MainRequest>,
    /// The server in that program, if it is the profile's.
    pub server: Option<ProfileServer>,
    /// `env` of the call.
    pub env: BTreeMap<String, String>,
    pub provisioning: Provisioning,
    pub stack: StackRequest,
}

/// The program that a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MainRequest {
    /// The image's own command, as the image's user.
    Image,
    /// These arguments, as the exec user.
    Words(Vec<String>),
}

/// What the decisions start from.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    pub made_from: MadeFrom,
    pub reference: ImageRef,
    pub purpose: Option<Purpose>,
    pub workdir: ContainerPath,
    pub mount_cwd: bool,
}

/// What a container is created from, as far as it is known when everything else is resolved.
#[derive(Debug)]
pub enum CreateFrom {
    /// An image; for `try-repo`, with the facts about the repository.
    Image(Option<RepoScan>),
    /// A snapshot.
    Source(SourceFacts),
    /// A snapshot that is not yet inspected: the arguments are only validated.
    Unknown,
}

impl CreateFrom {
    fn origin(&self) -> Option<&SourceFacts> {
        if let Self::Source(origin) = self { Some(origin) } else { None }
    }
}

/// Resolves all arguments.
pub fn create(args: &Create, basis: CreateFrom, cx: &Context) -> Result<Request, Failure> {
    let config = &cx.config;
    if config.is_strict() {
        strict::check(args, config)?;
    }
    let of_origin = basis.origin().map(|it| it.workdir.clone());
    let usual = || ContainerPath::parse("/workspace").expect("a plain path");
    let workdir = args.workdir.clone().or(of_origin).unwrap_or_else(usual);
    target("workdir", &workdir)?;
    let origin = basis.origin().cloned();
    let chosen = profile::choose(args, basis, cx)?;
    // A mount that the snapshot's container did not have would hide its files at the work directory.
    let mounted = origin.as_ref().map_or(chosen.tried.is_none(), |it| it.mount_cwd);
    let HostMounts { mounts, cwd: mount_cwd, copied, unmounted, git_outside } = mounts(args, &workdir, mounted, cx)?;
    let env = env::resolve(&args.env)?;
    let name = match args.name.clone() {
        Some(name) if name.as_str().len() == 1 => return Err(too_short(&name)),
        given => {
            given.unwrap_or_else(|| fresh_name(&config.label_namespace, chosen.purpose.as_ref().map(Purpose::as_str)))
        }
    };
    let stack = stack::resolve(args, &name, cx)?;
    // `strict` allows no other user, whatever the image's account is.
    let user = args.user.clone().filter(|_| !config.is_strict()).unwrap_or_else(|| default_user(&mounts, cx));
    let provisioning = provisioning::decide(args, &chosen, cx)?;
    let bound = mounts.iter().any(|it| it.at == workdir);
    protected::files(&provisioning.files, &mounts, &workdir, &config.workspace.protected)?;
    // The call's own program replaces the profile's.
    let server = chosen.profile.server.clone().filter(|_| args.main.is_none());
    let network_name = network::replayed(args, stack::network(args)?)?;
    let network = network::resolve(network_name, config)?;
    // With a stack, the container is on the stack's network.
    let proxied = matches!(stack, StackRequest::No) && network::is_proxied(network_name, config);
    let replay = network::replay(args, proxied, cx)?;
    let is_networked = network != NetworkRequest::None && !config.is_strict();
    let spec = CreateSpec {
        mounts,
        ports: with_server(ports(args)?, server.as_ref().filter(|_| is_networked)),
        network,
        limits: limits(args, config)?,
        gpu: args.gpu.unwrap_or(false),
        add_hosts: hosts(args)?,
        labels: labels(args, config)?,
        ..CreateSpec::new(name.clone(), origin.as_ref().map_or(&chosen.profile.image, |it| &it.reference).clone())
    };
    let spec = if config.is_strict() { strict::shaped(spec) } else { spec };
    let draft = NewRecord {
        name,
        role: Role::Primary,
        session: cx.call.session.to_string(),
        purpose: chosen.purpose.as_ref().map(ToString::to_string),
        persistent: args.persistent.unwrap_or(false),
        workdir,
        mount_cwd,
        request_digests: crate::resolve::fingerprint(args, cx)?,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        compose_project: stack.project().cloned(),
        compose_joined: matches!(stack, StackRequest::Join(_)),
        compose_file: if let StackRequest::Make(it) = &stack { it.file.clone() } else { None },
        snapshot: origin.map(|it| it.made_from),
        proxied,
        replay,
        owner: cx.owner(),
        protected: config.workspace.protected.clone(),
        max_containers: config.max_containers as usize,
        max_containers_total: config.max_containers_total as usize,
    };
    Ok(Request {
        spec,
        draft,
        requested_limits: requested_limits(args, config),
        image_named: args.image.is_some(),
        pull: pull(args, config)?,
        user,
        user_given: args.user.is_some() || config.is_strict(),
        unmounted,
        git_outside,
        bound,
        copied,
        workdir_given: args.workdir.is_some(),
        chosen,
        main: main_program(args)?.or_else(|| server.as_ref().map(|it| MainRequest::Words(it.command.clone()))),
        server,
        env,
        provisioning,
        stack,
    })
}

/// Returns when to pull the image. An argument cannot allow a pull that the configuration forbids.
fn pull(args: &Create, config: &Config) -> Result<Pull, Failure> {
    let pull = args.pull.unwrap_or(config.images.pull);
    if config.images.pull != Pull::Never || pull == Pull::Never {
        return Ok(pull);
    }
    let value = word(pull);
    let message = format!("`pull: \"{value}\"` needs a registry, which the configuration does not allow");
    let problem = Problem { rule: "images.pull", setting: Some("images.pull"), value, message };
    Err(PolicyRefusal { problems: vec![problem] }.into())
}

fn main_program(args: &Create) -> Result<Option<MainRequest>, Failure> {
    match args.main.as_ref().map(|it| &it.0) {
        None => Ok(None),
        Some(Command::Argv(words)) => Ok(Some(MainRequest::Words(words.clone()))),
        Some(Command::Shell(text)) if text == "image" => Ok(Some(MainRequest::Image)),
        Some(Command::Shell(_)) => Err(Failure::invalid("main", "`image`, or a list of words")
            .hint("for a script give `/bin/sh`, `-c` and its text")),
    }
}

/// Docker refuses names of one character, and a name has to be valid on every engine.
fn too_short(name: &ContainerName) -> Failure {
    Failure::new(Code::InvalidName, format!("`{name}` is too short for a container's name"))
        .detail("field", "name")
        .hint("give it two characters or more")
}

/// In a container that shares files with the host, commands run as the user's uid, so that new files belong to the
/// user.
fn default_user(mounts: &[Mount], cx: &Context) -> UserRequest {
    let ids = if mounts.is_empty() { Ids::ROOT } else { Ids { uid: cx.host.uid, gid: cx.host.gid } };
    UserRequest::Ids(if cx.config.is_strict() { USER } else { ids })
}

/// The host directories of a container.
#[derive(Default)]
struct HostMounts {
    mounts: Vec<Mount>,
    /// The working directory is among the mounts.
    cwd: bool,
    /// The working directory's files are copied instead.
    copied: bool,
    /// Why it is neither, though the caller did not refuse it.
    unmounted: Option<String>,
    /// Directories whose git repository is outside of them.
    git_outside: Vec<GitOutside>,
}

/// Resolves the working directory and the requested mounts.
fn mounts(args: &Create, workdir: &ContainerPath, by_default: bool, cx: &Context) -> Result<HostMounts, Failure> {
    let HostMounts { mut mounts, mut copied, mut unmounted, .. } = HostMounts::default();
    let requested = args.mount_cwd;
    if requested.unwrap_or(by_default) {
        let (dir, copies) = (cx.config.working_dir(&cx.host), cx.config.copies_directories());
        match if copies { copyable(&dir, cx) } else { mountable(&dir, cx) } {
            Ok(_) if copies => copied = true,
            Ok(host) => mounts.push(Mount { host, at: workdir.clone(), access: Access::ReadWrite }),
            Err(failure) if requested == Some(true) => return Err(failure),
            Err(failure) => unmounted = Some(failure.into_inner().message),
        }
    }
    let mount_cwd = !mounts.is_empty();
    let more = args.mounts.as_deref().unwrap_or_default();
    if more.len() > 20 {
        return Err(
            Failure::invalid("mounts", "at most 20 mounts").hint("mount a directory that holds several of them")
        );
    }
    for mount in more {
        target("mounts", &mount.container)?;
        let host = mountable(&host_path(&mount.host, cx), cx)?;
        mounts.push(Mount { host, at: mount.container.clone(), access: mount.mode.unwrap_or(Access::ReadWrite) });
    }
    protected::check(&mounts, &cx.config.workspace.protected)?;
    let mut targets: Vec<_> = mounts.iter().map(|it| &it.at).collect();
    targets.sort();
    if targets.windows(2).any(|it| it[0] == it[1]) {
        return Err(Failure::invalid("mounts", "two mounts have the same path in the container")
            .detail("rule", "mount.target")
            .hint("give each mount a path of its own; `mount_cwd: false` leaves the working directory out"));
    }
    let mut git_outside = git_outside::add_repositories(&mut mounts, cx);
    let copied_dir = copied.then(|| cx.config.working_dir(&cx.host));
    git_outside.extend(copied_dir.and_then(|dir| git_outside::of_copy(&dir, workdir)));
    Ok(HostMounts { mounts, cwd: mount_cwd, copied, unmounted, git_outside })
}

/// Fails for paths where nothing of the host may be mounted and no command runs.
fn target(field: &str, path: &ContainerPath) -> Result<(), Failure> {
    let reserved = ["/proc", "/sys", "/dev", "/etc", "/.coracle"].iter().find(|it| path.is_beneath(it));
    match reserved {
        None if path.as_str() != "/" => Ok(()),
        _ => Err(Failure::invalid(field, format!("`{path}` cannot be used: it is `/`, or lies in a system directory"))
            .detail("rule", "mount.target")
            .hint("choose another path inside, such as `/data`: `/`, `/etc`, `/proc`, `/sys` and `/dev` are the container's own")),
    }
}

fn ports(args: &Create) -> Result<Vec<Port>, Failure> {
    let requested = args.ports.as_deref().unwrap_or_default();
    if requested.len() > 50 {
        return Err(Failure::invalid("ports", "at most 50 ports").hint("publish the ports that are needed"));
    }
    let read = |it: &crate::requests::PortArg| {
        if it.container == 0 {
            return Err(Failure::invalid("ports", "`container` is a port from 1 to 65535")
                .hint("name the port that the program listens on inside"));
        }
        let host = it.host.filter(|port| *port != 0);
        Ok(Port { container: it.container, host, protocol: it.protocol.unwrap_or_default() })
    };
    requested.iter().map(read).collect()
}

/// Adds the port of a server, unless the call publishes it.
fn with_server(mut ports: Vec<Port>, server: Option<&ProfileServer>) -> Vec<Port> {
    let wanted = server.map(|it| Port { container: it.port.get(), host: None, protocol: Protocol::Tcp });
    let is_given = |it: &Port| ports.iter().any(|own| (own.container, own.protocol) == (it.container, it.protocol));
    ports.extend(wanted.filter(|it| !is_given(it)).into_iter().collect::<Vec<_>>());
    ports
}

fn limits(args: &Create, config: &Config) -> Result<Limits, Failure> {
    let defaults = config.default_limits();
    if args.memory_limit.is_some_and(|it| it.0 < 16 << 20) {
        return Err(Failure::invalid("memory_limit", "at least 16m"));
    }
    if args.pids_limit.is_some_and(|it| it < 16) {
        return Err(Failure::invalid("pids_limit", "at least 16"));
    }
    if args.cpu_limit.is_some_and(|it| !(0.01..=4096.0).contains(&it)) {
        return Err(Failure::invalid("cpu_limit", "a number of cores above 0"));
    }
    Ok(Limits {
        memory: args.memory_limit.or(defaults.memory),
        cpus: args.cpu_limit.or(defaults.cpus),
        pids: args.pids_limit.or(defaults.pids),
    })
}

fn requested_limits(args: &Create, config: &Config) -> Limits {
    let (configured, built_in) = (config.default_limits(), Config::default().default_limits());
    Limits {
        memory: args.memory_limit.or(configured.memory.filter(|memory| Some(*memory) != built_in.memory)),
        cpus: args.cpu_limit.or(configured.cpus.filter(|cpus| Some(*cpus) != built_in.cpus)),
        pids: args.pids_limit.or(configured.pids.filter(|pids| Some(*pids) != built_in.pids)),
    }
}

fn hosts(args: &Create) -> Result<Vec<HostEntry>, Failure> {
    let requested = args.add_hosts.as_deref().unwrap_or_default();
    if requested.len() > 50 {
        return Err(Failure::invalid("add_hosts", "at most 50 entries"));
    }
    requested.iter().map(|it| network::host_entry(it)).collect()
}

fn labels(args: &Create, config: &Config) -> Result<std::collections::BTreeMap<String, String>, Failure> {
    let labels = args.labels.clone().unwrap_or_default();
    if labels.len() > 50 {
        return Err(Failure::invalid("labels", "at most 50 labels"));
    }
    let reserved = [format!("{}.", config.label_namespace), "com.docker.".into(), "io.podman.".into()];
    for (key, value) in &labels {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._/-".contains(c);
        if !(1..=128).contains(&key.len()) || !key.chars().all(plain) {
            let grammar = "lower-case letters, digits, `.`, `_`, `/` and `-`, at most 128";
            return Err(Failure::invalid("labels", format!("the key `{}` is not {grammar}", key.escape_debug())));
        }
        if reserved.iter().any(|it| key.starts_with(it.as_str())) {
            return Err(Failure::invalid("labels", format!("the key `{key}` is reserved")));
        }
        if value.len() > 4096 || value.chars().any(char::is_control) {
            return Err(Failure::invalid(
                "labels",
                format!("the value of `{key}` is not at most 4 KiB of printable text"),
            ));
        }
    }
    Ok(labels)
}

/// Returns the spec of a container that is only created to read its passwd file.
pub fn bare(name: ContainerName, image: ImageRef) -> CreateSpec {
    CreateSpec {
        network: NetworkRequest::None,
        exec_user: Ids { uid: 65534, gid: 65534 },
        ..CreateSpec::new(name, image)
    }
}
