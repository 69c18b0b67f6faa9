//! Probes the network from inside: no address must be reachable directly, and only names that the proxy allows.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::net::address::addresses;
use crate::protocol::relay::{API_PORT, EGRESS_PORT, EgressReport, INTERFACE, MAX_PROBED, ProbeEgress};
use crate::protocol::{ErrorCode, RpcError};

/// Longest duration of one direct attempt, also if the request has a longer one.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest duration of a request to the proxy. It has to succeed, so a busy machine gets more time than a closed way needs.
const RELAY_TIMEOUT: Duration = Duration::from_secs(15);

/// Makes all attempts concurrently. `has_token`: the reply of a guest in a test, which has no network of its own.
pub(crate) async fn probe(has_token: bool, request: ProbeEgress) -> Result<EgressReport, RpcError> {
    let invalid = |what: &str| Err(RpcError::new(ErrorCode::Invalid, what));
    if request.tcp.len() + request.udp.len() > MAX_PROBED {
        return invalid("too many addresses");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    if request.name.is_empty() || request.name.len() > 255 || !request.name.bytes().all(is_plain) {
        return invalid("invalid host name");
    }
    // A guest in a test process is not in a container, so a probe would examine the wrong network.
    if std::process::id() != 1 {
        return Ok(EgressReport { reached: vec![], egress: has_token.then_some(403), api: has_token.then_some(200) });
    }
    let interfaces = if request.tcp.is_empty() { BTreeSet::new() } else { interfaces() };
    let within = Duration::from_millis(request.within_ms).min(PROBE_TIMEOUT);
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", request.name);
    let health = "GET /proxy/v1/health HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n";
    let (reached, egress, api) = tokio::join!(
        reachable(request.tcp, request.udp, within),
        timeout(RELAY_TIMEOUT, status(EGRESS_PORT, &connect)),
        timeout(RELAY_TIMEOUT, status(API_PORT, health)),
    );
    let reached = reached?.into_iter().chain(interfaces.iter().map(|it| format!("{INTERFACE}{it}"))).collect();
    Ok(EgressReport { reached, egress: egress.ok().flatten(), api: api.ok().flatten() })
}

/// Interfaces other than the loopback that have a route or an IPv6 address. The kernel adds some that have neither, such as
/// `tunl0`.
fn interfaces() -> BTreeSet<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    with_network(&read("/proc/net/route"), &read("/proc/net/if_inet6"))
}

fn with_network(routes: &str, addresses: &str) -> BTreeSet<String> {
    let routes = routes.lines().skip(1).filter_map(|it| it.split_whitespace().next());
    let addresses = addresses.lines().filter_map(|it| it.split_whitespace().last());
    routes.chain(addresses).filter(|it| *it != "lo").map(str::to_owned).collect()
}

async fn reachable(tcp: Vec<String>, udp: Vec<String>, within: Duration) -> Result<Vec<String>, RpcError> {
    let mut attempts = JoinSet::new();
    for (text, is_tcp) in tcp.into_iter().map(|it| (it, true)).chain(udp.into_iter().map(|it| (it, false))) {
        let Some(at) = addresses(&text)?.into_iter().next() else { continue };
        attempts.spawn(async move {
            let is_reachable = match is_tcp {
                true => timeout(within, connects(at)).await,
                false => timeout(within, resolves(at)).await,
            };
            is_reachable.unwrap_or(false).then_some(text)
        });
    }
    let mut reached: Vec<_> = attempts.join_all().await.into_iter().flatten().collect();
    reached.sort();
    Ok(reached)
}

/// A refused connection counts as reachable: the peer has responded.
async fn connects(at: SocketAddr) -> bool {
    match TcpStream::connect(at).await {
        Ok(_) => true,
        Err(err) => matches!(err.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset),
    }
}

/// Sends a DNS query for `example.com`.
async fn resolves(at: SocketAddr) -> bool {
    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let exchange = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(at).await?;
        socket.send(QUERY).await?;
        socket.recv(&mut [0; 512]).await
    };
    match exchange.await {
        Ok(_) => true,
        Err(err) => err.kind() == io::ErrorKind::ConnectionRefused,
    }
}

/// The HTTP status with which a local port responds to a request.
async fn status(port: u16, request: &str) -> Option<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    // `HTTP/1.1 403`
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.ok()?;
    std::str::from_utf8(head.strip_prefix(b"HTTP/1.1 ")?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_responds_or_refuses_is_reachable() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (open, dns) = (listener.local_addr().unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (responding, not_responding) = (dns.local_addr().unwrap(), silent.local_addr().unwrap());
        tokio::spawn(async move {
            let (count, from) = dns.recv_from(&mut [0; 512]).await.unwrap();
            dns.send_to(&[0; 12], from).await.map(|_| count)
        });
        let udp = vec![responding.to_string(), not_responding.to_string()];
        let tcp = vec![open.to_string(), closed.to_string()];
        let mut expected = vec![open.to_string(), closed.to_string(), responding.to_string()];
        expected.sort();
        assert_eq!(reachable(tcp, udp, Duration::from_millis(300)).await.unwrap(), expected);
        assert!(reachable(vec!["name:80".into()], vec![], PROBE_TIMEOUT).await.is_err(), "names are not resolved");
    }

    #[test]
    fn an_interface_with_a_route_or_an_address_is_a_network() {
        let none = "Iface\tDestination\tGateway \tFlags\n";
        let lo = "00000000000000000000000000000001 01 80 10 80       lo\n";
        let found = |routes: &str, addresses: &str| with_network(routes, addresses).into_iter().collect::<Vec<_>>();
        assert_eq!(found(none, lo), [""; 0]);
        assert_eq!(found("", ""), [""; 0]);
        let eth0 = "fe80000000000000004211fffeac0002 04 40 20 80     eth0\n";
        assert_eq!(found(&format!("{none}tap0\t00000000\t0202000A\t0003\n"), &format!("{lo}{eth0}")), ["eth0", "tap0"]);
    }

    #[tokio::test]
    async fn only_an_http_status_is_read() {
        for (response, expected) in
            [("HTTP/1.1 403 Forbidden\r\n\r\n", Some(403)), ("SSH-2.0-OpenSSH_9\r\n", None), ("HTTP", None)]
        {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(response.as_bytes()).await.unwrap();
            };
            let (status, ()) = tokio::join!(status(port, "x"), server);
            assert_eq!(status, expected);
        }
    }
}
