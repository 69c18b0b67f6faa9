//! Network namespaces: a switch, the control plane and each node. The host's own network has no part in them.

use std::path::Path;

use anyhow::Result;

use super::layout::{CONTROL_PLANE, CONTROL_PLANE_ADDRESS, NODES, Node, SWITCH};
use crate::sh::{Sh, sh};

/// Creates the namespaces that are missing.
pub(super) fn up() -> Result<()> {
    if !exists(SWITCH) {
        ip("netns add", &[SWITCH])?;
        in_namespace(SWITCH, "link set lo up", &[])?;
        in_namespace(SWITCH, "link add br0 type bridge", &[])?;
        in_namespace(SWITCH, "link set br0 up", &[])?;
    }
    if !exists(CONTROL_PLANE) {
        create(CONTROL_PLANE, 0, CONTROL_PLANE_ADDRESS)?;
        // The API server takes a default route as the sign of a network. Nothing answers there.
        in_namespace(CONTROL_PLANE, "route add default via 10.98.0.1", &[])?;
        for node in NODES {
            in_namespace(CONTROL_PLANE, "route add", &[&node.pods(), "via", &node.address()])?;
        }
    }
    for node in NODES.into_iter().filter(|it| !exists(&it.namespace())) {
        create(&node.namespace(), node.0, &node.address())?;
        in_namespace(&node.namespace(), "route add default via", &[CONTROL_PLANE_ADDRESS])?;
        for other in NODES.into_iter().filter(|it| *it != node) {
            in_namespace(&node.namespace(), "route add", &[&other.pods(), "via", &other.address()])?;
        }
    }
    Ok(())
}

/// Deletes the namespaces, and with them their links.
pub(super) fn down() -> Result<()> {
    for name in names().into_iter().filter(|it| exists(it)) {
        ip("netns delete", &[&name])?;
    }
    Ok(())
}

/// Whether any of the namespaces is there.
pub(super) fn is_up() -> bool {
    names().iter().any(|it| exists(it))
}

/// A program in a namespace. `ip netns exec` would hide the cgroups under another `/sys`.
pub(super) fn inside(namespace: &str, program: &Path, words: &[String]) -> Sh {
    let network = format!("--net=/run/netns/{namespace}");
    sh("nsenter", [network, program.display().to_string()].iter().chain(words))
}

fn names() -> Vec<String> {
    let nodes = NODES.into_iter().map(Node::namespace);
    nodes.chain([CONTROL_PLANE.to_owned(), SWITCH.to_owned()]).collect()
}

fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

/// A namespace with one link to the switch. The link begins there, so that the host sees no end of it.
fn create(name: &str, number: u8, address: &str) -> Result<()> {
    ip("netns add", &[name])?;
    in_namespace(name, "link set lo up", &[])?;
    let port = format!("port{number}");
    in_namespace(SWITCH, "link add", &[&port, "type", "veth", "peer", "name", "eth0", "netns", name])?;
    in_namespace(SWITCH, "link set", &[&port, "master", "br0", "up"])?;
    in_namespace(name, "addr add", &[&format!("{address}/24"), "dev", "eth0"])?;
    in_namespace(name, "link set eth0 up", &[])?;
    let forwards = ["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"].map(str::to_owned);
    inside(name, Path::new("sh"), &forwards).read().map(|_| ())
}

fn ip(verb: &str, words: &[&str]) -> Result<()> {
    sh("ip", verb.split(' ').chain(words.iter().copied())).read().map(|_| ())
}

fn in_namespace(name: &str, verb: &str, words: &[&str]) -> Result<()> {
    sh("ip", ["-n", name].into_iter().chain(verb.split(' ')).chain(words.iter().copied())).read().map(|_| ())
}
