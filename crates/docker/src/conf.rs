//! The configuration that Podman runs with: what it needs of the user's, and nothing that enters containers.
//!
//! `CONTAINERS_CONF` names one file that replaces all others. The user's files are carried over by an allow-list, so
//! that no environment, volume, hook or device of theirs reaches a container by way of the engine. A setting that the
//! machine requires is added if it is missing: without it every `podman run` on such a machine fails.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Keys of the table `engine` that say how Podman runs.
const ENGINE_KEYS: &[&str] = &[
    "cgroup_manager",
    "conmon_path",
    "conmon_env_vars",
    "events_logger",
    "helper_binaries_dir",
    "init_path",
    "lock_type",
    "network_cmd_path",
    "num_locks",
    "runtime",
    "runtimes",
    "static_dir",
    "tmp_dir",
    "volume_path",
];

/// Keys of the table `containers` that the kernel's limits ask for.
const CONTAINERS_KEYS: &[&str] = &["default_ulimits", "seccomp_profile", "apparmor_profile"];

/// Facts of the machine that decide what has to be added.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Hard limit of open files.
    pub nofile: u64,
    /// Hard limit of processes, at most what the kernel has numbers for.
    pub nproc: u64,
    /// We are root without `CAP_SYS_RESOURCE`: Podman asks for its defaults and may not have them. Without root it
    /// lowers them itself.
    pub bound_root: bool,
    /// systemd manages this machine.
    pub systemd: bool,
    /// Controllers stand in both versions of the control groups, which `crun` refuses.
    pub hybrid_cgroups: bool,
    /// `runc` is installed.
    pub runc: bool,
}

/// Podman's own default of open files for a container of root.
const DEFAULT_NOFILE: u64 = 1 << 20;

/// Podman's own default of processes for a container of root.
const DEFAULT_NPROC: u64 = 4 << 20;

impl Machine {
    /// Inspects this machine.
    #[must_use]
    pub fn inspect() -> Self {
        use rustix::process::{Resource, getrlimit};
        let hard = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let pid_max = read("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(u64::MAX);
        Self {
            nofile: hard(Resource::Nofile),
            nproc: hard(Resource::Nproc).min(pid_max),
            bound_root: rustix::process::geteuid().is_root() && !may_raise_limits(&read("/proc/self/status")),
            systemd: Path::new("/run/systemd/system").exists(),
            hybrid_cgroups: !read("/sys/fs/cgroup/unified/cgroup.controllers").trim().is_empty(),
            runc: ["/usr/bin/runc", "/usr/sbin/runc"].iter().any(|it| Path::new(it).exists()),
        }
    }

    /// Open files and processes that containers can have, where that is less than Podman asks for.
    #[must_use]
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let less = self.nofile < DEFAULT_NOFILE || self.nproc < DEFAULT_NPROC;
        (self.bound_root && less).then_some((self.nofile, self.nproc))
    }

    /// Settings that Podman needs to run here, unless the user set them.
    #[must_use]
    pub fn required_settings(&self) -> Table {
        let (mut containers, mut engine) = (Table::new(), Table::new());
        if let Some((nofile, nproc)) = self.bounds() {
            let ulimits = [format!("nofile={nofile}:{nofile}"), format!("nproc={nproc}:{nproc}")];
            containers.insert("default_ulimits".into(), Value::Array(ulimits.map(Value::String).into()));
        }
        if !self.systemd {
            engine.insert("cgroup_manager".into(), "cgroupfs".into());
            engine.insert("events_logger".into(), "file".into());
        }
        if self.hybrid_cgroups && self.runc {
            engine.insert("runtime".into(), "runc".into());
        }
        let tables = [("containers", containers), ("engine", engine)];
        tables.into_iter().filter(|it| !it.1.is_empty()).map(|it| (it.0.to_owned(), Value::Table(it.1))).collect()
    }
}

/// Bit 24 of the effective capabilities is `CAP_SYS_RESOURCE`.
fn may_raise_limits(status: &str) -> bool {
    let effective = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).is_some_and(|it| it & (1 << 24) != 0)
}

/// The user's files, weakest first. Podman reads those of root's home as little as we do.
#[must_use]
pub fn sources(home: &Path) -> Vec<PathBuf> {
    let own = (!rustix::process::geteuid().is_root()).then(|| home.join(".config/containers"));
    let vendor = PathBuf::from("/usr/share/containers/containers.conf");
    let dirs = [PathBuf::from("/etc/containers")].into_iter().chain(own);
    std::iter::once(vendor).chain(dirs.flat_map(|it| with_drop_ins(&it))).collect()
}

fn with_drop_ins(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::iter::once(dir.join("containers.conf")).chain(drop_ins(dir))
}

fn drop_ins(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("containers.conf.d")).into_iter().flatten();
    let paths = entries.filter_map(|it| Some(it.ok()?.path()));
    let mut files: Vec<_> = paths.filter(|it| it.extension().is_some_and(|it| it == "conf")).collect();
    files.sort();
    files
}

/// Merges the allowed keys of some files, weakest first, over the required settings.
///
/// # Errors
/// The text that is no TOML, with its place.
pub(super) fn merge(required: Table, texts: &[String]) -> Result<String, toml::de::Error> {
    let mut merged = required;
    for text in texts {
        let theirs: Table = toml::from_str(text)?;
        for (table, keys) in
            [("engine", ENGINE_KEYS), ("containers", CONTAINERS_KEYS), ("network", &["network_backend"])]
        {
            let Some(Value::Table(from)) = theirs.get(table) else { continue };
            let allowed = from.iter().filter(|(key, _)| keys.contains(&key.as_str()));
            let Value::Table(into) = merged.entry(table).or_insert_with(|| Value::Table(Table::new())) else {
                continue;
            };
            into.extend(allowed.map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    Ok(merged.to_string())
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const PLAIN: Machine =
        Machine { nofile: 1000, nproc: 99, bound_root: false, systemd: true, hybrid_cgroups: false, runc: true };

    #[test]
    fn an_ordinary_machine_needs_nothing() {
        assert_eq!(PLAIN.required_settings(), Table::new());
    }

    #[test]
    fn the_capability_is_read_from_the_kernels_words() {
        assert!(may_raise_limits("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_raise_limits("CapEff:\t000001fffeffffff\n") && !may_raise_limits(""));
    }

    #[test]
    fn drop_ins_come_after_the_file_that_they_change_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("containers.conf.d")).unwrap();
        for name in ["90-mine.conf", "50-coracle.conf", "README"] {
            std::fs::write(dir.path().join("containers.conf.d").join(name), "").unwrap();
        }
        let found = with_drop_ins(dir.path()).map(|it| it.file_name().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(found, ["containers.conf", "50-coracle.conf", "90-mine.conf"]);
    }

    #[test]
    fn a_machine_with_low_limits_and_no_systemd_gets_what_it_needs_and_the_person_wins() {
        let machine = Machine { bound_root: true, systemd: false, hybrid_cgroups: true, ..PLAIN };
        let theirs =
            "[engine]\nruntime = \"crun\"\nenv = [\"A=b\"]\n[containers]\nvolumes = [\"/:/host\"]\n".to_owned();
        assert_snapshot!(merge(machine.required_settings(), &[theirs]).unwrap(), @r#"
        [containers]
        default_ulimits = ["nofile=1000:1000", "nproc=99:99"]

        [engine]
        cgroup_manager = "cgroupfs"
        events_logger = "file"
        runtime = "crun"
        "#);
    }
}
