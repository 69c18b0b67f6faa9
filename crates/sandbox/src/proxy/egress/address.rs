//! Which addresses lie outside, for everybody to see.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether packets to it leave for the internet at large: global unicast, and neither this machine, its network, nor a form
/// that another address hides in. What is not known to be outside is not.
pub(crate) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => is_global_v4(it),
        IpAddr::V6(it) => is_global_v6(it),
    }
}

fn is_global_v4(it: Ipv4Addr) -> bool {
    let [a, b, c, _] = it.octets();
    let kept = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)      // this network, private, loopback, multicast and reserved
            | (100, 64..=127, _)          // shared by a carrier's customers
            | (169, 254, _)               // link-local: a cloud's metadata
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)             // protocol assignments, documentation
            | (192, 88, 99)               // relays of 6to4
            | (198, 18 | 19, _)           // benchmarks
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !kept
}

fn is_global_v6(it: Ipv6Addr) -> bool {
    if let Some(inner) = it.to_ipv4_mapped() {
        return is_global_v4(inner);
    }
    let parts = it.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        // Translated: what counts is where the translator sends it.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_global_v4(v4(high, low)),
        [0x2002, high, low, ..] => is_global_v4(v4(high, low)),
        // Teredo, benchmarks, ORCHID and their like; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_outside_is_not_global_in_any_form() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!is_global(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.1",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(is_global(text.parse().unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_form_that_hides_an_address_is_as_that_address(bits in any::<u32>()) {
            let inner = Ipv4Addr::from(bits);
            let nat = Ipv6Addr::from((0x0064_ff9b_u128 << 96) | u128::from(bits));
            let six = Ipv6Addr::from((0x2002_u128 << 112) | (u128::from(bits) << 80));
            for form in [inner.to_ipv6_mapped(), nat, six] {
                prop_assert_eq!(is_global(form.into()), is_global(inner.into()), "{}", form);
            }
        }
    }
}
