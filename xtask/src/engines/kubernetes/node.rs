//! The nodes: containerd and a kubelet each, in a network namespace and a mount namespace of their own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::super::daemon;
use super::layout::{Layout, NODES, Node, write_private};
use super::{image, network, settings};
use crate::sh::{sh, wait_until};

/// Mounts of a node end with its processes. Kubelets write to one fixed directory, `/var/log/pods`, in which they remove what
/// is not their own, and network plugins to another; so each node has these for itself.
const OWN_DIRECTORIES: &str = "set -e; mkdir -p /var/lib/cni; mount --bind \"$0/log\" /var/log; mount --bind \"$0/cni-state\" /var/lib/cni; exec \"$@\"";

/// Starts what does not run on a node.
pub(super) fn up(layout: &Layout, node: Node) -> Result<()> {
    let daemons = layout.daemons();
    if daemons.recorded(&node.containerd()).is_none() {
        daemons.stop(&node.kubelet(), "kubelet")?; // its mount namespace is that of a containerd that is gone
        write_settings(layout, node)?;
        start_containerd(layout, node)?;
        image::import_pause(layout, node)?;
    }
    if daemons.recorded(&node.kubelet()).is_none() {
        start_kubelet(layout, node)?;
    }
    Ok(())
}

/// Ends the nodes with all of their containers.
pub(super) fn down(layout: &Layout) -> Result<()> {
    let daemons = layout.daemons();
    for node in NODES {
        daemons.stop(&node.kubelet(), "kubelet")?; // first: it would start Pods again
    }
    super::cgroups::end_processes()?;
    for node in NODES {
        let socket = layout.of_node(node, "containerd.sock");
        // containerd removes a container that ended, and what its helper left in the directory that all containerds share.
        wait_until(Duration::from_secs(10), || shims(&socket).is_empty());
        daemons.stop(&node.containerd(), "containerd")?;
        end_shims(&socket)?;
    }
    Ok(())
}

fn write_settings(layout: &Layout, node: Node) -> Result<()> {
    for dir in ["log", "cni-state", "opt"] {
        let dir = layout.of_node(node, dir);
        fs::create_dir_all(&dir).with_context(|| format!("create {dir}"))?;
    }
    write_private(layout.of_node(node, "containerd.toml"), &settings::containerd(layout, node))?;
    write_private(layout.of_node(node, "kubelet.yaml"), &settings::kubelet(layout, node))?;
    write_private(layout.of_node(node, "cni/pods.conflist"), &settings::cni(layout, node))?;
    for name in settings::registry_names() {
        write_private(layout.cluster(&format!("registries/{name}/hosts.toml")), &settings::registry_host())?;
    }
    Ok(())
}

fn start_containerd(layout: &Layout, node: Node) -> Result<()> {
    let own = ["--mount", "--propagation=slave", "sh", "-c", OWN_DIRECTORIES];
    let (dir, config) = (layout.of_node(node, ""), format!("--config={}", layout.of_node(node, "containerd.toml")));
    let words = own.into_iter().chain([dir.trim_end_matches('/'), "containerd", &config]);
    let program =
        network::inside(&node.namespace(), Path::new("unshare"), &words.map(str::to_owned).collect::<Vec<_>>());
    let socket = layout.of_node(node, "containerd.sock");
    let answers = || sh("ctr", ["--address", &socket, "--timeout=2s", "version"]).succeeds();
    layout.daemons().start(&node.containerd(), program, Duration::from_secs(60), answers)
}

fn start_kubelet(layout: &Layout, node: Node) -> Result<()> {
    let daemons = layout.daemons();
    let containerd = daemons.recorded(&node.containerd()).context("containerd does not run")?;
    let at = |option: &str, path: &str| format!("--{option}={}", layout.of_node(node, path));
    let words = [
        format!("--mount=/proc/{containerd}/ns/mnt"),
        layout.program("kubelet").display().to_string(),
        at("config", "kubelet.yaml"),
        format!("--kubeconfig={}", layout.text("pki/kubeconfig")),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.address()),
        "--container-runtime=remote".to_owned(),
        format!("--container-runtime-endpoint=unix://{}", layout.of_node(node, "containerd.sock")),
        at("root-dir", "kubelet"),
        at("cert-dir", "kubelet-pki"),
        at("volume-plugin-dir", "volume-plugins"),
    ];
    let program = network::inside(&node.namespace(), Path::new("nsenter"), &words);
    daemons.start(&node.kubelet(), program, Duration::from_secs(10), || true)
}

/// Ends the helpers of containers, which outlive containerd. They are known by its socket, a file of ours.
fn end_shims(socket: &str) -> Result<()> {
    for id in shims(socket) {
        daemon::signal(id, "KILL")?;
    }
    let gone = wait_until(Duration::from_secs(10), || shims(socket).is_empty());
    anyhow::ensure!(gone, "helpers of containers do not end: {:?}", shims(socket));
    Ok(())
}

fn shims(socket: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        is_shim(&words, socket) && daemon::born(*id).is_some()
    })
    .collect()
}

/// Whether a process with these words, each ended by a zero byte, serves containers of the containerd at `socket`.
fn is_shim(words: &[u8], socket: &str) -> bool {
    let words: Vec<&[u8]> = words.split(|it| *it == 0).collect();
    words.first().is_some_and(|it| it.ends_with(b"/containerd-shim-runc-v2"))
        && words.windows(2).any(|it| it[0] == b"-address" && it[1] == socket.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shims_of_the_named_containerd_are_ours() {
        let words = |socket: &str| {
            format!("/usr/bin/containerd-shim-runc-v2\0-namespace\0k8s.io\0-id\0a\0-address\0{socket}\0").into_bytes()
        };
        assert!(is_shim(&words("/k/n1/containerd.sock"), "/k/n1/containerd.sock"));
        assert!(!is_shim(&words("/run/containerd/containerd.sock"), "/k/n1/containerd.sock"));
        assert!(!is_shim(b"/usr/bin/ctr\0-address\0/k/n1/containerd.sock\0", "/k/n1/containerd.sock"));
    }
}
