//! Name servers for containers.

use std::net::IpAddr;

/// The file of the host's name servers, and that of the servers behind a local resolver.
pub(super) const HOST: &str = "/etc/resolv.conf";
const BEHIND_LOCAL: &str = "/run/systemd/resolve/resolv.conf";

/// Docker's default for a host whose only name servers are on its loopback.
const PUBLIC: [&str; 2] = ["8.8.8.8", "8.8.4.4"];

/// The host's configuration.
pub(super) fn of_host() -> String {
    std::fs::read_to_string(HOST).unwrap_or_default()
}

/// The configuration for a container whose loopback is not the host's.
pub(super) fn for_container() -> String {
    let behind = || std::fs::read_to_string(BEHIND_LOCAL).unwrap_or_default();
    adapt(&of_host(), behind)
}

/// The configuration for a container with a single name server.
pub(super) fn with_server(server: IpAddr) -> String {
    format!("{}nameserver {server}\n", options(&of_host()))
}

/// Whether the host's only IPv4 name servers are on its loopback.
pub(super) fn is_local_only() -> bool {
    reachable(&of_host()).is_empty()
}

/// The addresses of the name servers of a configuration.
pub(super) fn servers(text: &str) -> Vec<IpAddr> {
    text.lines().filter_map(server).filter_map(address).collect()
}

fn adapt(host: &str, behind_local: impl FnOnce() -> String) -> String {
    let mut servers = reachable(host);
    if servers.is_empty() {
        servers = reachable(&behind_local());
    }
    if servers.is_empty() {
        servers = PUBLIC.map(str::to_owned).to_vec();
    }
    let lines: String = servers.iter().map(|it| format!("nameserver {it}\n")).collect();
    options(host) + &lines
}

/// Name servers that are not on loopback.
fn reachable(text: &str) -> Vec<String> {
    let is_reachable = |it: &&str| address(it).is_some_and(|it| !it.is_loopback() && it.is_ipv4());
    text.lines().filter_map(server).filter(is_reachable).map(str::to_owned).collect()
}

/// The server of a line, as text.
fn server(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next()? == "nameserver").then(|| words.next())?
}

/// Parses an address, which may be followed by `%` and a device.
fn address(server: &str) -> Option<IpAddr> {
    server.split('%').next()?.parse().ok()
}

fn options(text: &str) -> String {
    let is_option = |it: &&str| matches!(it.split_whitespace().next(), Some("search" | "options" | "domain"));
    text.lines().filter(is_option).map(|it| format!("{it}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_resolver_is_replaced_by_the_servers_behind_it_and_options_stay() {
        let host = "# by systemd\nnameserver 127.0.0.53\noptions edns0\nsearch lan\n";
        let adapted = adapt(host, || "nameserver 192.0.2.7\nnameserver fe80::1%eth0\n".into());
        assert_eq!(adapted, "options edns0\nsearch lan\nnameserver 192.0.2.7\n");
        assert!(adapt(host, String::new).ends_with("nameserver 8.8.8.8\nnameserver 8.8.4.4\n"));
        assert_eq!(adapt("nameserver 10.0.0.2\n", || unreachable!("not read")), "nameserver 10.0.0.2\n");
    }
}
