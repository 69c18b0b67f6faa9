//! A tunnel: copies bytes in both directions while the policy allows it and one side sends. Connections that have names of
//! hosts inside are checked: TLS by its ClientHello, HTTP by its requests.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::client_connection::ClientConnection;
use super::connect::{EgressConnection, disallowed};
use super::denial::EgressDenial;
use super::first_line::{FirstLine, first_line};
use super::recorded::OptionalExchange;
use super::requests;
use super::sni::{HANDSHAKE, Hello, hello_length, is_retry, offers_http, second_server_name, server_name};
use super::target::EgressTarget;
use crate::caller::Caller;
use crate::entry::Entry;
use crate::policy::EgressHost;

/// How long the ClientHello may take to arrive.
const HELLO: Duration = Duration::from_secs(10);

/// The port on which a connection has to start with a ClientHello.
const TLS: u16 = 443;

/// Maximum size of early data and a second ClientHello.
const MAX_RETRIED: usize = 256 << 10;

/// The first number of each version of TLS.
const TLS_MAJOR: u8 = 3;

/// Waits until the proxy has to see the requests of a connection that it only copies.
async fn is_to_be_seen(caller: &Caller, target: &EgressTarget) {
    let mut changes = caller.shared.grants.subscribe();
    while !caller.sees_requests(target) && changes.changed().await.is_ok() {}
}

/// What a connection carries, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// TLS for the requested name.
    Tls,
    /// The same, with an encrypted ClientHello. Only a server that has to decrypt it knows who it is for.
    HiddenTls,
    /// HTTP without TLS.
    Http,
    /// A protocol that has no names of hosts, or a connection by address.
    Other,
}

pub(super) type Beginning = (Carried, Vec<u8>);

/// Runs a tunnel to its end.
pub(crate) async fn run(
    caller: Caller,
    mut entry: Entry,
    target: EgressTarget,
    (upgrade, connection): (OnUpgrade, EgressConnection),
) {
    let Ok(inside) = upgrade.await else { return };
    let mut inside = TokioIo::new(inside);
    let sees_requests = caller.sees_requests(&target);
    let refused = |entry: &mut Entry, refusal: EgressDenial| {
        entry.line.code = Some(refusal.code);
        caller.shared.report(refusal.code, Some(target.shown()), None);
    };
    let silence = caller.shared.pace.silence;
    let (mut peeked, outside) = ([0], &connection.stream);
    let speaks = async { drop(outside.peek(&mut peeked).await) };
    let begun = tokio::select! {
        begun = timeout(silence, begins(&mut inside, speaks, &target, sees_requests)) => begun,
        () = disallowed(&caller, &target, connection.at) => Ok(Err(EgressDenial::CHANGED)),
    };
    let (carried, begins) = match begun {
        Ok(Ok(begun)) => begun,
        Ok(Err(refusal)) => return refused(&mut entry, refusal),
        Err(_) => return,
    };
    // A record needs the requests, and other protocols than HTTP have none.
    let for_record = || caller.shared.recorder.is_some() && (target.port == TLS || offers_http(&begins));
    let ends_tls = sees_requests || for_record();
    if carried == Carried::Tls && ends_tls || matches!(carried, Carried::HiddenTls | Carried::Http) {
        let accepting = ClientConnection::accept(&caller, &target, carried != Carried::Http, inside, begins);
        return match Box::pin(accepting).await {
            Ok(client) => Box::pin(requests::serve(caller.clone(), target.clone(), client, connection)).await,
            Err(refusal) => refused(&mut entry, refusal),
        };
    }
    let EgressConnection { stream: mut outside, at } = connection;
    let exchange = OptionalExchange::of_connection(&caller, &target);
    let flow = TunnelFlow::new(silence);
    let begins = match (carried, &target.host) {
        (Carried::Tls, EgressHost::Name(name)) => {
            let greeted = timeout(silence, greet(&flow, &mut inside, &mut outside, (name, begins))).await;
            match greeted {
                Ok(Ok(Some(rest))) => rest,
                Ok(Err(refusal)) => return refused(&mut entry, refusal),
                Ok(Ok(None)) | Err(_) => return,
            }
        }
        _ => begins,
    };
    tokio::select! {
        () = disallowed(&caller, &target, at) => refused(&mut entry, EgressDenial::CHANGED),
        () = is_to_be_seen(&caller, &target) => refused(&mut entry, EgressDenial::CHANGED),
        () = flow.both(inside, outside, begins) => {}
    }
    let (sent, received) = flow.bytes();
    (entry.line.bytes_in, entry.line.bytes_out) = (sent, received);
    exchange.not_seen(sent, received);
}

/// Reads the first bytes, and checks that TLS is for the requested name. Until then, no byte is forwarded. `speaks` ends
/// when the server sends something.
pub(super) async fn begins(
    inside: &mut (impl AsyncRead + Unpin),
    speaks: impl Future<Output = ()>,
    target: &EgressTarget,
    sees_requests: bool,
) -> Result<Beginning, EgressDenial> {
    let EgressHost::Name(name) = &target.host else { return Ok((Carried::Other, Vec::new())) };
    let mut begins = Vec::new();
    if target.port != TLS && !sees_requests {
        // In protocols such as SSH the client waits for the server. Those with names of hosts begin with the client.
        tokio::select! {
            biased;
            read = inside.read_buf(&mut begins) => match read {
                Ok(1..) => {}
                _ => return Ok((Carried::Other, begins)),
            },
            () = speaks => return Ok((Carried::Other, begins)),
        }
    }
    let reading = async {
        loop {
            if let Some(carried) = carried(&begins, name, target.port)? {
                return if carried == Carried::Other && sees_requests {
                    Err(EgressDenial::NO_TLS)
                } else {
                    Ok(carried)
                };
            }
            if !matches!(inside.read_buf(&mut begins).await, Ok(1..)) {
                return Err(EgressDenial::SNI);
            }
        }
    };
    let carried = timeout(HELLO, reading).await.unwrap_or(Err(EgressDenial::SNI))?;
    Ok((carried, begins))
}

/// Forwards a ClientHello and the server's answer. The server may request another ClientHello, whose name is checked as
/// that of the first one: nothing else of the client is forwarded before. Returns what is left of the bytes that were read,
/// or `None` if a side has closed.
async fn greet(
    flow: &TunnelFlow,
    inside: &mut (impl AsyncRead + AsyncWrite + Unpin),
    outside: &mut (impl AsyncRead + AsyncWrite + Unpin),
    (name, mut begins): (&str, Vec<u8>),
) -> Result<Option<Vec<u8>>, EgressDenial> {
    let mut rest = begins.split_off(hello_length(&begins));
    let mut answer = Vec::new();
    let answered = async {
        outside.write_all(&begins).await?;
        flow.passed(0, begins.len());
        while is_retry(&answer).is_none() && outside.read_buf(&mut answer).await? > 0 {}
        flow.passed(1, answer.len());
        inside.write_all(&answer).await
    };
    if answered.await.is_err() {
        return Ok(None);
    }
    if is_retry(&answer) != Some(true) {
        return Ok(Some(rest));
    }
    while rest.len() <= MAX_RETRIED {
        match second_server_name(&rest) {
            Hello::Named(server) if server == *name => return Ok(Some(rest)),
            Hello::Named(_) | Hello::Hidden(_) | Hello::Unnamed => return Err(EgressDenial::SNI),
            Hello::More => {}
        }
        match inside.read_buf(&mut rest).await {
            Ok(1..) => {}
            _ => return Ok(None),
        }
    }
    Err(EgressDenial::SNI)
}

/// Parses the bytes received so far; `None` if there are not enough.
fn carried(begins: &[u8], name: &str, port: u16) -> Result<Option<Carried>, EgressDenial> {
    let may_be_tls = match begins {
        [] | [HANDSHAKE] | [HANDSHAKE, TLS_MAJOR, ..] => true,
        _ => port == TLS,
    };
    if may_be_tls {
        return match server_name(begins) {
            Hello::Named(server) if server == *name => Ok(Some(Carried::Tls)),
            Hello::Hidden(server) if server == *name => Ok(Some(Carried::HiddenTls)),
            Hello::Named(_) | Hello::Hidden(_) | Hello::Unnamed => Err(EgressDenial::SNI),
            Hello::More => Ok(None),
        };
    }
    Ok(match first_line(begins) {
        FirstLine::Request => Some(Carried::Http),
        FirstLine::Other => Some(Carried::Other),
        FirstLine::More => None,
    })
}

struct TunnelFlow {
    silence: Duration,
    state: Mutex<TunnelCounters>,
}

struct TunnelCounters {
    last: Instant,
    bytes: [u64; 2],
}

impl TunnelFlow {
    fn new(silence: Duration) -> Self {
        Self { silence, state: Mutex::new(TunnelCounters { last: Instant::now(), bytes: [0; 2] }) }
    }

    fn passed(&self, way: usize, bytes: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = Instant::now();
        state.bytes[way] += bytes as u64;
    }

    fn bytes(&self) -> (u64, u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes.into()
    }

    /// Runs until both sides have closed, one of them fails, or neither sends for too long.
    async fn both(&self, inside: impl AsyncRead + AsyncWrite, mut outside: TcpStream, begins: Vec<u8>) {
        if outside.write_all(&begins).await.is_err() {
            return;
        }
        self.passed(0, begins.len());
        let (mut from_inside, mut to_inside) = tokio::io::split(inside);
        let (mut from_outside, mut to_outside) = outside.split();
        let out = self.pump(&mut from_inside, &mut to_outside, 0);
        let back = self.pump(&mut from_outside, &mut to_inside, 1);
        tokio::select! {
            _ = async { tokio::try_join!(out, back) } => {}
            () = self.silent() => {}
        }
    }

    async fn pump(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        way: usize,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return to.shutdown().await;
            }
            to.write_all(&buffer[..count]).await?;
            self.passed(way, count);
        }
    }

    async fn silent(&self) {
        loop {
            let until = self.state.lock().unwrap_or_else(PoisonError::into_inner).last + self.silence;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sni::tests::{hello, retry};
    use super::*;

    fn target(name: &str, port: u16) -> EgressTarget {
        EgressTarget { host: EgressHost::parse(name).unwrap(), port }
    }

    /// The beginning of a connection whose server is silent.
    async fn beginning(bytes: &[u8], target: &EgressTarget, sees_requests: bool) -> Result<Beginning, EgressDenial> {
        begins(&mut &bytes[..], std::future::pending(), target, sees_requests).await
    }

    #[tokio::test]
    async fn x61_the_client_hello_has_to_be_for_the_requested_name() {
        let right = hello("EXAMPLE.com");
        let other = hello("evil.com");
        for port in [TLS, 8443] {
            let requested = target("example.com", port);
            assert_eq!(beginning(&right, &requested, false).await, Ok((Carried::Tls, right.clone())));
            for wrong in [&other[..], &right[..20], b"\x16\x03\x01\x00\x00"] {
                assert_eq!(beginning(wrong, &requested, false).await, Err(EgressDenial::SNI), "{port}");
            }
        }
        for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", b"SSH-2.0-x\r\n"] {
            assert_eq!(beginning(wrong, &target("example.com", TLS), false).await, Err(EgressDenial::SNI));
        }
        let by_address = beginning(&other, &target("10.0.0.1", TLS), false).await;
        assert_eq!(by_address, Ok((Carried::Other, vec![])), "an address has no other name");
    }

    #[tokio::test]
    async fn on_other_ports_http_is_noticed_and_any_other_protocol_passes() {
        let at_80 = target("example.com", 80);
        let (request, other) = (&b"\r\nGET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"[..], &b"EHLO me\r\n"[..]);
        for sees_requests in [false, true] {
            let begun = beginning(request, &at_80, sees_requests).await;
            assert_eq!(begun, Ok((Carried::Http, request.to_vec())));
        }
        assert_eq!(beginning(other, &at_80, false).await, Ok((Carried::Other, other.to_vec())));
        assert_eq!(beginning(other, &at_80, true).await, Err(EgressDenial::NO_TLS));
        assert_eq!(beginning(b"", &at_80, false).await, Ok((Carried::Other, vec![])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_may_speak_first_but_a_client_that_began_has_to_go_on() {
        let (mut held, mut inside) = tokio::io::duplex(64);
        let silent = begins(&mut inside, std::future::pending(), &target("example.com", TLS), false).await;
        assert_eq!(silent, Err(EgressDenial::SNI));
        let requested = target("example.com", 80);
        let begun = begins(&mut inside, std::future::ready(()), &requested, false).await;
        assert_eq!(begun, Ok((Carried::Other, vec![])));
        held.write_all(b"GET /").await.unwrap();
        let begun = begins(&mut inside, std::future::ready(()), &requested, false).await;
        assert_eq!(begun, Err(EgressDenial::SNI), "half a line");
    }

    /// What reaches a server that requests another ClientHello, and whether the tunnel goes on.
    async fn retried(again: &[u8]) -> (Vec<u8>, Result<Option<Vec<u8>>, EgressDenial>) {
        let (mut client, mut inside) = tokio::io::duplex(1 << 16);
        let (mut server, mut outside) = tokio::io::duplex(1 << 16);
        client.write_all(again).await.unwrap();
        client.shutdown().await.unwrap();
        server.write_all(&retry()).await.unwrap();
        let flow = TunnelFlow::new(Duration::from_secs(1));
        // The client sends the second one before it was requested.
        let begins = [hello("example.com"), again[..2].to_vec()].concat();
        inside.read_exact(&mut [0; 2]).await.unwrap();
        let greeted = greet(&flow, &mut inside, &mut outside, ("example.com", begins)).await;
        drop(outside);
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        (received, greeted)
    }

    #[tokio::test]
    async fn a_second_client_hello_has_to_be_for_the_requested_name_too() {
        let change = &b"\x14\x03\x03\x00\x01\x01"[..];
        let right = [change, &hello("example.com")].concat();
        assert_eq!(retried(&right).await, (hello("example.com"), Ok(Some(right))));
        let other = [change, &hello("evil.com")].concat();
        assert_eq!(retried(&other).await, (hello("example.com"), Err(EgressDenial::SNI)));
        assert_eq!(retried(change).await, (hello("example.com"), Ok(None)));
    }
}
