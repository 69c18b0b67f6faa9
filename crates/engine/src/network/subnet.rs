//! Chooses address ranges that the host does not use.

use std::io;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

/// A range of addresses, of which the host has the first one.
pub(super) type Subnet = ipnet::Ipv4Net;

/// The host's address in a range.
pub(super) fn gateway(subnet: Subnet) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(subnet.network()) + 1)
}

/// Lists all addresses of the range to try for a container. The first one is derived from its id, so that it gets the same
/// address at each start if that is free.
pub(super) fn candidates(subnet: Subnet, id: &str) -> impl Iterator<Item = Ipv4Addr> {
    let count = (1_u32 << (32 - subnet.prefix_len())) - 3;
    let digest = Sha256::digest(id);
    let first = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % count;
    let base = u32::from(subnet.network()) + 2;
    (0..count).map(move |it| Ipv4Addr::from(base + (first + it) % count))
}

/// Returns the first candidate that overlaps no range in use.
pub(super) fn choose(mut candidates: impl Iterator<Item = Subnet>, used: &[Subnet]) -> Option<Subnet> {
    candidates.find(|it| !used.iter().any(|other| overlaps(*it, *other)))
}

/// Ranges for the containers without a network of their own.
pub(super) fn of_outgoing() -> impl Iterator<Item = Subnet> {
    let tens = (211..=223).map(|it| Ipv4Addr::new(10, it, 0, 0));
    let others = (24..=30).rev().map(|it| Ipv4Addr::new(172, it, 0, 0));
    tens.chain(others).filter_map(|it| Subnet::new(it, 16).ok())
}

/// Ranges of named networks.
pub(super) fn of_networks() -> impl Iterator<Item = Subnet> {
    let all = (224..=239).flat_map(|it| (0..=255).map(move |last| Ipv4Addr::new(10, it, last, 0)));
    all.filter_map(|it| Subnet::new(it, 24).ok())
}

fn overlaps(one: Subnet, other: Subnet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Reads the routes of this thread's network namespace. `/proc/net` has those of the main thread, which may be in another
/// one.
pub(super) fn read_routes() -> io::Result<String> {
    std::fs::read_to_string("/proc/thread-self/net/route")
}

/// Parses the ranges in `/proc/net/route` to which the host has routes, except the default route and those to containers.
pub(super) fn routed(table: &str) -> Vec<Subnet> {
    let subnet = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [device, to, _, _, _, _, _, mask, ..] = fields[..] else { return None };
        let (to, mask) = (address(to)?, address(mask)?);
        let is_other = !device.starts_with(super::link::PREFIX) && u32::from(mask) != 0;
        is_other.then(|| Subnet::with_netmask(to, mask).ok()).flatten()
    };
    table.lines().skip(1).filter_map(subnet).collect()
}

/// Devices of all routes.
pub(super) fn devices(table: &str) -> Vec<&str> {
    table.lines().skip(1).filter_map(|it| it.split_whitespace().next()).collect()
}

/// Devices of the default routes.
pub(super) fn default_devices(table: &str) -> Vec<&str> {
    let device = |line| {
        let mut fields = str::split_whitespace(line);
        let device = fields.next()?;
        (fields.next()? == "00000000" && fields.nth(5)? == "00000000").then_some(device)
    };
    table.lines().skip(1).filter_map(device).collect()
}

/// The gateway of the first default route.
pub(super) fn default_gateway(table: &str) -> Option<Ipv4Addr> {
    let gateway = |line| {
        let fields: Vec<_> = str::split_whitespace(line).collect();
        let [_, "00000000", gateway, _, _, _, _, "00000000", ..] = fields[..] else { return None };
        address(gateway).filter(|it| !it.is_unspecified())
    };
    table.lines().skip(1).find_map(gateway)
}

/// Parses an address of that file: hexadecimal, in native byte order.
fn address(text: &str) -> Option<Ipv4Addr> {
    u32::from_str_radix(text, 16).ok().map(|it| Ipv4Addr::from(it.to_ne_bytes()))
}

/// Converts the range to the type of the engine traits.
pub(super) fn any(subnet: Subnet) -> IpNet {
    IpNet::V4(subnet)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        tun0\t0000D30A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
        crcl-o0123\t0200D40A\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";

    #[test]
    fn a_range_that_the_host_uses_is_avoided_and_our_own_links_do_not_count() {
        let chosen = choose(of_outgoing(), &routed(TABLE)).unwrap();
        assert_eq!(chosen.to_string(), "10.212.0.0/16");
        assert_eq!(default_devices(TABLE), ["eth0"]);
        assert_eq!(choose(of_outgoing(), &["0.0.0.0/0".parse().unwrap()]), None);
    }

    #[test]
    fn every_address_of_a_range_is_tried_once_and_the_hosts_is_not() {
        let subnet: Subnet = "10.224.7.0/24".parse().unwrap();
        let mut all: Vec<_> = candidates(subnet, "abc").collect();
        assert_eq!(all, candidates(subnet, "abc").collect::<Vec<_>>());
        assert_ne!(all[0], candidates(subnet, "abd").next().unwrap());
        all.sort();
        all.dedup();
        assert_eq!(
            (all.len(), all[0], all[252]),
            (253, "10.224.7.2".parse().unwrap(), "10.224.7.254".parse().unwrap())
        );
        assert_eq!(gateway(subnet), "10.224.7.1".parse::<Ipv4Addr>().unwrap());
    }
}
