//! Makes the host's own addresses unreachable for a container, whose user-mode stack opens ordinary sockets of the host.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use libc::{
    AF_INET, AF_INET6, AF_UNSPEC, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN,
    RTM_GETADDR, RTM_NEWROUTE, RTM_NEWRULE, RTN_UNREACHABLE, RTPROT_STATIC,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::netlink::{Message, Netlink, attribute};
use crate::sys::{ChildPlace, Step, run_in_child};

/// `struct ifaddrmsg`: family, length of the prefix, flags, scope, index.
const ADDRESS_HEADER_BYTES: usize = 8;

/// Attributes of `linux/fib_rules.h`.
const FRA_DST: u16 = 1;
const FRA_PRIORITY: u16 = 6;

/// The smallest metric, which precedes all other routes: IPv6 takes 0 for "unset".
const FIRST_METRIC: u32 = 1;

/// After the rule for local addresses (0), and before those of tables.
const FIRST_RULE: u32 = 1;

/// A container to which the host's addresses are closed.
#[derive(Clone, Debug)]
pub(super) struct ClosedHost {
    /// A process in its namespaces.
    pub(super) pid: u32,
    /// Its user namespace is another one than this process's.
    pub(super) user_namespace: bool,
    /// Its name servers, which may be the host.
    pub(super) servers: Vec<IpAddr>,
}

/// Makes every current address of the host unreachable from a container. Exceptions are its name servers, and its own
/// addresses: `pasta` gives it one of the host's.
///
/// # Errors
/// If an address stays reachable.
pub(super) fn close(container: &ClosedHost) -> io::Result<()> {
    let addresses = of_namespace(&Netlink::route()?)?;
    let pid = i32::try_from(container.pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let user = if container.user_namespace { libc::CLONE_NEWUSER } else { 0 };
    let namespaces = vec![(process.as_fd(), user | libc::CLONE_NEWNET)];
    // IPv6 routes of this kind belong to the loopback device, which has to be up.
    let place = ChildPlace { namespaces, new_mounts: false, steps: vec![Step::LoopbackUp] };
    run_in_child(&place, || {
        let socket = Netlink::route()?;
        let own = of_namespace(&socket)?;
        let closed = addresses.iter().filter(|it| !own.contains(it) && !container.servers.contains(it));
        closed.copied().try_for_each(|it| close_one(&socket, it))
    })
}

/// Lists all addresses except loopback, of which each namespace has its own.
fn of_namespace(socket: &Netlink) -> io::Result<Vec<IpAddr>> {
    let family = u8::try_from(AF_UNSPEC).unwrap_or_default();
    let get = Message::unacknowledged(RTM_GETADDR, NLM_F_DUMP, &[family, 0, 0, 0, 0, 0, 0, 0]);
    let objects = socket.dump(get)?;
    Ok(objects.iter().filter_map(|it| local_address(it)).filter(|it| !it.is_loopback()).collect())
}

/// Returns the local address: if a device has a peer, `IFA_ADDRESS` is the peer's.
fn local_address(object: &[u8]) -> Option<IpAddr> {
    let attributes = object.get(ADDRESS_HEADER_BYTES..)?;
    let address = attribute(attributes, libc::IFA_LOCAL).or_else(|| attribute(attributes, libc::IFA_ADDRESS))?;
    match i32::from(object[0]) {
        AF_INET => <[u8; 4]>::try_from(address).ok().map(IpAddr::from),
        AF_INET6 => <[u8; 16]>::try_from(address).ok().map(IpAddr::from),
        _ => None,
    }
}

fn close_one(socket: &Netlink, address: IpAddr) -> io::Result<()> {
    let is_link_local = matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
    // The way to a link-local address is looked up by device, so a route on another device is passed over.
    let closing = if is_link_local { unreachable_rule(address) } else { unreachable_route(address) };
    match socket.request(vec![closing]) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Without IPv6 inside, no address of it is reachable.
        Err(err) if address.is_ipv6() && is_without_ipv6(&err) => Ok(()),
        done => done,
    }
}

fn is_without_ipv6(err: &io::Error) -> bool {
    // `EACCES`: it is disabled on the device. A missing permission would be `EPERM`.
    matches!(err.raw_os_error(), Some(libc::EACCES | libc::EAFNOSUPPORT | libc::ENODEV))
}

fn unreachable_route(address: IpAddr) -> Message {
    let (family, length, octets) = parts(address);
    // `struct rtmsg`: family, lengths of both prefixes, service, table, protocol, scope, type, flags.
    let fixed = [family, length, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNREACHABLE, 0, 0, 0, 0];
    let route = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &fixed).bytes(libc::RTA_DST, &octets);
    if address.is_ipv6() { route.number(libc::RTA_PRIORITY, FIRST_METRIC) } else { route }
}

fn unreachable_rule(address: IpAddr) -> Message {
    let (family, length, octets) = parts(address);
    // `struct fib_rule_hdr`: family, lengths of both prefixes, service, table, reserved, action, flags.
    let fixed = [family, length, 0, 0, 0, 0, 0, RTN_UNREACHABLE, 0, 0, 0, 0];
    Message::new(RTM_NEWRULE, NLM_F_CREATE, &fixed).bytes(FRA_DST, &octets).number(FRA_PRIORITY, FIRST_RULE)
}

/// Family, bits and bytes of an address.
fn parts(address: IpAddr) -> (u8, u8, Vec<u8>) {
    let number = |family| u8::try_from(family).unwrap_or_default();
    match address {
        IpAddr::V4(it) => (number(AF_INET), 32, it.octets().to_vec()),
        IpAddr::V6(it) => (number(AF_INET6), 128, it.octets().to_vec()),
    }
}
