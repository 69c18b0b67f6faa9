//! What may be made: one pure function, and types that only it can build.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    Access, ByteSize, Capabilities, ContainerPath, CreateSpec, GuestOn, ImageId, ImageRef, Mount, NetworkAsk, NetworkOn,
};

/// What the person allows. The agent's arguments can narrow it and never widen it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Real paths beneath which host files may be used.
    pub allow_roots: Vec<PathBuf>,
    /// The person's home; some of what lies in it is never used.
    pub home: PathBuf,
    /// Further paths that are never used: the state directory, the engine's data and socket.
    pub denied: Vec<PathBuf>,
    /// A directory within the denied ones that may be used all the same.
    pub scratch: PathBuf,
    /// Binds are allowed at all (`workspace.mode`).
    pub binds: bool,
    /// Ceiling of `memory_limit`.
    pub memory_max: ByteSize,
    /// Ceiling of `cpu_limit`; none is all cores.
    pub cpus_max: Option<f64>,
    /// Ceiling of `pids_limit`.
    pub pids_max: u32,
    /// The lowest host port that may be published.
    pub port_min: u16,
    /// The address that ports are published on.
    pub ports_bind: IpAddr,
    /// The host's network may be shared.
    pub allow_host_network: bool,
    /// The name `host-gateway` may be used.
    pub allow_host_gateway: bool,
    /// GPUs may be given.
    pub allow_gpu: bool,
    /// Commands may run as root inside.
    pub allow_root: bool,
    /// A network with a way out may be used.
    pub open_network: bool,
    /// Nobody is root inside, PID 1 neither, nothing but volumes and memory is written, and there is no network.
    pub strict: bool,
    /// Images that may be named.
    pub images: PatternSet,
}

/// System directories that are never used on the host side of a mount or copy (containers.md 4.9).
const SYSTEM: &[&str] = &[
    "/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/System",
    "/Library",
];

/// What is never used below the person's home.
const BELOW_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config",
    ".docker",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".local/share/containers",
    ".local/share/keyrings",
];

/// Directories that are not used themselves, while some below them may be.
const TOO_WIDE: &[&str] = &["/", "/home", "/root", "/Users", "/var", "/tmp", "/opt"];

/// Shell-style patterns, anchored at both ends. An empty set matches nothing.
#[derive(Clone, Debug, Default)]
pub struct PatternSet(Vec<regex::Regex>);

impl PatternSet {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The pattern that cannot be read.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let compile = |it: &String| fnmatch_regex::glob_to_regex(it).map_err(|_| it.clone());
        patterns.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Whether one of them matches all of the text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(text))
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The rule's name (containers.md 15.2).
    pub rule: &'static str,
    /// The setting that the person could change.
    pub setting: Option<&'static str>,
    /// What was asked for.
    pub value: String,
    /// Why that is refused.
    pub message: String,
}

/// Everything that a request asked for beyond the policy; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// The broken rules, in the order of the request's fields.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.problems.iter().map(|it| it.message.as_str()).collect();
        f.write_str(&messages.join("; "))
    }
}

/// A request that the policy allows. Only [`admit`] makes one.
#[derive(Clone, Debug)]
pub struct Admitted {
    spec: CreateSpec,
    ports_bind: IpAddr,
    guest: Option<GuestOn>,
    worker: Option<PathBuf>,
}

/// An admitted request that knows its image and network: what an engine creates.
///
/// ```compile_fail
/// # use coracle_runtime::{CreateSpec, Placed};
/// fn around_the_policy(spec: CreateSpec) -> Placed {
///     Placed { spec } // the fields are private, and there is no constructor
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Placed {
    admitted: Admitted,
    image: ImageId,
    network: NetworkOn,
}

impl Admitted {
    /// What was asked for.
    #[must_use]
    pub fn spec(&self) -> &CreateSpec {
        &self.spec
    }

    /// Adds labels of ours, which no request may carry.
    #[must_use]
    pub fn labelled(mut self, labels: BTreeMap<String, String>) -> Self {
        self.spec.labels.extend(labels);
        self
    }

    /// Adds mounts of parts of what was admitted writable, over it: nothing that the request did not get already.
    ///
    /// # Panics
    /// When a mount lies elsewhere, which is a fault of the caller.
    #[must_use]
    pub fn covered_by(mut self, over: Vec<Mount>) -> Self {
        let admitted = |mount: &Mount| {
            let holds = |it: &Mount| it.access == Access::ReadWrite && mount.host.real().starts_with(it.host.real());
            self.spec.mounts.iter().any(holds)
        };
        assert!(over.iter().all(admitted), "only parts of admitted mounts may be mounted over them");
        self.spec.mounts.extend(over);
        self
    }

    /// Gives it a guest as PID 1. What that needs is ours, so no request can ask for it, and none can refuse it.
    #[must_use]
    pub fn guided(mut self, guest: Option<GuestOn>) -> Self {
        self.guest = guest;
        self
    }

    /// Places a worker's program of this host at `/.coracle/worker`, beside a guest that is bound.
    #[must_use]
    pub fn with_worker(mut self, program: Option<PathBuf>) -> Self {
        self.worker = program;
        self
    }

    /// Says which local image and which network it gets.
    #[must_use]
    pub fn on(self, image: ImageId, network: NetworkOn) -> Placed {
        Placed { admitted: self, image, network }
    }
}

impl Placed {
    /// What was asked for.
    #[must_use]
    pub fn spec(&self) -> &CreateSpec {
        &self.admitted.spec
    }

    /// The image, by id.
    #[must_use]
    pub fn image(&self) -> &ImageId {
        &self.image
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &NetworkOn {
        &self.network
    }

    /// How its guest comes in; without one its PID 1 only waits.
    #[must_use]
    pub fn guest(&self) -> Option<&GuestOn> {
        self.admitted.guest.as_ref()
    }

    /// The worker's program that it gets beside its guest.
    #[must_use]
    pub fn worker(&self) -> Option<&Path> {
        self.admitted.worker.as_deref()
    }

    /// The address that ports are published on.
    #[must_use]
    pub fn ports_bind(&self) -> IpAddr {
        self.admitted.ports_bind
    }
}

/// Decides whether a container may be made. Pure: looks at nothing but its arguments.
///
/// # Errors
/// [`Refused`] with every broken rule.
pub fn admit(spec: CreateSpec, policy: &Policy) -> Result<Admitted, Refused> {
    let mut problems = Vec::new();
    image_problem(&spec.image, policy).into_iter().for_each(|it| problems.push(it));
    for mount in &spec.mounts {
        if !policy.binds {
            let value = mount.host.real().display().to_string();
            problems.push(problem(
                "mount.bind",
                Some("workspace.mode"),
                value,
                "host directories are copied, not bound",
            ));
        }
        problems.extend(policy.host_path_problem("mount", mount.host.real()));
    }
    problems.extend(place_problems(&spec));
    problems.extend(port_problems(&spec, policy));
    problems.extend(limit_problems(&spec, policy));
    problems.extend(network_problems(&spec, policy));
    if policy.strict {
        problems.extend(shape_problems(&spec));
    }
    if spec.gpu && !policy.allow_gpu {
        problems.push(problem("gpu", Some("security.allow_gpu"), "true".into(), "GPUs are not granted"));
    }
    if spec.exec_user.is_root() && !policy.allow_root {
        let value = spec.exec_user.to_string();
        problems.push(problem("root.exec", Some("security.allow_root"), value, "commands as root are not granted"));
    }
    if problems.is_empty() {
        Ok(Admitted { spec, ports_bind: policy.ports_bind, guest: None, worker: None })
    } else {
        Err(Refused { problems })
    }
}

impl Policy {
    /// Allows everything: for tests of what comes after the decision. Not in a release.
    #[cfg(any(test, feature = "programs"))]
    #[must_use]
    pub fn everything() -> Self {
        Self {
            allow_roots: vec!["/".into()],
            home: "/nowhere".into(),
            denied: vec![],
            scratch: "/nowhere".into(),
            binds: true,
            memory_max: ByteSize(u64::MAX),
            cpus_max: None,
            pids_max: u32::MAX,
            port_min: 0,
            ports_bind: [127, 0, 0, 1].into(),
            allow_host_network: true,
            allow_host_gateway: true,
            allow_gpu: true,
            allow_root: true,
            open_network: true,
            strict: false,
            images: PatternSet::new(&["*".into()]).expect("a plain pattern"),
        }
    }

    /// Whether a real path of the host may be used; `act` is `mount`, `copy` or `compose`.
    #[must_use]
    pub fn host_path_problem(&self, act: &'static str, real: &Path) -> Option<Problem> {
        let value = real.display().to_string();
        if self.is_denied(real) {
            let message = format!("`{value}` is, lies in, or contains a directory that is never shared");
            let rule = match act {
                "copy" => "copy.denied",
                "compose" => "compose.denied",
                _ => "mount.denied",
            };
            return Some(problem(rule, None, value, &message));
        }
        if !self.allow_roots.iter().any(|root| real.starts_with(root)) {
            let message = format!("`{value}` lies outside the directories that may be shared");
            let rule = match act {
                "copy" => "copy.root",
                "compose" => "compose.root",
                _ => "mount.root",
            };
            return Some(problem(rule, Some("workspace.allow_roots"), value, &message));
        }
        None
    }

    fn is_denied(&self, real: &Path) -> bool {
        let touches = |denied: &Path| real.starts_with(denied) || denied.starts_with(real);
        let below_home = BELOW_HOME.iter().map(|name| self.home.join(name));
        TOO_WIDE.iter().any(|wide| real == Path::new(wide))
            || real == self.home
            || SYSTEM.iter().any(|it| touches(Path::new(it)))
            || below_home.into_iter().any(|it| touches(&it))
            || self.denied.iter().any(|it| touches(it)) && !real.starts_with(&self.scratch)
    }
}

fn problem(rule: &'static str, setting: Option<&'static str>, value: String, message: &str) -> Problem {
    Problem { rule, setting, value, message: message.to_owned() }
}

fn image_problem(image: &ImageRef, policy: &Policy) -> Option<Problem> {
    let allowed = policy.images.matches(image.as_str()) || policy.images.matches(image.completed().as_str());
    let message = format!("image `{image}` is not on the list");
    (!allowed).then(|| problem("image", Some("security.images"), image.to_string(), &message))
}

/// What the guest and the kernel have inside, and no volume or tmpfs may cover.
const COVERED: [&str; 4] = ["/.coracle", "/proc", "/sys", "/dev"];

fn place_problems(spec: &CreateSpec) -> Vec<Problem> {
    let places = spec.volumes.iter().map(|it| &it.at).chain(spec.tmpfs.iter().map(|it| &it.at));
    // A comma or colon would end it in the words of an engine.
    let odd = |at: &&ContainerPath| {
        at.as_str() == "/" || at.as_str().contains([',', ':']) || COVERED.iter().any(|it| at.is_beneath(it))
    };
    let refuse = |at: &ContainerPath| {
        problem("mount.target", None, at.to_string(), &format!("nothing can be mounted at `{at}`"))
    };
    places.filter(odd).map(refuse).collect()
}

fn port_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let low = spec.ports.iter().filter_map(|port| port.host).filter(|port| *port < policy.port_min);
    let refuse = |port: u16| {
        let message = format!("host port {port} is below {}", policy.port_min);
        problem("port.low", Some("security.port_min"), port.to_string(), &message)
    };
    low.map(refuse).collect()
}

fn limit_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(memory) = spec.limits.memory.filter(|it| *it > policy.memory_max) {
        let message = format!("memory_limit {memory} is above {}", policy.memory_max);
        problems.push(problem("limit.memory", Some("security.memory_max"), memory.to_string(), &message));
    }
    if let Some((cpus, max)) = spec.limits.cpus.zip(policy.cpus_max).filter(|(cpus, max)| cpus > max) {
        let message = format!("cpu_limit {cpus} is above {max}");
        problems.push(problem("limit.cpus", Some("security.cpus_max"), cpus.to_string(), &message));
    }
    if let Some(pids) = spec.limits.pids.filter(|it| *it > policy.pids_max) {
        let message = format!("pids_limit {pids} is above {}", policy.pids_max);
        problems.push(problem("limit.pids", Some("security.pids_max"), pids.to_string(), &message));
    }
    problems
}

fn network_problems(spec: &CreateSpec, policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    match &spec.network {
        NetworkAsk::Host if !policy.allow_host_network => problems.push(problem(
            "network.host",
            Some("security.allow_host_network"),
            "host".into(),
            "the host's network is not shared",
        )),
        NetworkAsk::Bridge | NetworkAsk::Named(_) if !policy.open_network => problems.push(problem(
            "network.open",
            Some("security.network"),
            "bridge".into(),
            "a network with a way out is not granted",
        )),
        _ => {}
    }
    let to_host = spec.add_hosts.iter().find(|it| it.address.is_none()).filter(|_| !policy.allow_host_gateway);
    problems.extend(to_host.map(|entry| {
        let message = "names for the host are not granted";
        problem("network.gateway", Some("security.allow_host_gateway"), entry.name.clone(), message)
    }));
    problems
}

/// What makes a container another one than `strict` has (security.md 3.2), whatever single settings grant.
fn shape_problems(spec: &CreateSpec) -> Vec<Problem> {
    let refused = [
        (spec.capabilities != Capabilities::None || spec.exec_user.is_root(), "root.init", "PID 1 would be root"),
        (!spec.read_only, "root.files", "the image's files could be written"),
        (spec.network != NetworkAsk::None, "network.open", "it would have a network"),
        (!spec.ports.is_empty(), "port.open", "it would have ports, and there is no network"),
        (spec.gpu, "gpu", "it would have a device of the host"),
    ];
    let told = refused.into_iter().filter(|it| it.0);
    told.map(|(_, rule, why)| {
        problem(rule, Some("policy"), "strict".into(), &format!("{why}: `strict` has none of it"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fs::HostPath;
    use crate::{ContainerName, HostEntry, Ids, Limits, Port, Protocol, Tmpfs, VolumeMount, VolumeName};

    fn policy() -> Policy {
        Policy {
            allow_roots: vec!["/work".into(), "/state/scratch".into(), "/h".into()],
            home: "/h/me".into(),
            denied: vec!["/state".into()],
            scratch: "/state/scratch".into(),
            binds: true,
            memory_max: ByteSize::mib(1024),
            cpus_max: Some(2.0),
            pids_max: 100,
            port_min: 1024,
            ports_bind: [127, 0, 0, 1].into(),
            allow_host_network: false,
            allow_host_gateway: false,
            allow_gpu: false,
            allow_root: false,
            open_network: true,
            strict: false,
            images: PatternSet::new(&["docker.io/library/*".into(), "mine:*".into()]).unwrap(),
        }
    }

    fn spec() -> CreateSpec {
        let (name, image) = (ContainerName::parse("web").unwrap(), ImageRef::parse("ubuntu").unwrap());
        CreateSpec { exec_user: Ids { uid: 7, gid: 7 }, ..CreateSpec::new(name, image) }
    }

    fn rules(spec: CreateSpec) -> Vec<&'static str> {
        admit(spec, &policy()).err().map_or_else(Vec::new, |it| it.problems.iter().map(|it| it.rule).collect())
    }

    #[test]
    fn a_modest_request_is_admitted() {
        assert_eq!(rules(spec()), [""; 0]);
    }

    #[test]
    fn strict_makes_nothing_of_another_shape() {
        let policy = Policy { strict: true, allow_root: true, allow_gpu: true, ..policy() };
        let rules = |spec: CreateSpec| -> Vec<&'static str> {
            admit(spec, &policy).err().map_or_else(Vec::new, |it| it.problems.iter().map(|it| it.rule).collect())
        };
        let fits =
            || CreateSpec { capabilities: Capabilities::None, read_only: true, network: NetworkAsk::None, ..spec() };
        assert_eq!(rules(fits()), [""; 0]);
        assert_eq!(rules(spec()), ["root.init", "root.files", "network.open"]);
        assert_eq!(rules(CreateSpec { exec_user: Ids::ROOT, ..fits() }), ["root.init"]);
        assert_eq!(rules(CreateSpec { capabilities: Capabilities::Guest, ..fits() }), ["root.init"]);
        let ports = vec![Port { container: 80, host: None, protocol: Protocol::Tcp }];
        assert_eq!(rules(CreateSpec { ports, gpu: true, ..fits() }), ["port.open", "gpu"]);
    }

    #[test]
    fn nothing_covers_what_the_guest_and_the_kernel_have() {
        let at = |path: &str| {
            let at = ContainerPath::parse(path).unwrap();
            let tmpfs = vec![Tmpfs { at: at.clone(), size: ByteSize::mib(1), mode: 0o755 }];
            let volumes = vec![VolumeMount { name: VolumeName::parse("v").unwrap(), at, access: Access::ReadWrite }];
            [rules(CreateSpec { tmpfs, ..spec() }), rules(CreateSpec { volumes, ..spec() })]
        };
        for fine in ["/tmp", "/home/agent", "/.coraclette", "/process"] {
            assert_eq!(at(fine), [[""; 0]; 2], "{fine}");
        }
        for odd in ["/", "/.coracle", "/.coracle/run", "/proc/1", "/sys", "/dev/shm", "/a,b", "/a:b"] {
            assert_eq!(at(odd), [["mount.target"]; 2], "{odd}");
        }
    }

    #[test]
    fn every_broken_rule_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostPath::open(dir.path()).unwrap();
        let asked = CreateSpec {
            image: ImageRef::parse("other/x").unwrap(),
            exec_user: Ids::ROOT,
            mounts: vec![Mount { host, at: ContainerPath::parse("/w").unwrap(), access: Access::ReadOnly }],
            ports: vec![Port { container: 80, host: Some(80), protocol: Protocol::Tcp }],
            network: NetworkAsk::Host,
            limits: Limits { memory: Some(ByteSize::mib(1025)), cpus: Some(2.5), pids: Some(101) },
            gpu: true,
            add_hosts: vec![HostEntry { name: "up".into(), address: None }],
            ..spec()
        };
        let all =
            "image mount.root port.low limit.memory limit.cpus limit.pids network.host network.gateway gpu root.exec";
        assert_eq!(rules(asked).join(" "), all);
    }

    #[test]
    fn host_paths_stay_beneath_the_roots_and_out_of_what_is_denied() {
        let rule = |path: &str| policy().host_path_problem("mount", Path::new(path)).map(|it| it.rule);
        for fine in ["/work", "/work/a/b", "/state/scratch/x", "/h/me/project"] {
            assert_eq!(rule(fine), None, "{fine}");
        }
        for outside in ["/worker", "/data"] {
            assert_eq!(rule(outside), Some("mount.root"), "{outside}");
        }
        let denied = [
            "/",
            "/etc",
            "/etc/ssh",
            "/usr/share",
            "/state",
            "/state/containers",
            "/h/me",
            "/h/me/.ssh",
            "/h/me/.ssh/id",
            "/h/me/.cargo",
            "/h",
            "/tmp",
            "/var/run/docker.sock",
        ];
        for path in denied {
            assert_eq!(rule(path), Some("mount.denied"), "{path}");
        }
    }
}
