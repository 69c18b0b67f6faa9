//! A tunnel: copies bytes in both directions while the policy allows it and one side sends.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::{EgressConnection, disallowed};
use super::denial::EgressDenial;
use super::requests;
use super::sni::{Hello, server_name};
use super::target::EgressTarget;
use crate::caller::Caller;
use crate::entry::Entry;
use crate::policy::EgressHost;

/// How long the ClientHello may take to arrive.
const HELLO: Duration = Duration::from_secs(10);

/// The port on which a connection has to start with a ClientHello for the right name.
const TLS: u16 = 443;

/// Waits until the proxy has to see the requests of a connection that it only copies.
async fn is_to_be_seen(caller: &Caller, target: &EgressTarget) {
    let mut changes = caller.shared.grants.subscribe();
    while !caller.sees_requests(target) && changes.changed().await.is_ok() {}
}

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
    let begins = match begins(&mut inside, &target, sees_requests).await {
        Ok(begins) => begins,
        Err(refusal) => return refused(&mut entry, refusal),
    };
    if sees_requests {
        let served = requests::serve(caller.clone(), target.clone(), (inside, begins), connection).await;
        return served.unwrap_or_else(|refusal| refused(&mut entry, refusal));
    }
    let EgressConnection { stream: outside, at } = connection;
    let flow = TunnelFlow::new(caller.shared.pace.silence);
    tokio::select! {
        () = disallowed(&caller, &target, at) => refused(&mut entry, EgressDenial::CHANGED),
        () = is_to_be_seen(&caller, &target) => refused(&mut entry, EgressDenial::CHANGED),
        () = flow.both(inside, outside, begins) => {}
    }
    let (sent, received) = flow.bytes();
    (entry.line.bytes_in, entry.line.bytes_out) = (sent, received);
}

/// Reads the ClientHello and checks that it is for the requested name. Until then, no byte is forwarded.
async fn begins(
    inside: &mut (impl AsyncRead + Unpin),
    target: &EgressTarget,
    sees_requests: bool,
) -> Result<Vec<u8>, EgressDenial> {
    let EgressHost::Name(name) = &target.host else { return Ok(Vec::new()) };
    if target.port != TLS && !sees_requests {
        return Ok(Vec::new());
    }
    let mut begins = Vec::new();
    let reading = async {
        loop {
            match server_name(&begins) {
                Hello::Named(server) if server == *name => return Ok(()),
                Hello::Named(_) | Hello::Unnamed => return Err(EgressDenial::SNI),
                Hello::More => {}
            }
            if !matches!(inside.read_buf(&mut begins).await, Ok(1..)) {
                return Err(EgressDenial::SNI);
            }
        }
    };
    timeout(HELLO, reading).await.unwrap_or(Err(EgressDenial::SNI))?;
    Ok(begins)
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
    use super::super::sni::tests::hello;
    use super::*;

    fn target(name: &str, port: u16) -> EgressTarget {
        EgressTarget { host: EgressHost::parse(name).unwrap(), port }
    }

    #[tokio::test]
    async fn x61_the_client_hello_has_to_be_for_the_requested_name() {
        let requested = target("example.com", TLS);
        let right = hello("EXAMPLE.com");
        assert_eq!(begins(&mut &right[..], &requested, false).await, Ok(right.clone()));
        let other = hello("evil.com");
        for wrong in [&other[..], b"GET / HTTP/1.1\r\n\r\n", b"", &right[..20]] {
            assert_eq!(begins(&mut &wrong[..], &requested, false).await, Err(EgressDenial::SNI));
        }
        for free in [target("example.com", 80), target("10.0.0.1", TLS)] {
            assert_eq!(begins(&mut &other[..], &free, false).await, Ok(vec![]), "only port 443 is checked");
        }
        let seen = target("example.com", 80);
        assert_eq!(begins(&mut &b"GET / HTTP/1.1\r\n\r\n"[..], &seen, true).await, Err(EgressDenial::SNI));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_on_another_port_starts_without_a_hello() {
        let (_held, mut silent) = tokio::io::duplex(64);
        assert_eq!(begins(&mut silent, &target("example.com", TLS), false).await, Err(EgressDenial::SNI));
    }
}
