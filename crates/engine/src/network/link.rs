//! Links between the host and a container: a pair of virtual Ethernet devices, an address, and routes.
//!
//! Networks are routed, not bridged: each container has an address without neighbours (`/32`), and the host forwards between
//! links as the rules allow. So a container needs only its link, which the kernel removes with the network namespace.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use libc::{
    AF_INET, AF_UNSPEC, IFF_UP, IFLA_GROUP, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO,
    IFLA_NET_NS_PID, NLM_F_CREATE, NLM_F_EXCL, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTM_DELLINK,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST, RTPROT_STATIC,
};

use super::netlink::{Message, NESTED, Netlink};
use super::settings;

const VETH_INFO_PEER: u16 = 1;

/// The name of the device inside.
pub(super) const INSIDE: &str = "eth0";

/// The prefix of the names of devices on the host, by which the rules match them. Devices of other programs are unlikely to
/// have it.
pub(super) const PREFIX: &str = "crcl-";

/// What a container may reach in addition to the members of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Other machines.
    pub(super) outward: bool,
    /// All services of the host.
    pub(super) host: bool,
}

impl Reach {
    /// The prefix of the names of devices with this reach, which differ in a letter.
    pub(super) fn prefix(self) -> String {
        let letter = match (self.outward, self.host) {
            (true, false) => 'o',
            (true, true) => 'h',
            (false, false) => 'i',
            (false, true) => 'j',
        };
        format!("{PREFIX}{letter}")
    }
}

/// The name of the host's device for a container, with as many digits of its id as fit into the kernel's limit of 15 bytes.
pub(super) fn device(id: &str, reach: Reach) -> String {
    format!("{}{}", reach.prefix(), &id[..id.len().min(9)])
}

/// Whether a container has a link.
pub(super) fn exists() -> io::Result<bool> {
    Ok(settings::devices()?.iter().any(|it| it.starts_with(PREFIX)))
}

/// A link to create.
#[derive(Clone, Debug)]
pub(super) struct LinkSpec {
    /// The host's device.
    pub(super) device: String,
    /// The group number of the network's devices, which may reach each other if the rules allow it.
    pub(super) group: u32,
    /// A process in the container's network namespace.
    pub(super) pid: u32,
    /// The host's address on it.
    pub(super) gateway: Ipv4Addr,
}

/// Creates a link with the first of these addresses that no other link has.
///
/// # Errors
/// `AddrInUse` if all are taken; other errors if the kernel refuses. No link is left then.
pub(super) fn connect(spec: &LinkSpec, addresses: impl Iterator<Item = Ipv4Addr>) -> io::Result<Ipv4Addr> {
    let host = Netlink::route()?;
    match host.request(vec![new_pair(spec)]) {
        // The link of the last start: the kernel removes links some time after the last process of a namespace has ended.
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            remove(&host, &spec.device)?;
            host.request(vec![new_pair(spec)])?;
        }
        done => done?,
    }
    let connected = set(&spec.device).and_then(|()| give_addresses(&host, spec, addresses));
    if connected.is_err() {
        // The first error is the one to report.
        let _ = remove(&host, &spec.device);
    }
    connected
}

/// Sets up the host's device. It forwards, and only accepts packets from the container's own address, since code with
/// `NET_RAW` can send others. IPv6 is disabled: nothing on a link uses it.
fn set(device: &str) -> io::Result<()> {
    settings::write(device, "forwarding", "1")?;
    settings::write(device, "rp_filter", "1")?;
    match settings::disable_ipv6(device) {
        // Not needed: the rules also apply to IPv6.
        Err(err) if err.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        done => done,
    }
}

fn remove(host: &Netlink, device: &str) -> io::Result<()> {
    match host.request(vec![Message::new(RTM_DELLINK, 0, &interface(0, 0)).text(IFLA_IFNAME, device)]) {
        Err(err) if err.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        done => done,
    }
}

fn give_addresses(
    host: &Netlink,
    spec: &LinkSpec,
    mut addresses: impl Iterator<Item = Ipv4Addr>,
) -> io::Result<Ipv4Addr> {
    let outer = host.index(&spec.device)?;
    host.request(vec![new_address(outer, spec.gateway)])?;
    let address = loop {
        let Some(address) = addresses.next() else { return Err(io::ErrorKind::AddrInUse.into()) };
        // The kernel's routing table shows which addresses are taken, for all processes and data directories.
        let route = Route { to: Some(address), via: None, device: outer, from: Some(spec.gateway) };
        match host.request(vec![new_route(&route)]) {
            Ok(()) => break address,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    };
    let inside = Netlink::route_in(&PathBuf::from(format!("/proc/{}/ns/net", spec.pid)))?;
    let inner = inside.index(INSIDE)?;
    let gateway = Route { to: Some(spec.gateway), via: None, device: inner, from: Some(address) };
    // Even an internal network has a route to the host, which forwards packets to other members.
    let rest = Route { to: None, via: Some(spec.gateway), device: inner, from: Some(address) };
    inside.request(vec![set_up(inner), new_address(inner, address), new_route(&gateway), new_route(&rest)])?;
    Ok(address)
}

/// `struct ifinfomsg`: family, type, index, flags, and which flags to change: those that are set.
fn interface(index: u32, flags: i32) -> Vec<u8> {
    let words = [index.to_ne_bytes(), flags.to_ne_bytes(), flags.to_ne_bytes()];
    [&[u8::try_from(AF_UNSPEC).unwrap_or_default(), 0, 0, 0][..], &words.concat()].concat()
}

fn set_up(device: u32) -> Message {
    Message::new(RTM_NEWLINK, 0, &interface(device, IFF_UP))
}

fn new_pair(spec: &LinkSpec) -> Message {
    // The device inside cannot be brought up before both devices exist.
    let (outer, inner) = (interface(0, IFF_UP), interface(0, 0));
    Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &outer)
        .text(IFLA_IFNAME, &spec.device)
        .number(IFLA_GROUP, spec.group)
        .nest(IFLA_LINKINFO | NESTED, |it| {
            it.bytes(IFLA_INFO_KIND, b"veth").nest(IFLA_INFO_DATA | NESTED, |it| {
                it.nest(VETH_INFO_PEER | NESTED, |it| {
                    it.raw(&inner).text(IFLA_IFNAME, INSIDE).number(IFLA_NET_NS_PID, spec.pid)
                })
            })
        })
}

/// An address without neighbours.
fn new_address(device: u32, address: Ipv4Addr) -> Message {
    // `struct ifaddrmsg`: family, length of the prefix, flags, scope, index.
    let fixed = [&[inet(), 32, 0, RT_SCOPE_UNIVERSE][..], &device.to_ne_bytes()].concat();
    let octets = address.octets();
    Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &fixed)
        .bytes(libc::IFA_LOCAL, &octets)
        .bytes(libc::IFA_ADDRESS, &octets)
}

/// A route to one address, or to all.
#[derive(Clone, Copy, Debug)]
struct Route {
    to: Option<Ipv4Addr>,
    via: Option<Ipv4Addr>,
    device: u32,
    from: Option<Ipv4Addr>,
}

fn new_route(route: &Route) -> Message {
    let scope = if route.via.is_some() { RT_SCOPE_UNIVERSE } else { RT_SCOPE_LINK };
    let length = if route.to.is_some() { 32 } else { 0 };
    // `struct rtmsg`: family, lengths of both prefixes, service, table, protocol, scope, type, flags.
    let fixed = [inet(), length, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST, 0, 0, 0, 0];
    let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &fixed);
    for (kind, address) in [(libc::RTA_DST, route.to), (libc::RTA_GATEWAY, route.via), (libc::RTA_PREFSRC, route.from)]
    {
        if let Some(address) = address {
            message = message.bytes(kind, &address.octets());
        }
    }
    message.number(libc::RTA_OIF, route.device)
}

fn inet() -> u8 {
    u8::try_from(AF_INET).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_within_the_kernels_limit_and_by_what_it_may_reach() {
        let id = "0123456789abcdef".repeat(4);
        let reach = |outward, host| device(&id, Reach { outward, host });
        assert_eq!(reach(true, false), "crcl-o012345678");
        assert_eq!([reach(true, true), reach(false, false), reach(false, true)].map(|it| it.len()), [15; 3]);
    }
}
