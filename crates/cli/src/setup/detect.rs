//! Collects the facts for the plan on this machine. Changes nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

use coracle_context::Host;
use coracle_context::host_system::{PACKAGES, system};
use coracle_docker::conf;
use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, Stdin};
use toml::Table;

use super::plan::{Machine, Settings, is_new_enough, rootless_hints};

/// Time limit for an engine's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Variables with proxies, for apt and others.
const PROXIES: [&str; 6] = ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// The user's environment on this machine, for programs and paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostProbe<'a>(pub(super) &'a Host);

impl HostProbe<'_> {
    fn root(self) -> bool {
        self.0.uid == 0
    }

    /// The environment of started programs.
    pub(super) fn env(self) -> BTreeMap<String, OsString> {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), path.into()),
            ("HOME".to_owned(), self.0.home.clone().into()),
            ("XDG_CONFIG_HOME".to_owned(), self.0.config_home.clone().into()),
            ("DEBIAN_FRONTEND".to_owned(), "noninteractive".into()),
            ("LC_ALL".to_owned(), "C.UTF-8".into()),
        ]);
        env.extend(self.0.runtime_dir.iter().map(|it| ("XDG_RUNTIME_DIR".to_owned(), it.into())));
        env.extend(self.proxies());
        env
    }

    /// The proxies of the user's environment.
    fn proxies(self) -> BTreeMap<String, OsString> {
        let value = |name: &str| Some(OsString::from_vec(self.0.env.get(name)?.reveal().to_vec()));
        PROXIES.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect()
    }

    /// The first line of a program's output, if it exists, answers in time and exits with 0.
    async fn output_of(self, name: &str, words: &[&str]) -> Option<String> {
        let finished = self.run(name, words).await?;
        let printed = finished.ok().then(|| finished.stdout.text())?;
        printed.lines().map(str::trim).find(|it| !it.is_empty()).map(str::to_owned)
    }

    async fn run(self, name: &str, words: &[&str]) -> Option<process::ProgramOutput> {
        let mut invocation = Invocation::new(find_program(name).ok()?, words.iter().copied());
        invocation.env = self.env();
        process::run("setup", &invocation, Stdin::Empty, (ANSWER, 1 << 20)).await.ok()
    }

    /// `Podman 4.3.1`, if it answers and is new enough.
    pub(super) async fn podman(self) -> Option<String> {
        let version = self.output_of("podman", &["info", "--format={{.Version.Version}}"]).await?;
        is_new_enough(true, &version).then(|| format!("Podman {version}"))
    }

    async fn docker(self) -> Option<String> {
        let version = self.output_of("docker", &["version", "--format={{.Server.Version}}"]).await?;
        is_new_enough(false, &version).then(|| format!("Docker {version}"))
    }

    pub(super) async fn machine(self) -> Machine {
        let podman = self.podman().await;
        let answers = if podman.is_some() { podman.clone() } else { self.docker().await };
        let missing = self.missing_packages().await;
        Machine {
            system: system(),
            root: self.root(),
            sudo: find_program("sudo").is_ok(),
            proxies: self.proxies().into_keys().collect(),
            podman: podman.is_some(),
            answers,
            lists_are_old: lists_are_old(),
            settings: self.settings(missing.contains(&"runc")),
            missing,
        }
    }

    async fn missing_packages(self) -> Vec<&'static str> {
        let words = [&["--show", "--showformat=${Package} ${db:Status-Status}\n"], PACKAGES].concat();
        // Exit code 1 only means that some are unknown.
        let known = self.run("dpkg-query", &words).await.map(|it| it.stdout.text()).unwrap_or_default();
        let is_there = |package: &str| known.lines().any(|it| it.strip_prefix(package) == Some(" installed"));
        // A Podman that apt did not install has its own helpers.
        if !is_there("podman") && find_program("podman").is_ok() {
            return Vec::new();
        }
        PACKAGES.iter().copied().filter(|it| !is_there(it)).collect()
    }

    fn settings(self, runc_will_come: bool) -> Settings {
        let (system, own) = (Path::new("/etc"), self.0.config_home.as_path());
        let below = |dir: &Path| dir.join("containers/containers.conf.d");
        let drop_in = below(if self.root() { system } else { own }).join("50-coracle.conf");
        let mut files = conf::sources(&self.0.home);
        if self.root() {
            files.retain(|it| !it.starts_with(&self.0.home)); // Podman as root reads no home
        } else {
            files.extend(fs::read_dir(below(own)).into_iter().flatten().filter_map(|it| Some(it.ok()?.path())));
        }
        files.retain(|it| *it != drop_in);
        let mut limits = conf::Machine::inspect();
        limits.runc |= runc_will_come;
        let mut fixes = limits.required_settings();
        if !self.root() || may_raise_limits(&read("/proc/self/status")) {
            fixes.remove("containers"); // Podman lowers its limits itself without root, and may exceed them with it
        }
        Settings {
            present: fs::read_to_string(&drop_in).ok(),
            drop_in,
            fixes,
            others: files.iter().filter_map(|it| toml::from_str::<Table>(&fs::read_to_string(it).ok()?).ok()).collect(),
        }
    }

    /// Hints for users without root.
    pub(super) fn hints(self) -> Vec<String> {
        if self.root() || !cfg!(target_os = "linux") {
            return Vec::new();
        }
        let can_open = |path: &&str| fs::OpenOptions::new().read(true).write(true).open(path).is_ok();
        let shut: Vec<&str> = ["/dev/fuse", "/dev/net/tun"].into_iter().filter(|it| !can_open(it)).collect();
        rootless_hints(&user(&read("/etc/passwd"), self.0.uid), &read("/etc/subuid"), &read("/etc/subgid"), &shut)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether the process has `CAP_SYS_RESOURCE`, according to the kernel: it may raise hard limits.
fn may_raise_limits(status: &str) -> bool {
    let line = status.lines().find_map(|it| it.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).is_ok_and(|it| it >> 24 & 1 == 1)
}

/// The name of the account. If only a directory service knows it, its number, which works in most places.
fn user(passwd: &str, uid: u32) -> String {
    let id = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&id)).then(|| name.to_owned())
    });
    name.unwrap_or(id)
}

/// The lists have the mirror's times; the directory of partial downloads has local ones.
fn lists_are_old() -> bool {
    let lists = Path::new("/var/lib/apt/lists");
    let is_list = |it: fs::DirEntry| it.file_name().to_string_lossy().contains("_Packages");
    let some = fs::read_dir(lists).is_ok_and(|dir| dir.flatten().any(is_list));
    let age = fs::metadata(lists.join("partial")).and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
    !some || age.is_none_or(|it| it > Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(user(passwd, 1000), "ada");
        assert_eq!(user(passwd, 4), "4");
    }

    #[test]
    fn the_right_to_raise_limits_is_read_from_the_kernel() {
        assert!(may_raise_limits("Uid:\t0\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_raise_limits("CapEff:\t000001fffeffffff\n"));
        assert!(!may_raise_limits(""));
    }
}
