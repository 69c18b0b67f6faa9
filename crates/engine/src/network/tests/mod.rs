//! Networks of the kernel with real namespaces, without the container around them.

mod host;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, Stdin};
use coracle_runtime::NetworkCreate;
use coracle_skips::{NEEDS_IPTABLES, NEEDS_ROOT, skip};
use coracle_types::{ContainerId, ContainerName, Error, NetworkName, ProcessId};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::host_addresses::{self, ClosedHost};
use super::netlink::Netlink;
use super::{Attachment, AttachmentRecord, BoundFile, NetworkRecords, attach, detach, rules};
use crate::config::{HostLine, NetworkConfig, NetworkMode};
use crate::directories::Directories;
use crate::ids::Privileges;

/// Directories of an engine, whose host is a network namespace of the test's own: its thread, and those that it starts,
/// are in it.
struct Case {
    _host: Child,
    dir: tempfile::TempDir,
    directories: Directories,
}

/// A process in a network namespace of its own, in the place of a container.
struct Holder {
    child: Child,
    attachment: Attachment,
}

impl Case {
    /// `None` where this user cannot make links.
    async fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(NEEDS_ROOT);
            return None;
        }
        let host = namespace().await;
        enter(host.id().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::open(dir.path()).unwrap();
        Some(Self { _host: host, dir, directories })
    }

    async fn holder(&self, name: &str, mode: NetworkMode) -> Holder {
        let child = namespace().await;
        let file = |kind: &str| self.dir.path().join(format!("{name}.{kind}"));
        let attachment = Attachment {
            config: NetworkConfig { mode, ports: Vec::new(), ports_bind: Ipv4Addr::LOCALHOST.into() },
            id: ContainerId::parse(coracle_types::random_hex::<32>()).unwrap(),
            name: ContainerName::parse(name).unwrap(),
            hostname: name.to_owned(),
            hosts: Vec::new(),
            aliases: Vec::new(),
            pid: child.id().unwrap(),
            hosts_file: BoundFile::create(file("hosts"), "").unwrap(),
            resolv_conf_file: BoundFile::create(file("resolv.conf"), "").unwrap(),
            pid_file: file("pid"),
            guest: None,
            directories: self.directories.clone(),
            privileges: Privileges::Root,
        };
        Holder { child, attachment }
    }

    /// Another machine, `198.18.NUMBER.2`, which uses the host (`198.18.NUMBER.1` at the device `tstNUMBER`) as its router.
    async fn machine(&self, number: u8) -> Holder {
        let machine = self.holder(&format!("machine{number}"), NetworkMode::None).await;
        let (pid, device, net) = (machine.attachment.pid, format!("tst{number}"), format!("198.18.{number}"));
        ran("ip", &format!("link add {device} type veth peer name out netns {pid}")).await;
        ran("ip", &format!("addr add {net}.1/24 dev {device}")).await;
        ran("ip", &format!("link set {device} up")).await;
        for words in
            [format!("addr add {net}.2/24 dev out"), "link set out up".into(), format!("route add default via {net}.1")]
        {
            ran("nsenter", &format!("--net=/proc/{pid}/ns/net -- ip {words}")).await;
        }
        machine
    }

    async fn network(&self, name: &str, reach: bool, internal: bool) -> NetworkMode {
        let name = NetworkName::parse(name).unwrap();
        let create = NetworkCreate { name, labels: Vec::new(), reach, internal };
        NetworkMode::Named(NetworkRecords::new(&self.directories).create(&create).await.unwrap().id)
    }
}

impl Holder {
    async fn attach(&self) -> AttachmentRecord {
        attach(&self.attachment).await.unwrap()
    }

    /// Does something in the namespace. What it opens stays there.
    fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let pid = self.attachment.pid;
        let entered = std::thread::spawn(move || {
            enter(pid);
            work()
        });
        entered.join().unwrap()
    }

    fn reaches(&self, address: IpAddr, port: u16) -> bool {
        self.inside(move || TcpStream::connect_timeout(&SocketAddr::new(address, port), Duration::from_secs(2)).is_ok())
    }

    fn listens(&self) -> (TcpListener, u16) {
        self.inside(listener)
    }

    fn hosts(&self) -> String {
        std::fs::read_to_string(&self.attachment.hosts_file.path).unwrap()
    }

    async fn end(mut self, attached: &AttachmentRecord) {
        self.child.kill().await.unwrap();
        detach(attached, &self.attachment.id, &self.attachment.directories).await.unwrap();
    }
}

/// The kernel does the same some time after the last process of each container.
async fn remove_links() {
    for device in super::settings::devices().unwrap().iter().filter(|it| it.starts_with(super::link::PREFIX)) {
        invoke("ip", &format!("link del {device}")).await;
    }
}

/// A process in a new network namespace.
async fn namespace() -> Child {
    let script = "ip link set lo up; echo ready; exec cat";
    let words = ["--net", "--", "/bin/sh", "-c", script];
    let invocation = Invocation {
        env: [("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())].into(),
        ..Invocation::new(find_program("unshare").unwrap(), words)
    };
    let mut child = process::spawn(&invocation, Stdin::Open).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// Takes this thread into the network namespace of a process.
fn enter(pid: u32) {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// A listener on all addresses.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Runs a program of the host.
async fn invoke(program: &str, words: &str) -> process::ProgramOutput {
    let invocation = Invocation::new(find_program(program).unwrap(), words.split(' '));
    process::run("it", &invocation, Stdin::Empty, (Duration::from_secs(20), 1 << 20)).await.unwrap()
}

/// The same for one that must not fail.
async fn ran(program: &str, words: &str) {
    let ran = invoke(program, words).await;
    assert!(ran.ok(), "{program} {words}: {}", ran.stderr.text());
}

#[tokio::test]
async fn the_host_answers_only_where_a_line_of_the_hosts_file_leads_to_it() {
    let Some(case) = Case::new().await else { return };
    let (_listener, port) = listener();
    let closed = case.holder("closed", NetworkMode::Outgoing).await;
    let mut open = case.holder("open", NetworkMode::Outgoing).await;
    open.attachment.hosts = vec![HostLine { name: "up".into(), address: None }];
    for (holder, expected) in [(&closed, false), (&open, true)] {
        let attached = holder.attach().await;
        let gateway = attached.gateway.unwrap();
        let link = attached.link.unwrap();
        assert!(
            !std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default().contains(&link),
            "{link} has IPv6"
        );
        assert_eq!(holder.reaches(gateway, port), expected);
        assert!(!holder.reaches("127.0.0.1".parse().unwrap(), port));
        assert!(holder.hosts().contains(&format!("{gateway}\tup\n")) == expected);
    }
}

#[tokio::test]
async fn members_of_an_internal_network_do_not_ask_the_hosts_name_server() {
    let Some(case) = Case::new().await else { return };
    let _server = TcpListener::bind("0.0.0.0:53").unwrap();
    let internal = case.network("internal", true, true).await;
    for (mode, expected) in [(NetworkMode::Outgoing, true), (internal, false)] {
        let holder = case.holder("it", mode).await;
        let gateway = holder.attach().await.gateway.unwrap();
        assert_eq!(holder.reaches(gateway, 53), expected);
    }
}

#[tokio::test]
async fn a_device_of_the_host_with_a_similar_name_is_none_of_a_container() {
    let Some(case) = Case::new().await else { return };
    case.holder("it", NetworkMode::Outgoing).await.attach().await;
    let outside = case.machine(7).await;
    ran("ip", "link set tst7 down").await;
    ran("ip", "link set tst7 name corp0").await;
    ran("ip", "link set corp0 up").await;
    let (_listener, port) = listener();
    assert!(outside.reaches("198.18.7.1".parse().unwrap(), port));
}

#[tokio::test]
async fn containers_without_a_network_do_not_reach_each_other() {
    let Some(case) = Case::new().await else { return };
    let (one, other) =
        (case.holder("one", NetworkMode::Outgoing).await, case.holder("other", NetworkMode::Outgoing).await);
    let (at, _) = (one.attach().await, other.attach().await);
    let (_listener, port) = one.listens();
    assert!(one.reaches(at.address.unwrap(), port));
    assert!(!other.reaches(at.address.unwrap(), port));
    assert!(TcpStream::connect((at.address.unwrap(), port)).is_ok(), "the host reaches it");
}

#[tokio::test]
async fn members_reach_each_other_by_name_where_their_network_lets_them() {
    let Some(case) = Case::new().await else { return };
    let (open, apart) = (case.network("open", true, false).await, case.network("apart", false, false).await);
    let web = case.holder("web", open.clone()).await;
    let (client, stranger) = (case.holder("client", open).await, case.holder("stranger", apart.clone()).await);
    let parted = case.holder("parted", apart).await;
    let at = [web.attach().await, client.attach().await, stranger.attach().await, parted.attach().await];
    let address = at[0].address.unwrap();
    let ((_listener, port), (_other, parted_port)) = (web.listens(), parted.listens());
    assert!(client.reaches(address, port));
    assert!(!stranger.reaches(address, port));
    assert!(!stranger.reaches(at[3].address.unwrap(), parted_port));
    assert!(client.hosts().contains(&format!("{address}\tweb\n")), "{}", client.hosts());
    assert!(web.hosts().contains("\tclient\n") && !stranger.hosts().contains("parted"));
    let gone = case.holder("gone", parted.attachment.config.mode.clone()).await;
    let at_gone = gone.attach().await;
    gone.end(&at_gone).await;
    assert!(!stranger.hosts().contains("parted"), "members on separate networks got each other's names");
    web.end(&at[0]).await;
    assert!(!client.hosts().contains("web"), "{}", client.hosts());
}

#[tokio::test]
async fn a_container_starts_again_with_its_address_and_members_that_were_killed_are_forgotten() {
    let Some(case) = Case::new().await else { return };
    let network = case.network("it", true, false).await;
    let (web, other) = (case.holder("web", network.clone()).await, case.holder("other", network.clone()).await);
    let (at, _) = (web.attach().await, other.attach().await);
    let id = web.attachment.id.clone();
    drop(web.child);
    let NetworkMode::Named(network_id) = &network else { unreachable!() };
    let records = NetworkRecords::new(&case.directories);
    while ProcessId::from_pid(web.attachment.pid).is_some() {
        tokio::task::yield_now().await;
    }
    NetworkRecords::new(&case.directories).repair().await.unwrap();
    assert!(!other.hosts().contains("web"));
    let mut again = case.holder("web", network.clone()).await;
    again.attachment.id = id;
    let attached = again.attach().await;
    assert_eq!((attached.link, attached.network.as_ref()), (at.link, Some(network_id)));
    assert!(matches!(records.remove(network_id).await, Err(Error::Engine { .. })));
    assert!(records.find(&network_id[..12]).unwrap().is_some());
}

#[tokio::test]
async fn an_unknown_network_is_an_error_and_a_network_without_members_is_removed() {
    let Some(case) = Case::new().await else { return };
    let records = NetworkRecords::new(&case.directories);
    let lost = case.holder("lost", NetworkMode::Named("no-such".into())).await;
    assert!(matches!(attach(&lost.attachment).await, Err(Error::Engine { .. })));
    case.network("it", true, false).await;
    records.remove("it").await.unwrap();
    records.remove("it").await.unwrap();
    assert_eq!(records.list().unwrap(), []);
}

#[tokio::test]
async fn addresses_of_the_host_are_unreachable_from_a_container_but_for_its_own_and_those_of_its_name_servers() {
    let Some(case) = Case::new().await else { return };
    let holder = case.holder("it", NetworkMode::None).await;
    let pid = holder.attachment.pid;
    ran("ip", &format!("link add out type veth peer name eth0 netns {pid}")).await;
    ran("ip", "link set out up").await;
    for address in ["198.18.7.1/24", "198.18.8.1/32", "198.18.9.1/32", "fd00:7::1/64", "fd00:8::1/128", "fe80::7/64"] {
        ran("ip", &format!("addr add {address} dev out")).await;
    }
    let inside = async |words: &str| ran("nsenter", &format!("--net=/proc/{pid}/ns/net -- ip {words}")).await;
    inside("link set eth0 up").await;
    for words in ["addr add 198.18.7.2/24 dev eth0", "addr add 198.18.9.1/32 dev eth0"] {
        inside(words).await;
    }
    inside("addr add fd00:7::2/64 dev eth0 nodad").await;
    inside("route add default via 198.18.7.1").await;
    inside("-6 route add default via fd00:7::1").await;
    let closed = ClosedHost { pid, user_namespace: false, servers: vec!["198.18.8.1".parse().unwrap()] };
    host_addresses::close(&closed).unwrap();
    // A second start of the same container finds the first one's routes.
    host_addresses::close(&closed).unwrap();
    let device = holder.inside(|| Netlink::route().unwrap().index("eth0").unwrap());
    let is_routed = |to: &str| {
        let to: IpAddr = to.parse().unwrap();
        let to = match to {
            IpAddr::V4(_) => SocketAddr::new(to, 9),
            IpAddr::V6(it) => SocketAddrV6::new(it, 9, 0, device).into(),
        };
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        holder.inside(move || UdpSocket::bind(any).unwrap().connect(to).is_ok())
    };
    for open in ["198.18.8.1", "198.18.9.1", "198.18.7.9", "203.0.113.1", "fd00:7::9", "fd00:9::1", "fe80::9"] {
        assert!(is_routed(open), "{open}");
    }
    for closed in ["198.18.7.1", "fd00:7::1", "fd00:8::1", "fe80::7"] {
        assert!(!is_routed(closed), "{closed}");
    }
}
