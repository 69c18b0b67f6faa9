//! Probes the network from inside: no address is reachable directly, and only names that the proxy allows.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::net::address::addresses;
use crate::protocol::relay::{API_PORT, EGRESS_PORT, EgressReport, MAX_PROBED, ProbeEgress};
use crate::protocol::{ErrorCode, RpcError};

/// A try takes no longer, whatever was asked.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes all tries at once. `has_token`: the proxy could be asked by a guest that is played.
pub(crate) async fn probe(has_token: bool, ask: ProbeEgress) -> Result<EgressReport, RpcError> {
    let invalid = |what: &str| Err(RpcError::new(ErrorCode::Invalid, what));
    if ask.tcp.len() + ask.udp.len() > MAX_PROBED {
        return invalid("too many addresses");
    }
    let plain = |it: u8| it.is_ascii_alphanumeric() || b".-:".contains(&it);
    if ask.name.is_empty() || ask.name.len() > 255 || !ask.name.bytes().all(plain) {
        return invalid("that is no name to ask the proxy for");
    }
    // A guest in a test process is in no container: a probe of its network would be meaningless.
    if std::process::id() != 1 {
        return Ok(EgressReport { reached: vec![], egress: has_token.then_some(403), api: has_token.then_some(200) });
    }
    let within = Duration::from_millis(ask.within_ms).min(PROBE_TIMEOUT);
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", ask.name);
    let health = "GET /proxy/v1/health HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n";
    let (reached, egress, api) = tokio::join!(
        reached(ask.tcp, ask.udp, within),
        timeout(within, status(EGRESS_PORT, &connect)),
        timeout(within, status(API_PORT, health)),
    );
    Ok(EgressReport { reached: reached?, egress: egress.ok().flatten(), api: api.ok().flatten() })
}

async fn reached(tcp: Vec<String>, udp: Vec<String>, within: Duration) -> Result<Vec<String>, RpcError> {
    let mut tries = JoinSet::new();
    for (text, is_tcp) in tcp.into_iter().map(|it| (it, true)).chain(udp.into_iter().map(|it| (it, false))) {
        let Some(at) = addresses(&text)?.into_iter().next() else { continue };
        tries.spawn(async move {
            let answered = match is_tcp {
                true => timeout(within, connects(at)).await,
                false => timeout(within, resolves(at)).await,
            };
            answered.unwrap_or(false).then_some(text)
        });
    }
    let mut reached: Vec<_> = tries.join_all().await.into_iter().flatten().collect();
    reached.sort();
    Ok(reached)
}

/// A refused connection counts: the packet was answered.
async fn connects(at: SocketAddr) -> bool {
    match TcpStream::connect(at).await {
        Ok(_) => true,
        Err(err) => matches!(err.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset),
    }
}

/// Looks up the address of `example.com`.
async fn resolves(at: SocketAddr) -> bool {
    const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let asked = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(at).await?;
        socket.send(QUESTION).await?;
        socket.recv(&mut [0; 512]).await
    };
    match asked.await {
        Ok(_) => true,
        Err(err) => err.kind() == io::ErrorKind::ConnectionRefused,
    }
}

/// The status that a port of our own gives to a request.
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
    async fn what_answers_is_reached_also_when_it_refuses() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (open, dns) = (listener.local_addr().unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (answers, keeps_silent) = (dns.local_addr().unwrap(), silent.local_addr().unwrap());
        tokio::spawn(async move {
            let (count, from) = dns.recv_from(&mut [0; 512]).await.unwrap();
            dns.send_to(&[0; 12], from).await.map(|_| count)
        });
        let udp = vec![answers.to_string(), keeps_silent.to_string()];
        let tcp = vec![open.to_string(), closed.to_string()];
        let mut expected = vec![open.to_string(), closed.to_string(), answers.to_string()];
        expected.sort();
        assert_eq!(reached(tcp, udp, Duration::from_millis(300)).await.unwrap(), expected);
        assert!(reached(vec!["name:80".into()], vec![], PROBE_TIMEOUT).await.is_err(), "no name is looked up");
    }

    #[tokio::test]
    async fn the_status_of_an_answer_is_read_and_nothing_else_is_one() {
        for (answer, expected) in
            [("HTTP/1.1 403 Forbidden\r\n\r\n", Some(403)), ("SSH-2.0-OpenSSH_9\r\n", None), ("HTTP", None)]
        {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let answers = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let (status, ()) = tokio::join!(status(port, "x"), answers);
            assert_eq!(status, expected);
        }
    }
}
