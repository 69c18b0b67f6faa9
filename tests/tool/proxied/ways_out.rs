//! Ways out of a container with `network: "proxy"` that do not lead through its proxy. Each is a row of a table, tried by a
//! program inside as root, with listeners on this host as witnesses. A container with a network is the positive control: the
//! same program reaches the same listeners from there. Addresses that the guest tries are in `guest::relay`, other sockets
//! in `guest::filter`, and what the proxy refuses in its own tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coracle_types::{ContainerId, EngineKind, random_hex};
use serde_json::{Value, json};

use super::super::person::Person;
use super::super::{Tool, eventually};
use crate::engines::{WITHOUT_WAITING, is_root};
use crate::guest::{add_perl_to, perl_command};

/// What begins the program: each attempt prints its name and `open`, `silent`, or the failed step with its error number.
const PROGRAM: &str = r#"
$| = 1;
$SIG{ALRM} = sub { die "late\n" };
sub in4 { my ($ip, $port) = @_; pack 'S n C4 x8', 2, $port, split /\./, $ip }
sub in6 { my ($hex, $port, $scope) = @_; pack 'S n N H32 L', 10, $port, 0, $hex, $scope // 0 }
sub mapped { my ($ip, $port) = @_; in6(('0' x 20) . 'ffff' . (sprintf '%02x' x 4, split /\./, $ip), $port) }
sub attempt {
    my ($name, $family, $type, $protocol, $to, $bytes) = @_;
    my $found = eval {
        alarm 3;
        socket(my $socket, $family, $type, $protocol) or return 'socket ' . ($! + 0);
        connect($socket, $to) or return 'connect ' . ($! + 0);
        defined syswrite($socket, $bytes) or return 'write ' . ($! + 0);
        defined sysread($socket, my $answer, 16) or return 'read ' . ($! + 0);
        length $answer ? 'open' : 'closed';
    } // 'silent';
    alarm 0;
    print "$name\t$found\n";
}
"#;

/// No route to the destination.
const NO_ROUTE: &[&str] = &["connect 101"];
/// Only the container's own loopback, where nothing listens.
const OWN_LOOPBACK: &[&str] = &["connect 111", "read 111"];
/// The kernel or the filter gives no such socket.
const NO_SOCKET: &[&str] = &["socket 1", "socket 13", "socket 22", "socket 93", "socket 97"];
const NO_FILE: &[&str] = &["connect 2"];

/// An attempt: its name, arguments in Perl, what it finds without a way out, and whether a network opens it. `HOST`, `OTHER`
/// and `GATEWAY` are addresses, `TCP`, `UDP` and `LOOPBACK` ports, and `NAME` is an abstract socket.
type Row = (&'static str, &'static str, &'static [&'static str], bool);

const ROWS: &[Row] = &[
    ("TCP to this host", "2, 1, 0, in4('HOST', TCP), 'x'", NO_ROUTE, true),
    ("TCP to the loopback of this host", "2, 1, 0, in4('127.0.0.1', LOOPBACK), 'x'", OWN_LOOPBACK, false),
    ("TCP to another container", "2, 1, 0, in4('OTHER', 8080), \"GET / HTTP/1.0\\r\\n\\r\\n\"", NO_ROUTE, true),
    ("TCP to the gateway of a bridge", "2, 1, 0, in4('GATEWAY', TCP), 'x'", NO_ROUTE, false),
    ("TCP to the gateway of a user-mode network", "2, 1, 0, in4('10.0.2.2', TCP), 'x'", NO_ROUTE, false),
    ("TCP to a resolver of a user-mode network", "2, 1, 0, in4('10.0.2.3', 53), 'x'", NO_ROUTE, false),
    ("TCP to a public resolver", "2, 1, 0, in4('9.9.9.9', 53), 'x'", NO_ROUTE, false),
    ("TCP to the resolver of an engine", "2, 1, 0, in4('127.0.0.11', 53), 'x'", OWN_LOOPBACK, false),
    ("TCP to the metadata service", "2, 1, 0, in4('169.254.169.254', 80), 'x'", NO_ROUTE, false),
    ("TCP to a mapped address", "10, 1, 0, mapped('HOST', TCP), 'x'", NO_ROUTE, true),
    ("TCP to a mapped loopback", "10, 1, 0, mapped('127.0.0.1', LOOPBACK), 'x'", OWN_LOOPBACK, false),
    ("TCP to the loopback of IPv6", "10, 1, 0, in6(('0' x 31) . '1', LOOPBACK), 'x'", LOOPBACK_V6, false),
    ("TCP to a link-local address", "10, 1, 0, in6('fe80' . ('0' x 27) . '1', TCP, 2), 'x'", NO_LINK, false),
    ("UDP to this host", "2, 2, 0, in4('HOST', UDP), 'x'", NO_ROUTE, true),
    ("UDP to the loopback of this host", "2, 2, 0, in4('127.0.0.1', UDP), 'x'", OWN_LOOPBACK, false),
    ("UDP to a mapped address", "10, 2, 0, mapped('HOST', UDP), 'x'", NO_ROUTE, true),
    ("UDP to another container, as QUIC", "2, 2, 0, in4('OTHER', 443), 'x'", NO_ROUTE, false),
    ("UDP to the resolver of an engine", "2, 2, 0, in4('127.0.0.11', 53), 'x'", OWN_LOOPBACK, false),
    ("UDP to everyone", "2, 2, 0, in4('255.255.255.255', UDP), 'x'", BROADCAST, false),
    ("UDP to a group", "2, 2, 0, in4('224.0.0.251', 5353), 'x'", NO_ROUTE, false),
    ("SCTP to this host", "2, 1, 132, in4('HOST', TCP), 'x'", NO_SCTP, false),
    ("a raw socket of ICMP", "2, 3, 1, in4('HOST', 0), pack('C2 n3', 8, 0, 63487, 0, 0)", NO_RAW, false),
    ("an echo of ICMP", "2, 2, 1, in4('HOST', 0), pack('C2 n3', 8, 0, 63487, 0, 0)", NO_RAW, false),
    ("a raw socket of IPv6", "10, 3, 58, in6('fe80' . ('0' x 27) . '1', 0, 2), 'x'", NO_RAW, false),
    ("a socket of packets", "17, 3, 768, pack('S n l x12', 17, 2048, 1), 'x'", NO_SOCKET, false),
    ("a socket to the hypervisor", "40, 1, 0, pack('S S L L x4', 40, 0, 22, 2), 'x'", NO_SOCKET, false),
    ("a socket to this machine as a guest", "40, 1, 0, pack('S S L L x4', 40, 0, 22, 1), 'x'", NO_SOCKET, false),
    ("a socket of Bluetooth", "31, 3, 1, '', 'x'", NO_SOCKET, false),
    ("an abstract socket of this host", "1, 1, 0, pack('S a*', 1, \"\\0NAME\"), 'x'", OWN_LOOPBACK, false),
    ("Docker's socket", "1, 1, 0, pack('S a108', 1, '/var/run/docker.sock'), 'x'", NO_FILE, false),
    ("Docker's socket in another place", "1, 1, 0, pack('S a108', 1, '/run/docker.sock'), 'x'", NO_FILE, false),
    ("Podman's socket", "1, 1, 0, pack('S a108', 1, '/run/podman/podman.sock'), 'x'", NO_FILE, false),
    ("containerd's socket", "1, 1, 0, pack('S a108', 1, '/run/containerd/containerd.sock'), 'x'", NO_FILE, false),
];

/// The kernel may have no IPv6.
const LOOPBACK_V6: &[&str] = &["connect 111", "connect 99", "connect 101", "socket 97"];
const NO_LINK: &[&str] = &["connect 99", "connect 101", "connect 19", "connect 22", "socket 97"];
const BROADCAST: &[&str] = &["connect 13", "connect 101"];
const NO_SCTP: &[&str] = &["socket 93", "socket 94", "socket 1", "connect 101"];
const NO_RAW: &[&str] = &["socket 1", "socket 13", "socket 93", "socket 97", "connect 101", "connect 19", "connect 22"];

/// Listeners on this host, which count what reaches them.
struct Witnesses {
    host: Ipv4Addr,
    ports: BTreeMap<&'static str, u16>,
    /// An abstract socket.
    name: String,
    reached: Arc<AtomicUsize>,
}

/// Answers each connection.
fn serve_tcp(at: SocketAddr, reached: &Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind(at).unwrap();
    let (port, reached) = (listener.local_addr().unwrap().port(), reached.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            reached.fetch_add(1, Ordering::Relaxed);
            // Unread bytes would make the end of the connection a reset, which can overtake the answer.
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = stream.read(&mut [0; 16]);
            let _ = stream.write_all(b"there");
        }
    });
    port
}

fn own_address() -> Ipv4Addr {
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    // No packet is sent: the kernel selects the local address.
    probe.connect("192.0.2.1:9").unwrap();
    let SocketAddr::V4(own) = probe.local_addr().unwrap() else { panic!("an IPv4 address") };
    *own.ip()
}

impl Witnesses {
    /// `mapped` is an address that leads to the loopback of this host, for containers that have this host's own address.
    fn new(mapped: Option<Ipv4Addr>) -> Self {
        let (host, udp_address) = match mapped {
            Some(host) => (host, Ipv4Addr::LOCALHOST),
            // By any address, it would answer from that of a bridge, which the sender does not expect.
            None => (own_address(), own_address()),
        };
        let reached = Arc::<AtomicUsize>::default();
        let [tcp, loopback] =
            [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST].map(|it| serve_tcp((it, 0).into(), &reached));
        let socket = UdpSocket::bind((udp_address, 0)).unwrap();
        let (udp, count) = (socket.local_addr().unwrap().port(), reached.clone());
        std::thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 16]) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = socket.send_to(b"there", from);
            }
        });
        let name = format!("coracle-{}", random_hex::<8>());
        let at = UnixAddr::from_abstract_name(&name).unwrap();
        let (listener, count) = (UnixListener::bind_addr(&at).unwrap(), reached.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(b"there");
            }
        });
        UnixStream::connect_addr(&at).expect("from this host it is open");
        let ports = [("TCP", tcp), ("UDP", udp), ("LOOPBACK", loopback)].into();
        let witnesses = Self { host, ports, name, reached };
        witnesses.takes_count();
        witnesses
    }

    fn takes_count(&self) -> usize {
        self.reached.swap(0, Ordering::Relaxed)
    }

    /// What the rows find in a container.
    async fn found(&self, tool: &Tool<'_>, container: &Value, other: &str) -> BTreeMap<String, String> {
        let gateway = if tool.case.engine() == EngineKind::Podman { "10.88.0.1" } else { "172.17.0.1" };
        let mut program = PROGRAM.to_owned();
        for (name, arguments, ..) in ROWS {
            writeln!(program, "attempt(\"{name}\", {arguments});").unwrap();
        }
        let host = self.host.to_string();
        let mut program = [("HOST", &*host), ("OTHER", other), ("GATEWAY", gateway), ("NAME", &*self.name)]
            .iter()
            .fold(program, |program, (name, value)| program.replace(name, value));
        for (name, port) in &self.ports {
            for end in [')', ','] {
                program = program.replace(&format!(" {name}{end}"), &format!(" {port}{end}"));
            }
        }
        let id = ContainerId::parse(container["id"].as_str().unwrap()).unwrap();
        add_perl_to(tool.case, &id).await;
        let call = json!({ "operation": "exec", "container": container["container"], "command": perl_command(&program),
            "as_root": true, "env": { "LC_ALL": "C" }, "timeout": 120 });
        let ran = tool.call(call).await;
        assert_eq!(ran["exit_code"], 0, "{ran:#}");
        let lines = ran["stdout"].as_str().unwrap().lines();
        lines.map(|it| it.split_once('\t').unwrap()).map(|(name, found)| (name.to_owned(), found.to_owned())).collect()
    }
}

#[tokio::test]
async fn a_container_with_a_proxy_has_no_other_way_out() {
    let table = Mutex::new(Vec::new());
    let person = Person::new("[security.egress]\nallow = [\"example.com\"]\n");
    person
        .on_real_engines(async |tool| {
            // On the embedded engine only a network that names this host leads to it.
            let hosts: &[_] = match tool.case.engine() {
                EngineKind::Embedded => &["host.docker.internal:host-gateway"],
                _ => &[],
            };
            let open = tool.made(json!({ "network": "bridge", "add_hosts": hosts })).await;
            let name = open["container"].as_str().unwrap();
            let mapped = if tool.case.engine() == EngineKind::Embedded && !is_root() {
                let lines = tool.prints(name, "grep host.docker.internal /etc/hosts").await;
                Some(lines.split_whitespace().next().unwrap().parse().unwrap())
            } else {
                None
            };
            let witnesses = Witnesses::new(mapped);
            let serve = json!({ "operation": "exec_background", "container": name, "command": "httpd -f -p 8080" });
            assert_eq!(tool.call(serve).await["success"], true);
            let listens = "/.coracle/guest pipe 127.0.0.1:8080 </dev/null";
            eventually("it listens", WITHOUT_WAITING, async || tool.exec(name, listens).await["exit_code"] == 0).await;
            let addresses = tool.prints(name, "hostname -i").await;
            let other = addresses.split(' ').next().unwrap();
            let control = witnesses.found(tool, &open, other).await;
            for (name, ..) in ROWS.iter().filter(|it| it.3) {
                assert_eq!(control[*name], "open", "{}: {name}: {control:#?}", tool.case.engine());
            }
            assert_ne!(witnesses.takes_count(), 0);

            let closed = tool.made(json!({ "network": "proxy" })).await;
            let found = witnesses.found(tool, &closed, other).await;
            for (name, _, expected, _) in ROWS {
                let found = found.get(*name).map_or("", String::as_str);
                assert!(expected.contains(&found), "{}: {name}: {found}", tool.case.engine());
            }
            assert_eq!(witnesses.takes_count(), 0, "{found:#?}");
            table.lock().unwrap().push((tool.case.engine(), found));
        })
        .await;
    eprintln!("{:#?}", table.into_inner().unwrap());
}
