//! Outgoing traffic through a user-mode network stack: `pasta`, or else `slirp4netns`.
//!
//! It needs no privileges on the host. The container reaches what this user reaches, but the host only on request
//! (`host_addresses`).

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, Stdin, spawn_detached};
use coracle_types::{Capability, Error, Excerpt, ProcessId, Result};
use rustix::pipe::{PipeFlags, pipe_with};

use super::host_addresses::{self, ClosedHost};
use super::{helper_process, link, resolver, subnet};
use crate::blocking::blocking;
use crate::error::refused;

/// How long a stack may take until packets flow.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The address at which `pasta` forwards name queries, if the host's name servers are on its loopback.
const PASTA_DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 53);

/// Fixed addresses of `slirp4netns`.
const SLIRP_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
const SLIRP_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const SLIRP_DNS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

/// An installed stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UserModeStack {
    Pasta(PathBuf),
    Slirp(PathBuf),
}

/// A container that needs a stack.
#[derive(Clone, Debug)]
pub(super) struct UserModeSpec {
    /// A process in its namespaces.
    pub(super) pid: u32,
    /// Its user namespace is another one than this process's.
    pub(super) user_namespace: bool,
    /// Whether the host is reachable.
    pub(super) host: bool,
    /// The file for the number of the `pasta` process, or the record of that of `slirp4netns`.
    pub(super) pid_file: PathBuf,
}

/// A running stack.
#[derive(Clone, Debug)]
pub(super) struct UserMode {
    pub(super) process: ProcessId,
    pub(super) address: Option<IpAddr>,
    pub(super) host: Option<IpAddr>,
    /// The text of `resolv.conf`, if that of the host does not fit.
    pub(super) resolv_conf: Option<String>,
}

impl UserModeStack {
    /// Finds an installed stack.
    ///
    /// # Errors
    /// `Unsupported` if there is none.
    pub(super) fn find() -> Result<Self> {
        let pasta = find_program("pasta").map(Self::Pasta);
        let found = pasta.or_else(|_| find_program("slirp4netns").map(Self::Slirp));
        found.map_err(|_| crate::error::unsupported(Capability::OutgoingNetwork))
    }

    /// Starts the stack, waits until packets flow, and makes the host unreachable unless the container may reach it.
    pub(super) async fn start(&self, spec: &UserModeSpec) -> Result<UserMode> {
        let started = match self {
            Self::Pasta(program) => start_pasta(program, spec).await?,
            Self::Slirp(program) => start_slirp(program, spec).await?,
        };
        if !spec.host
            && let Err(err) = close_host(spec, &started).await
        {
            // The first error is the one to report.
            let _ = helper_process::end(&started.process);
            return Err(err);
        }
        Ok(started)
    }
}

async fn close_host(spec: &UserModeSpec, started: &UserMode) -> Result<()> {
    let resolv_conf = started.resolv_conf.clone().unwrap_or_else(resolver::for_container);
    let servers = resolver::servers(&resolv_conf);
    let closed = ClosedHost { pid: spec.pid, user_namespace: spec.user_namespace, servers };
    let failed = |source| Error::Host { what: "cannot close the host to a container".into(), source };
    blocking("close the host to a container", move || host_addresses::close(&closed).map_err(failed)).await
}

fn namespace(pid: u32, kind: &str) -> String {
    format!("/proc/{pid}/ns/{kind}")
}

fn pasta_words(spec: &UserModeSpec, local_dns: bool) -> Vec<String> {
    let mut words: Vec<String> = ["--config-net", "--quiet", "--ns-ifname", link::INSIDE].map(str::to_owned).into();
    words.extend(["-t", "none", "-u", "none", "-T", "none", "-U", "none"].map(str::to_owned));
    if !spec.host {
        words.push("--no-map-gw".into());
    }
    if local_dns {
        words.extend(["--dns-forward".into(), PASTA_DNS.to_string()]);
    }
    words.extend(["--pid".into(), spec.pid_file.display().to_string()]);
    if spec.user_namespace {
        words.extend(["--userns".into(), namespace(spec.pid, "user")]);
    } else {
        words.push("--netns-only".into());
    }
    words.extend(["--netns".into(), namespace(spec.pid, "net")]);
    words
}

/// `pasta` moves itself to the background when it is ready.
async fn start_pasta(program: &Path, spec: &UserModeSpec) -> Result<UserMode> {
    let local_dns = resolver::is_local_only();
    let invocation = Invocation::new(program, pasta_words(spec, local_dns));
    let ran = process::run("pasta", &invocation, Stdin::Empty, (READY_TIMEOUT, 4096)).await?;
    if !ran.ok() {
        let excerpt = Excerpt::from_bytes(&ran.stderr.bytes());
        return Err(Error::Engine { verb: "pasta", exit: ran.exit, excerpt });
    }
    let failed = |source| Error::Host { what: "cannot read the number of `pasta`".into(), source };
    let pid = std::fs::read_to_string(&spec.pid_file).map_err(failed)?;
    let process = pid.trim().parse().ok().and_then(ProcessId::from_pid);
    let process = process.ok_or_else(|| failed(std::io::Error::other("it ended")))?;
    Ok(UserMode {
        process,
        address: outer_address(),
        host: spec.host.then(default_gateway).flatten(),
        resolv_conf: local_dns.then(|| resolver::with_server(PASTA_DNS.into())),
    })
}

fn slirp_words(spec: &UserModeSpec) -> Vec<String> {
    let mut words: Vec<String> = ["--configure", "--mtu=65520", "--enable-sandbox", "--enable-seccomp", "--ready-fd=0"]
        .map(str::to_owned)
        .into();
    if !spec.host {
        words.push("--disable-host-loopback".into());
    }
    // Given the process, it enters both namespaces. Given paths, it fails to become root in the first.
    words.extend([spec.pid.to_string(), link::INSIDE.into()]);
    words
}

/// `slirp4netns` writes to a pipe when it is ready: its standard input, which it does not need.
async fn start_slirp(program: &Path, spec: &UserModeSpec) -> Result<UserMode> {
    let failed = |source| Error::Host { what: "cannot start `slirp4netns`".into(), source };
    let (ready, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|it| failed(it.into()))?;
    let pid = spawn_detached(&Invocation::new(program, slirp_words(spec)), File::from(theirs))?;
    let process = ProcessId::from_pid(pid).ok_or_else(|| failed(std::io::Error::other("it ended")))?;
    // Recorded at once, since nothing else leads to it if the container ends before the network is recorded.
    let is_ready = match record(&process, &spec.pid_file).map_err(failed) {
        Ok(()) => blocking("wait for slirp4netns", move || wait_ready(ready).map_err(failed)).await,
        Err(err) => Err(err),
    };
    if !matches!(is_ready, Ok(true)) {
        let ended = helper_process::end(&process).map_err(failed);
        // The first error is the one to report.
        is_ready?;
        ended?;
        return Err(refused("slirp4netns", "it did not become ready"));
    }
    Ok(UserMode {
        process,
        address: Some(SLIRP_ADDRESS.into()),
        host: spec.host.then_some(SLIRP_HOST.into()),
        resolv_conf: Some(resolver::with_server(SLIRP_DNS.into())),
    })
}

/// Records the process for `end_stack`.
pub(super) fn record(process: &ProcessId, file: &Path) -> std::io::Result<()> {
    std::fs::write(file, serde_json::to_vec(process)?)
}

fn wait_ready(ready: OwnedFd) -> std::io::Result<bool> {
    use std::io::Read as _;
    if !helper_process::is_readable_within(&ready, READY_TIMEOUT)? {
        return Ok(false);
    }
    Ok(File::from(ready).read(&mut [0; 1])? == 1)
}

/// The host's address for connections to other machines, which `pasta` gives to the container. Sends nothing.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|it| it.ip())
}

/// The host's gateway, whose address `pasta` maps to the host.
fn default_gateway() -> Option<IpAddr> {
    let routes = subnet::read_routes().ok()?;
    subnet::default_gateway(&routes).map(IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use coracle_skips::{NEEDS_USER, skip};
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    /// The host's addresses, as text.
    async fn addresses_of_host() -> Vec<String> {
        let ip = Invocation::new(find_program("ip").unwrap(), ["-o", "-4", "addr"]);
        let ran = process::run("ip", &ip, Stdin::Empty, (READY_TIMEOUT, 1 << 20)).await.unwrap();
        let text = ran.stdout.text();
        let addresses = text.lines().filter(|it| it.contains("scope global"));
        addresses.filter_map(|it| it.split_whitespace().nth(3)?.split('/').next().map(str::to_owned)).collect()
    }

    /// Whether a process in the namespaces of another one has a way to an address.
    async fn has_way(pid: u32, address: &str) -> bool {
        let target = pid.to_string();
        let words = ["--target", &target, "--user", "--net", "--preserve-credentials", "ip", "route", "get", address];
        let nsenter = Invocation {
            env: [("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())].into(),
            ..Invocation::new(find_program("nsenter").unwrap(), words)
        };
        process::run("nsenter", &nsenter, Stdin::Empty, (READY_TIMEOUT, 4096)).await.unwrap().ok()
    }

    /// Each installed stack connects a namespace of this user's: a route to other machines is there when it says so, and
    /// none to addresses of the host, unless the container has the address itself, or requested it.
    #[tokio::test]
    async fn a_namespace_has_a_route_when_its_stack_is_ready_and_none_without_it() {
        if rustix::process::geteuid().is_root() {
            return skip(NEEDS_USER);
        }
        let stacks =
            [find_program("pasta").map(UserModeStack::Pasta), find_program("slirp4netns").map(UserModeStack::Slirp)];
        for (stack, open) in stacks.into_iter().flatten().flat_map(|it| [(it.clone(), false), (it, true)]) {
            let words = ["--user", "--map-root-user", "--net", "--", "/bin/sh", "-c", "echo ready; exec cat"];
            let unshare = Invocation::new(find_program("unshare").unwrap(), words);
            let mut child = process::spawn(&unshare, Stdin::Open).unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
            let (pid, dir) = (child.id().unwrap(), tempfile::tempdir().unwrap());
            let routes = || std::fs::read_to_string(format!("/proc/{pid}/net/route")).unwrap();
            assert!(crate::network::subnet::default_devices(&routes()).is_empty());
            let spec = UserModeSpec { pid, user_namespace: true, host: open, pid_file: dir.path().join("pid") };
            let started = stack.start(&spec).await.unwrap();
            let own = started.address.unwrap().to_string();
            for address in addresses_of_host().await.iter().filter(|it| **it != own) {
                assert_eq!(has_way(pid, address).await, open, "{stack:?}: {address}");
            }
            assert_eq!(crate::network::subnet::default_devices(&routes()), [link::INSIDE], "{stack:?}");
            assert!(started.process.alive());
            helper_process::end(&started.process).unwrap();
            assert!(!started.process.alive());
            child.kill().await.unwrap();
        }
    }

    fn spec(host: bool) -> UserModeSpec {
        UserModeSpec { pid: 7, user_namespace: true, host, pid_file: "/run/it".into() }
    }

    #[test]
    fn the_hosts_loopback_is_closed_unless_requested() {
        let has = |words: Vec<String>, word: &str| words.iter().any(|it| it == word);
        assert!(has(pasta_words(&spec(false), false), "--no-map-gw"));
        assert!(!has(pasta_words(&spec(true), false), "--no-map-gw"));
        assert!(has(slirp_words(&spec(false)), "--disable-host-loopback"));
        assert!(!has(slirp_words(&spec(true)), "--disable-host-loopback"));
    }
}
