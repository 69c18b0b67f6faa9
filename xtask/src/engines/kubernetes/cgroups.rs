//! The cgroup of each node, which the kubelet expects to be there in each hierarchy of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::super::daemon;
use super::layout::{NODES, Node};
use crate::sh::{sh, wait_until};

const ROOT: &str = "/sys/fs/cgroup";

/// All that the kubelet writes to, as far as the machine has them.
const CONTROLLERS: [&str; 10] =
    ["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "systemd"];

/// The one that shows which processes are in a node's Pods.
const PROCESSES: &str = "pids";

/// Creates the cgroups that are missing.
pub(super) fn up() -> Result<()> {
    ensure!(
        Path::new(ROOT).join(PROCESSES).exists(),
        "this machine has no cgroups of version 1, which the nodes need; a cluster was never tried with version 2"
    );
    for hierarchy in CONTROLLERS.map(|it| Path::new(ROOT).join(it)).into_iter().filter(|it| it.exists()) {
        for dir in NODES.map(|it| hierarchy.join(it.cgroup())) {
            fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        }
    }
    NODES.into_iter().try_for_each(cpuset)
}

/// A new cpuset is empty and takes no process before it has its processors.
fn cpuset(node: Node) -> Result<()> {
    let hierarchy = Path::new(ROOT).join("cpuset");
    let leaf = hierarchy.join(node.cgroup());
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let value = fs::read_to_string(hierarchy.join(file))?;
        for dir in [leaf.parent().context("a cgroup below the root")?, &leaf] {
            fs::write(dir.join(file), &value).with_context(|| format!("write {}", dir.join(file).display()))?;
        }
    }
    Ok(())
}

/// Ends each process in the nodes' Pods.
pub(super) fn end_processes() -> Result<()> {
    let empty = wait_until(Duration::from_secs(15), || {
        let running = processes(&top(PROCESSES));
        for id in &running {
            let _ = sh("sh", ["-c", &format!("kill -KILL {id}")]).output(); // it may have ended since
        }
        running.is_empty()
    });
    if !empty {
        bail!("processes of Pods do not end: {:?}", processes(&top(PROCESSES)));
    }
    Ok(())
}

/// Removes the cgroups, also that of version 2 beside the others, which runc makes.
pub(super) fn down() -> Result<()> {
    for dir in CONTROLLERS.into_iter().chain(["unified"]).map(top).filter(|it| it.exists()) {
        let gone = wait_until(Duration::from_secs(10), || {
            for inner in below(&dir) {
                let _ = fs::remove_dir(inner); // once its processes are gone
            }
            !dir.exists()
        });
        ensure!(gone, "cannot remove {}", dir.display());
    }
    Ok(())
}

/// The cgroup above those of the nodes.
fn top(controller: &str) -> PathBuf {
    let leaf = Path::new(ROOT).join(controller).join(NODES[0].cgroup());
    leaf.parent().map(Path::to_owned).unwrap_or(leaf)
}

fn processes(dir: &Path) -> Vec<u32> {
    let read = |dir: PathBuf| fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let all: String = below(dir).into_iter().map(read).collect();
    all.lines().filter_map(|it| it.parse().ok()).filter(|it| daemon::born(*it).is_some()).collect()
}

/// Directories, each after those within it.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for inner in fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path()).filter(|it| it.is_dir()) {
        found.extend(below(&inner));
    }
    found.push(dir.to_owned());
    found
}
