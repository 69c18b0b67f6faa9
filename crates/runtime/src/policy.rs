//! Admits containers: one pure function checks a request against the policy, and only it can build the result.

mod admit;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::admit::{admit, check_mounts};
use crate::{Access, CreateSpec, GuestDelivery, Mount, NetworkAttachment};
use coracle_types::{ByteSize, ImageId};

/// The limits that the user sets. The agent's arguments can narrow them and never widen them.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Real paths below which host files may be mounted and copied.
    pub allow_roots: Vec<PathBuf>,
    /// The user's home, which has directories that are never shared.
    pub home: PathBuf,
    /// Further paths that are never shared: the state directory, the engine's data and socket.
    pub denied: Vec<PathBuf>,
    /// A directory below the denied ones that may be shared nevertheless.
    pub scratch: PathBuf,
    /// Whether binds are allowed at all (`workspace.mode`).
    pub binds: bool,
    /// Maximum of `memory_limit`.
    pub memory_max: ByteSize,
    /// Maximum of `cpu_limit`; all cores if unset.
    pub cpus_max: Option<f64>,
    /// Maximum of `pids_limit`.
    pub pids_max: u32,
    /// The lowest host port that may be published.
    pub port_min: u16,
    /// The address that ports are published on.
    pub ports_bind: IpAddr,
    /// Whether containers may use the host's network.
    pub allow_host_network: bool,
    /// Whether the name `host-gateway` may be used.
    pub allow_host_gateway: bool,
    /// Whether containers may have GPUs.
    pub allow_gpu: bool,
    /// Whether commands may run as root inside.
    pub allow_root: bool,
    /// Whether a network with access to the outside may be used.
    pub open_network: bool,
    /// Whether the policy is `strict`: no process inside is root, not even PID 1, only volumes and directories in memory are
    /// writable, and there is no network.
    pub strict: bool,
    /// Allowed images.
    pub images: PatternSet,
}

/// System directories that are never shared, by a mount or a copy.
const SYSTEM: &[&str] = &[
    "/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/System",
    "/Library",
];

/// Paths below the user's home that are never shared.
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

/// Directories that are not shared as a whole, although directories below them may be.
const TOO_WIDE: &[&str] = &["/", "/home", "/root", "/Users", "/var", "/tmp", "/opt"];

/// Shell-style patterns, anchored at both ends. An empty set matches nothing.
#[derive(Clone, Debug, Default)]
pub struct PatternSet(Vec<regex_lite::Regex>);

impl PatternSet {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The first invalid pattern.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        // `regex_lite`, since each run of the program compiles about fifty: with `regex`, that took half of its time.
        let compile = |it: &String| {
            let regex = fnmatch_regex::glob_to_regex_pattern(it).ok()?;
            regex_lite::Regex::new(&regex).ok()
        };
        patterns.iter().map(|it| compile(it).ok_or_else(|| it.clone())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a pattern matches the whole text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(text))
    }
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The rule's name.
    pub rule: &'static str,
    /// The setting that the user could change.
    pub setting: Option<&'static str>,
    /// The requested value.
    pub value: String,
    /// Why it is refused.
    pub message: String,
}

/// All reasons why the policy refuses a request; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyRefusal {
    /// The broken rules, in the order of the request's fields.
    pub problems: Vec<Problem>,
}

impl fmt::Display for PolicyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.problems.iter().map(|it| it.message.as_str()).collect();
        f.write_str(&messages.join("; "))
    }
}

/// A request that the policy allows. Only [`admit`] creates one.
#[derive(Clone, Debug)]
pub struct Admitted {
    spec: CreateSpec,
    ports_bind: IpAddr,
    guest: Option<GuestDelivery>,
    worker: Option<PathBuf>,
}

/// An admitted request with its image and network: what an engine creates.
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
    network: NetworkAttachment,
}

impl Admitted {
    /// The request.
    #[must_use]
    pub fn spec(&self) -> &CreateSpec {
        &self.spec
    }

    /// Adds Coracle's own labels, which requests may not set.
    #[must_use]
    pub fn labelled(mut self, labels: BTreeMap<String, String>) -> Self {
        self.spec.labels.extend(labels);
        self
    }

    /// Sets whether it lives until it is removed.
    #[must_use]
    pub fn with_persistence(mut self, persistent: bool) -> Self {
        self.spec.persistent = persistent;
        self
    }

    /// Adds mounts of files below the writable mounts of the request over them. They share nothing else of the host.
    ///
    /// # Panics
    /// If the source of a mount is elsewhere, which is a bug of the caller.
    #[must_use]
    pub fn with_overlay_mounts(mut self, over: Vec<Mount>) -> Self {
        let admitted = |mount: &Mount| {
            let holds = |it: &Mount| it.access == Access::ReadWrite && mount.host.real().starts_with(it.host.real());
            self.spec.mounts.iter().any(holds)
        };
        assert!(over.iter().all(admitted), "only parts of admitted mounts may be mounted over them");
        self.spec.mounts.extend(over);
        self
    }

    /// Sets the guest that becomes PID 1. It is not part of a request, so a request can neither add nor refuse it.
    #[must_use]
    pub fn with_guest(mut self, guest: Option<GuestDelivery>) -> Self {
        self.guest = guest;
        self
    }

    /// Mounts the worker's program at `/.coracle/worker`, if the guest is bound, too.
    #[must_use]
    pub fn with_worker(mut self, program: Option<PathBuf>) -> Self {
        self.worker = program;
        self
    }

    /// Sets the local image and the network.
    #[must_use]
    pub fn with_image(self, image: ImageId, network: NetworkAttachment) -> Placed {
        Placed { admitted: self, image, network }
    }
}

impl Placed {
    /// The request.
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
    pub fn network(&self) -> &NetworkAttachment {
        &self.network
    }

    /// How it gets its guest. Without a guest, PID 1 only waits.
    #[must_use]
    pub fn guest(&self) -> Option<&GuestDelivery> {
        self.admitted.guest.as_ref()
    }

    /// The worker's program on the host, if the container gets one.
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

impl Policy {
    /// Allows everything, for tests of later steps. Not in a release.
    #[cfg(any(test, feature = "programs"))]
    #[must_use]
    pub fn everything() -> Self {
        Self::permissive("/nowhere".into())
    }

    /// Allows everything but system directories and the credentials below `home`, for programs that have their own policy.
    #[must_use]
    pub fn permissive(home: PathBuf) -> Self {
        Self {
            allow_roots: vec!["/".into()],
            home,
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

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn policy() -> Policy {
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
