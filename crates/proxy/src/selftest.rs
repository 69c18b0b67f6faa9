//! Tests whether a container that was just started can reach anything except through its proxy.

use std::net::IpAddr;

use coracle_client::Link;
use coracle_protocol::relay::{INTERFACE, ProbeEgress};
use coracle_types::failure::{Code, Failure};

/// Public addresses that accept connections.
const OUTSIDE: [&str; 3] = ["1.1.1.1:443", "[2606:4700:4700::1111]:443", "169.254.169.254:80"];

/// A public resolver.
const RESOLVER: &str = "1.1.1.1:53";

/// The destination of a test that the proxy has to refuse: no policy can allow it, since no name exists below it.
pub const SELF_TEST: &str = "coracle-self-test.invalid:443";

/// Ports on which a gateway often listens. A refused connection is noticed as well.
const GATEWAY_PORTS: [u16; 3] = [22, 53, 80];

/// Time limit of each direct attempt. Without a network, an attempt fails at once.
const WITHIN_MS: u64 = 2000;

/// What cuts a container off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wall<'a> {
    /// Addresses at which containers of this engine reach the host.
    pub gateways: &'a [IpAddr],
    /// Whether it has a network, which leads to its proxy and nowhere else. Without one, any network is a way out, also if
    /// the addresses of this test cannot be reached from this host.
    pub has_network: bool,
}

/// Has the guest try to connect, directly and through its relays. Without a wall there are no direct attempts.
///
/// # Errors
/// `egress_not_enforced` if anything is reachable directly; `proxy_unreachable` if the relays do not lead to a proxy
/// that knows the container.
pub async fn self_test(link: &Link, wall: Option<Wall<'_>>) -> Result<(), Failure> {
    let Wall { gateways, has_network } = wall.unwrap_or_default();
    let gateways = gateways.iter().take(8);
    let gateways = gateways.flat_map(|it| GATEWAY_PORTS.map(|port| std::net::SocketAddr::new(*it, port).to_string()));
    let outside = OUTSIDE.iter().filter(|_| wall.is_some()).map(|it| (*it).to_owned());
    let tcp = outside.chain(gateways).collect();
    let udp = wall.iter().map(|_| RESOLVER.to_owned()).collect();
    let probe = ProbeEgress { tcp, udp, name: SELF_TEST.to_owned(), within_ms: WITHIN_MS };
    let mut probed = link.probe(probe).await.map_err(|err| {
        Failure::new(Code::ProxyUnreachable, "The guest did not try what it can reach.")
            .detail("error", err.to_string())
    })?;
    if has_network {
        probed.reached.retain(|it| !it.starts_with(INTERFACE));
    }
    if !probed.reached.is_empty() {
        let message = "The container has a way out that is not the proxy.";
        return Err(Failure::new(Code::EgressNotEnforced, message).detail("reached", probed.reached));
    }
    match (probed.egress, probed.api) {
        (Some(403), Some(200)) => Ok(()),
        // A proxy that allows a name that cannot exist is not Coracle's, or does not work.
        (Some(200..300), _) => Err(Failure::new(Code::EgressNotEnforced, "The proxy allows what it should refuse.")),
        (egress, api) => Err(Failure::new(Code::ProxyUnreachable, "The relays do not reach the proxy.")
            .detail("egress", egress)
            .detail("api", api)),
    }
}
