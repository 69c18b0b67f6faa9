//! Collects the violations in a file.

use std::path::{Component, Path, PathBuf};

use coracle_host::fs::{HostPath, HostPathError};
use coracle_runtime::{Policy, PolicyRefusal, Problem};
use coracle_types::is_deceptive;

macro_rules! rules {
    ($($key:ident)*) => { &[$((stringify!($key), concat!("compose.", stringify!($key)))),*] };
}

/// The rule of each key in a Compose file. Any other key violates `compose.key`.
const RULES: &[(&str, &str)] = rules! {
    annotations blkio_config build cap_add cap_drop cgroup cgroup_parent command configs container_name
    cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset
    credential_spec depends_on deploy device_cgroup_rules devices dns dns_opt dns_search domainname driver
    driver_opts enable_ipv6 entrypoint env_file environment expose extends external external_links extra_hosts
    gpus group_add healthcheck hostname image include init ipam ipc isolation label_file labels links logging
    mac_address mem_limit mem_swappiness models network_mode networks oom_kill_disable oom_score_adj pid
    pids_limit platform ports post_start pre_stop privileged provider read_only runtime scale secrets
    security_opt services shm_size stdin_open stop_grace_period stop_signal storage_opt sysctls tmpfs tty
    ulimits use_api_socket user userns_mode uts volumes volumes_from working_dir
};

/// Maximum number of reported violations, since a file may have thousands.
const MAX_DIAGNOSTICS: usize = 200;

/// Returns the rule of a key.
fn rule(key: &str) -> &'static str {
    RULES.iter().find(|it| it.0 == key).map_or("compose.key", |it| it.1)
}

/// Whether Compose files have this key.
pub(crate) fn is_known(key: &str) -> bool {
    RULES.iter().any(|it| it.0 == key)
}

/// The violations found so far.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics(Vec<Problem>);

/// The part of a file that a rule is about: a service, a network, the file itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location<'a> {
    kind: &'static str,
    name: &'a str,
}

impl<'a> Location<'a> {
    pub(crate) const FILE: Location<'static> = Location { kind: "the file", name: "" };

    pub(crate) fn service(name: &'a str) -> Self {
        Self { kind: "service", name }
    }

    /// A network, volume, config or secret.
    pub(crate) fn part(kind: &'static str, name: &'a str) -> Self {
        Self { kind, name }
    }

    pub(crate) fn describe(self, key: &str) -> String {
        let key = short(key);
        if self.name.is_empty() {
            format!("{}: `{key}`", self.kind)
        } else {
            format!("{} `{}`: `{key}`", self.kind, short(self.name))
        }
    }
}

/// One refused entry: the rule's key, the reported key, its value, and a setting that allows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Violation<'a> {
    pub(crate) rule: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
    pub(crate) setting: Option<&'static str>,
}

impl<'a> Violation<'a> {
    /// A key with its own rule, which no setting allows.
    pub(crate) fn new(key: &'a str, value: &'a str) -> Self {
        Self { rule: key, key, value, setting: None }
    }

    /// A key within another, with the rule of the outer one.
    pub(crate) fn within(rule: &'a str, key: &'a str, value: &'a str) -> Self {
        Self { rule, key, value, setting: None }
    }

    pub(crate) fn unless(self, setting: &'static str) -> Self {
        Self { setting: Some(setting), ..self }
    }
}

impl Diagnostics {
    /// Adds a violation. `why` ends the sentence that begins with place and key.
    pub(crate) fn refuse(&mut self, location: Location<'_>, violation: Violation<'_>, why: &str) {
        if self.0.len() == MAX_DIAGNOSTICS {
            return;
        }
        self.0.push(Problem {
            rule: rule(violation.rule),
            setting: violation.setting,
            value: short(violation.value),
            message: format!("{} {why}", location.describe(violation.key)),
        });
    }

    /// Opens a host path in the file, if it may be used.
    pub(crate) fn host_path(
        &mut self,
        location: Location<'_>,
        violation: Violation<'_>,
        path: &Path,
        policy: &Policy,
    ) -> Option<HostPath> {
        let opened = HostPath::open(path);
        // A path that cannot be opened is checked by its text, so that a caller does not learn what exists outside
        // the roots.
        let real =
            opened.as_ref().map_or_else(|_| path.canonicalize().unwrap_or_else(|_| plain(path)), |it| it.real().into());
        if let Some(problem) = policy.host_path_problem("compose", &real) {
            let message = format!("{}: {}", location.describe(violation.key), problem.message);
            self.0.push(Problem { message, ..problem });
            return None;
        }
        let why = match opened {
            Ok(opened) => return Some(opened),
            Err(err @ HostPathError::NotFound(_)) => format!("is missing: {err}, and is not created"),
            Err(err) => format!("cannot be used: {err}"),
        };
        self.refuse(location, violation, &why);
        None
    }

    /// Fails if there are violations.
    pub(crate) fn into_result(self) -> Result<(), PolicyRefusal> {
        if self.0.is_empty() { Ok(()) } else { Err(PolicyRefusal { problems: self.0 }) }
    }
}

/// Resolves `..` in a path by its text alone.
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

/// Escapes a text of the file for a message, and truncates it to 200 characters.
pub(crate) fn short(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(200) {
        if is_deceptive(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
