//! Tells public addresses from private ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public internet: not to a private network, a machine's loopback, a cloud's
/// metadata service, or a reserved range.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => is_public_v4(it),
        IpAddr::V6(it) => is_public_v6(it),
    }
}

fn is_public_v4(it: Ipv4Addr) -> bool {
    let reserved = match it.octets() {
        // "This" network; carrier-grade NAT; protocol assignments; old relays; benchmarks; multicast and reserved
        // ranges.
        [0, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [224..=255, ..] => {
            true
        }
        // Azure's metadata service, which has a public address.
        [168, 63, 129, 16] => true,
        _ => it.is_private() || it.is_loopback() || it.is_link_local() || it.is_documentation(),
    };
    !reserved
}

fn is_public_v6(it: Ipv6Addr) -> bool {
    let four = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match it.segments() {
        // These contain an IPv4 address: mapped, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(four(high, low))
        }
        // Protocol assignments with Teredo; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Only these were ever allocated.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_each_range_are_exact() {
        let check = |addresses: &[&str], public: bool| {
            for it in addresses {
                assert_eq!(is_public(it.parse().unwrap()), public, "{it}");
            }
        };
        check(&["1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"], true);
        check(&["128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0"], true);
        check(&["192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"], true);
        check(&["0.255.255.255", "10.255.255.255", "100.127.255.255", "127.0.0.0", "169.254.0.0"], false);
        check(&["172.31.255.255", "192.0.0.255", "192.0.2.1", "192.88.99.1", "192.168.255.255"], false);
        check(&["198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.0", "240.0.0.0"], false);
        check(&["2000::", "2001:200::", "2606:4700::1", "3ffe:ffff::", "::ffff:8.8.8.8", "2002:808:808::1"], true);
        check(&["1fff::", "4000::", "::", "::2", "::8.8.8.8", "fe80::1", "fec0::1", "fc00::1", "ff0e::1"], false);
        check(&["64:ff9b::a00:1", "64:ff9b:1::808:808", "100::1", "2001:1ff::1", "3fff:fff::1"], false);
    }
}
