//! What a file asks for and does not get, gathered.

use std::path::{Component, Path, PathBuf};

use coracle_runtime::host::fs::{HostPath, HostPathError};
use coracle_runtime::{Policy, Problem, Refused};

/// The rules by name: `compose.` and the key that breaks them. A key that is not here breaks `compose.key`.
const RULES: &[&str] = &[
    "compose.annotations",
    "compose.blkio_config",
    "compose.build",
    "compose.cap_add",
    "compose.cap_drop",
    "compose.cgroup",
    "compose.cgroup_parent",
    "compose.command",
    "compose.configs",
    "compose.container_name",
    "compose.cpu_count",
    "compose.cpu_percent",
    "compose.cpu_period",
    "compose.cpu_quota",
    "compose.cpu_rt_period",
    "compose.cpu_rt_runtime",
    "compose.cpu_shares",
    "compose.cpus",
    "compose.cpuset",
    "compose.credential_spec",
    "compose.depends_on",
    "compose.deploy",
    "compose.device_cgroup_rules",
    "compose.devices",
    "compose.dns",
    "compose.dns_opt",
    "compose.dns_search",
    "compose.domainname",
    "compose.driver",
    "compose.driver_opts",
    "compose.enable_ipv6",
    "compose.entrypoint",
    "compose.env_file",
    "compose.environment",
    "compose.expose",
    "compose.extends",
    "compose.external",
    "compose.external_links",
    "compose.extra_hosts",
    "compose.gpus",
    "compose.group_add",
    "compose.healthcheck",
    "compose.hostname",
    "compose.image",
    "compose.include",
    "compose.init",
    "compose.ipam",
    "compose.ipc",
    "compose.isolation",
    "compose.label_file",
    "compose.labels",
    "compose.links",
    "compose.logging",
    "compose.mac_address",
    "compose.mem_limit",
    "compose.mem_swappiness",
    "compose.models",
    "compose.network_mode",
    "compose.networks",
    "compose.oom_kill_disable",
    "compose.oom_score_adj",
    "compose.pid",
    "compose.pids_limit",
    "compose.platform",
    "compose.ports",
    "compose.post_start",
    "compose.pre_stop",
    "compose.privileged",
    "compose.provider",
    "compose.read_only",
    "compose.runtime",
    "compose.scale",
    "compose.secrets",
    "compose.security_opt",
    "compose.services",
    "compose.shm_size",
    "compose.stdin_open",
    "compose.stop_grace_period",
    "compose.stop_signal",
    "compose.storage_opt",
    "compose.sysctls",
    "compose.tmpfs",
    "compose.tty",
    "compose.ulimits",
    "compose.use_api_socket",
    "compose.user",
    "compose.userns_mode",
    "compose.uts",
    "compose.volumes",
    "compose.volumes_from",
    "compose.working_dir",
];

/// More findings than these are not told: a file has thousands of places for them.
const MAX_TOLD: usize = 200;

/// The rule of a key.
fn rule(key: &str) -> &'static str {
    let known = RULES.iter().find(|it| it.strip_prefix("compose.") == Some(key));
    known.copied().unwrap_or("compose.key")
}

/// Whether a rule is named after this key: it is one that Compose files have.
pub(crate) fn is_known(key: &str) -> bool {
    RULES.iter().any(|it| it.strip_prefix("compose.") == Some(key))
}

/// Broken rules, as they are found.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Problem>);

/// Where in a file something stands: a service, a network, the file itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    kind: &'static str,
    name: &'a str,
}

impl<'a> Place<'a> {
    pub(crate) const FILE: Place<'static> = Place { kind: "the file", name: "" };

    pub(crate) fn service(name: &'a str) -> Self {
        Self { kind: "service", name }
    }

    /// A network, volume, config or secret.
    pub(crate) fn of(kind: &'static str, name: &'a str) -> Self {
        Self { kind, name }
    }

    pub(crate) fn is(self, kind: &str) -> bool {
        self.kind == kind
    }

    fn told(self, key: &str) -> String {
        let key = short(key);
        if self.name.is_empty() {
            format!("{}: `{key}`", self.kind)
        } else {
            format!("{} `{}`: `{key}`", self.kind, short(self.name))
        }
    }
}

/// One thing that is refused: the rule's key, the key as it is told, its value, and a setting that lifts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) rule: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
    pub(crate) setting: Option<&'static str>,
}

impl<'a> Asked<'a> {
    /// A key whose rule bears its own name, and which no setting lifts.
    pub(crate) fn new(key: &'a str, value: &'a str) -> Self {
        Self { rule: key, key, value, setting: None }
    }

    /// A key within another, by the rule of the outer one.
    pub(crate) fn within(rule: &'a str, key: &'a str, value: &'a str) -> Self {
        Self { rule, key, value, setting: None }
    }

    pub(crate) fn unless(self, setting: &'static str) -> Self {
        Self { setting: Some(setting), ..self }
    }
}

impl Findings {
    /// Refuses; `why` ends the sentence that begins with place and key.
    pub(crate) fn refuse(&mut self, place: Place<'_>, asked: Asked<'_>, why: &str) {
        if self.0.len() == MAX_TOLD {
            return;
        }
        self.0.push(Problem {
            rule: rule(asked.rule),
            setting: asked.setting,
            value: short(asked.value),
            message: format!("{} {why}", place.told(asked.key)),
        });
    }

    /// Opens a path of the host that the file names, if it may be used.
    pub(crate) fn host_path(
        &mut self,
        (place, asked): (Place<'_>, Asked<'_>),
        path: &Path,
        policy: &Policy,
    ) -> Option<HostPath> {
        let opened = HostPath::open(path);
        // What cannot be opened is judged by where it would be, so that nobody learns what there is outside the roots.
        let real =
            opened.as_ref().map_or_else(|_| path.canonicalize().unwrap_or_else(|_| plain(path)), |it| it.real().into());
        if let Some(problem) = policy.host_path_problem("compose", &real) {
            let message = format!("{}: {}", place.told(asked.key), problem.message);
            self.0.push(Problem { message, ..problem });
            return None;
        }
        let why = match opened {
            Ok(opened) => return Some(opened),
            Err(err @ HostPathError::NotFound(_)) => format!("is missing: {err}, and nothing is made there"),
            Err(err) => format!("cannot be used: {err}"),
        };
        self.refuse(place, asked, &why);
        None
    }

    /// What was refused, if anything was.
    pub(crate) fn into_result(self) -> Result<(), Refused> {
        if self.0.is_empty() { Ok(()) } else { Err(Refused { problems: self.0 }) }
    }
}

/// A path without `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// A text of the file as it may be told: escaped, and not long.
pub(crate) fn short(text: &str) -> String {
    let mut told = String::new();
    for c in text.chars().take(200) {
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            told.extend(c.escape_default());
        } else {
            told.push(c);
        }
    }
    told
}
