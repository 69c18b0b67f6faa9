//! A Kubernetes cluster on this machine: a control plane, two nodes and a registry, in network namespaces.
//!
//! Only on demand: its programs are built from a source package, which takes minutes, and stay. What each step makes is
//! left as it is if it is there, so that `up` also starts again a program that was ended.

mod cgroups;
mod control_plane;
mod credentials;
pub(super) mod forward;
mod image;
mod layout;
mod network;
mod node;
mod programs;
mod settings;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::layout::{HOST_REGISTRY, Layout, NODES, VARIABLE};
use super::apt;
use crate::sh::{took, wait_until};

/// The word of the command line, and the name.
pub(super) const FLAG: &str = "--kubernetes";
pub(super) const NAME: &str = "kubernetes";

/// Makes the cluster run, from nothing if need be, and waits until both nodes are ready.
pub(super) fn up() -> Result<()> {
    let (begun, layout) = (Instant::now(), Layout::here()?);
    if runs(&layout) {
        println!("{}", usage(&layout));
        return Ok(());
    }
    ensure!(apt::is_root(), "only root may create the namespaces of a cluster");
    ensure!(
        layout.cluster("log").exists() || !network::is_up(),
        "a cluster of another directory runs here; end it there with `engines down {FLAG}`, or name its directory with {VARIABLE}"
    );
    programs::ensure(&layout)?;
    network::up()?;
    cgroups::up()?;
    credentials::up(&layout)?;
    control_plane::up(&layout)?;
    control_plane::apply_storage_class(&layout)?;
    for node in NODES {
        node::up(&layout, node)?;
    }
    image::push_busybox(&layout)?;
    ensure!(
        wait_until(Duration::from_secs(120), || ready_nodes(&layout) == NODES.len()),
        "not all nodes are ready; see {}",
        layout.text("log")
    );
    println!("  {} for engines up {FLAG}\n{}", took(begun), usage(&layout));
    Ok(())
}

/// A cluster that runs, for programs that use it.
pub(crate) struct RunningCluster {
    pub(crate) kubeconfig: PathBuf,
    /// The directory of `kubectl`.
    pub(crate) programs: PathBuf,
    /// An image that its nodes can fetch.
    pub(crate) image: String,
}

/// As [`up`], and how it is reached.
pub(crate) fn running() -> Result<RunningCluster> {
    up()?;
    let layout = Layout::here()?;
    let image = format!("{HOST_REGISTRY}/{}", image::BUSYBOX);
    Ok(RunningCluster { kubeconfig: layout.kubeconfig(), programs: layout.program(""), image })
}

/// Ends all that [`up`] started and removes all but the programs.
pub(super) fn down() -> Result<()> {
    let layout = Layout::here()?;
    let cluster = layout.cluster("");
    if !cluster.exists() {
        println!("{NAME}: not started by `engines up`, left alone");
        return Ok(());
    }
    node::down(&layout)?;
    for name in control_plane::DAEMONS.iter().rev() {
        layout.daemons().stop(name, name)?;
    }
    network::down()?;
    cgroups::down()?;
    fs::remove_dir_all(&cluster).with_context(|| format!("remove {}", cluster.display()))?;
    println!("{NAME}: stopped");
    Ok(())
}

/// Whether each program runs and each node is ready.
fn runs(layout: &Layout) -> bool {
    let of_nodes = NODES.into_iter().flat_map(|it| [it.containerd(), it.kubelet()]);
    let mut names = control_plane::DAEMONS.into_iter().map(str::to_owned).chain(of_nodes);
    names.all(|it| layout.daemons().recorded(&it).is_some()) && ready_nodes(layout) == NODES.len()
}

fn ready_nodes(layout: &Layout) -> usize {
    let path =
        "jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let words = ["get", "nodes", "--request-timeout=5s", "-o", path];
    let text = control_plane::kubectl(layout, &words).read().unwrap_or_default();
    NODES.iter().filter(|node| text.lines().any(|it| it == format!("{} True", node.name()))).count()
}

fn usage(layout: &Layout) -> String {
    format!(
        "  export KUBECONFIG={}
  {} get nodes
  registry, on the host and in Pods: {HOST_REGISTRY}  (docker push {HOST_REGISTRY}/NAME:TAG)
  an image in it: {HOST_REGISTRY}/{}, also by its name alone",
        layout.kubeconfig().display(),
        layout.program("kubectl").display(),
        image::BUSYBOX
    )
}
