//! Podman as root and its API socket, with the settings that this machine needs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{apt, daemon};
use crate::sh::{sh, which};

pub(super) const SERVICE: &str = "podman-service";

const SOCKET: &str = "/run/podman/podman.sock";

const PACKAGES: &[&str] = &[
    "podman",
    "crun",
    "runc",
    "netavark",
    "aardvark-dns",
    "catatonit",
    "buildah",
    "uidmap",
    "slirp4netns",
    "fuse-overlayfs",
    "busybox-static",
];

/// A drop-in of our own: what a person wrote into `containers.conf` stays theirs.
const DROP_IN: &str = "/etc/containers/containers.conf.d/50-coracle.conf";
const MARK: &str =
    "# Written by `cargo xtask engines up` for this machine; it is written anew when the machine needs it.";

pub(super) fn up() -> Result<()> {
    install()?;
    if !apt::is_root() {
        println!("  not root: Podman is taken as it is, without its API socket");
        return Ok(());
    }
    settings()?;
    if answers() {
        return Ok(());
    }
    fs::create_dir_all("/run/podman")?;
    let service = sh("podman", ["system", "service", "--time=0", &format!("unix://{SOCKET}")]);
    daemon::start(SERVICE, service, Duration::from_secs(20), answers)
}

/// Podman, and by root's hand what it needs to run for others too, which a Podman that is there may lack.
pub(super) fn install() -> Result<()> {
    let needed: &[&str] = if apt::is_root() { &["podman", "newuidmap", "slirp4netns"] } else { &["podman"] };
    if needed.iter().all(|it| which(it).is_some()) { Ok(()) } else { apt::ensure(PACKAGES) }
}

fn answers() -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut socket = UnixStream::connect(SOCKET)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.write_all(b"GET /_ping HTTP/1.0\r\nHost: podman\r\n\r\n")?;
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        Ok(head.starts_with(b"HTTP/1.") && head.ends_with(b" 200"))
    };
    ping().unwrap_or(false)
}

/// Facts of the machine that decide which settings Podman needs.
#[derive(Clone, Debug)]
struct Machine {
    /// Hard limits of this process, and the highest process id.
    nofile: u64,
    nproc: u64,
    pid_max: u64,
    /// `CAP_SYS_RESOURCE`: who has it may raise limits above the hard ones.
    may_raise: bool,
    systemd: bool,
    /// A mixed tree (version 1, and 2 at `unified`) in which some controller is left in version 2.
    mixed_cgroups: bool,
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (limits, status) = (read("/proc/self/limits"), read("/proc/self/status"));
        let hard = |name: &str| {
            let line = limits.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(u64::MAX)
        };
        let capabilities = status.lines().find_map(|it| it.strip_prefix("CapEff:")).unwrap_or_default();
        let capabilities = u64::from_str_radix(capabilities.trim(), 16).unwrap_or_default();
        Self {
            nofile: hard("Max open files"),
            nproc: hard("Max processes"),
            pid_max: read("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(u64::MAX),
            may_raise: capabilities >> 24 & 1 == 1,
            systemd: Path::new("/run/systemd/system").exists(),
            mixed_cgroups: !read("/sys/fs/cgroup/unified/cgroup.controllers").trim().is_empty(),
        }
    }
}

/// A line of Podman's settings, in its table.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    table: &'static str,
    key: &'static str,
    value: String,
}

/// Podman's default limit for a container.
const PODMAN_LIMIT: u64 = 1_048_576;

/// Settings without which Podman fails on such a machine, and no others.
fn needed(machine: &Machine) -> Vec<Setting> {
    let mut needed = vec![];
    let mut set = |table, key, value: String| needed.push(Setting { table, key, value });
    if !machine.may_raise && (machine.nofile < PODMAN_LIMIT || machine.nproc < PODMAN_LIMIT) {
        let nofile = machine.nofile.min(PODMAN_LIMIT);
        let nproc = machine.nproc.min(machine.pid_max).min(PODMAN_LIMIT);
        set("containers", "default_ulimits", format!(r#"["nofile={nofile}:{nofile}", "nproc={nproc}:{nproc}"]"#));
    }
    if !machine.systemd {
        set("engine", "cgroup_manager", r#""cgroupfs""#.to_owned());
        set("engine", "events_logger", r#""file""#.to_owned());
    }
    if machine.mixed_cgroups {
        set("engine", "runtime", r#""runc""#.to_owned()); // crun refuses such a tree
    }
    needed
}

fn render(settings: &[Setting]) -> String {
    let mut text = format!("{MARK}\n");
    for table in ["containers", "engine"] {
        let lines: Vec<String> =
            settings.iter().filter(|it| it.table == table).map(|it| format!("{} = {}\n", it.key, it.value)).collect();
        if !lines.is_empty() {
            text.push_str(&format!("[{table}]\n{}", lines.concat()));
        }
    }
    text
}

fn sets(text: &str, key: &str) -> bool {
    text.lines().any(|it| it.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')))
}

pub(super) fn settings() -> Result<()> {
    let drop_in = Path::new(DROP_IN);
    let folder = drop_in.parent().expect("the drop-in lies in a folder");
    let present = fs::read_to_string(drop_in).unwrap_or_default();
    let ours = present.is_empty() || present.starts_with(MARK);
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
    let others: String = [Path::new("/etc/containers/containers.conf").to_path_buf()]
        .into_iter()
        .chain(files.filter(|it| !(ours && it == drop_in)))
        .map(|it| fs::read_to_string(it).unwrap_or_default() + "\n")
        .collect();
    let mut needed = needed(&Machine::here());
    needed.retain(|it| !sets(&others, it.key));
    if needed.is_empty() || !ours || present == render(&needed) {
        return Ok(());
    }
    println!("  writes {DROP_IN}");
    fs::create_dir_all(folder)?;
    fs::write(drop_in, render(&needed)).with_context(|| format!("write {DROP_IN}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: Machine = Machine {
        nofile: PODMAN_LIMIT,
        nproc: PODMAN_LIMIT,
        pid_max: 4_194_304,
        may_raise: true,
        systemd: true,
        mixed_cgroups: false,
    };

    #[test]
    fn an_ordinary_machine_needs_nothing() {
        assert_eq!(needed(&ORDINARY), []);
        assert_eq!(needed(&Machine { nofile: 1024, ..ORDINARY }), [], "root may raise the limit");
    }

    #[test]
    fn a_bare_virtual_machine_needs_everything() {
        let bare = Machine {
            nofile: 20_000,
            nproc: 96_365,
            pid_max: 32_768,
            may_raise: false,
            systemd: false,
            mixed_cgroups: true,
        };
        assert_eq!(
            render(&needed(&bare)),
            format!(
                "{MARK}\n[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=32768:32768\"]\n\
                 [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\n"
            )
        );
    }

    #[test]
    fn a_remark_sets_nothing() {
        assert!(sets("[engine]\n  runtime = \"crun\"\n", "runtime"));
        assert!(!sets("# runtime = \"crun\"\nruntime_supports_json = []\n", "runtime"));
    }
}
