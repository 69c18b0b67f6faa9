//! Where the cluster's files are, and its addresses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::super::daemon::DaemonRecords;
use crate::sh::{root, target, var};

/// Names another directory for programs and cluster.
pub(super) const VARIABLE: &str = "CORACLE_KUBERNETES_DIR";

/// The namespace that has only the bridge.
pub(super) const SWITCH: &str = "coracle-kube-switch";

/// The namespace of etcd, the control plane and the registry.
pub(super) const CONTROL_PLANE: &str = "coracle-kube-0";

/// The control plane's address in its namespace. Nodes and Pods reach it, the host does not.
pub(super) const CONTROL_PLANE_ADDRESS: &str = "10.98.0.10";

/// The ports of the API server and of the registry, in the control plane's namespace.
pub(super) const API_PORT: u16 = 6443;
pub(super) const REGISTRY_PORT: u16 = 5000;

/// What the host connects to: forwarded into the control plane's namespace.
pub(super) const HOST_API: &str = "127.0.0.1:16443";
pub(super) const HOST_REGISTRY: &str = "127.0.0.1:15000";

/// The longest path of a socket is 108 bytes, and containerd's is 32 below the root.
const LONGEST_ROOT: usize = 72;

/// A node, by its number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(pub(super) u8);

/// The nodes of the cluster.
pub(super) const NODES: [Node; 2] = [Node(1), Node(2)];

impl Node {
    pub(super) fn name(self) -> String {
        format!("node{}", self.0)
    }

    pub(super) fn namespace(self) -> String {
        format!("coracle-kube-{}", self.0)
    }

    pub(super) fn address(self) -> String {
        format!("10.98.0.{}", 10 + self.0)
    }

    /// The addresses of its Pods.
    pub(super) fn pods(self) -> String {
        format!("10.97.{}.0/24", self.0)
    }

    pub(super) fn containerd(self) -> String {
        format!("containerd{}", self.0)
    }

    pub(super) fn kubelet(self) -> String {
        format!("kubelet{}", self.0)
    }

    /// Its cgroup, below each controller.
    pub(super) fn cgroup(self) -> String {
        format!("coracle-kube/{}", self.name())
    }
}

/// The directory of the programs, which stay, and of the cluster, which `down` removes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(super) fn here() -> Result<Self> {
        let dir = var(VARIABLE).map_or_else(|| target().join("engines/kubernetes"), |dir| root().join(dir));
        let length = dir.as_os_str().len();
        ensure!(
            length <= LONGEST_ROOT,
            "{} is too long for the sockets in it ({length} bytes, at most {LONGEST_ROOT}): set {VARIABLE} to a shorter one",
            dir.display()
        );
        Ok(Self { root: dir })
    }

    /// Where programs are built, and from which nothing is needed once they are.
    pub(super) fn build(&self) -> PathBuf {
        self.root.join("build")
    }

    /// Debian packages that are unpacked and not installed.
    pub(super) fn unpacked(&self, path: &str) -> PathBuf {
        self.root.join("packages").join(path)
    }

    /// One of the programs that were built.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// A file of the running cluster.
    pub(super) fn cluster(&self, path: &str) -> PathBuf {
        self.root.join("cluster").join(path)
    }

    /// The same as text, for the settings and words of programs.
    pub(super) fn text(&self, path: &str) -> String {
        self.cluster(path).display().to_string()
    }

    /// A file of a node.
    pub(super) fn of_node(&self, node: Node, path: &str) -> String {
        self.text(&format!("n{}/{path}", node.0))
    }

    /// For programs on the host.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.cluster("kubeconfig")
    }

    pub(super) fn daemons(&self) -> DaemonRecords {
        DaemonRecords::new(self.cluster("log"))
    }
}

/// Writes a file that only its owner reads, with its directory.
pub(super) fn write_private(path: impl AsRef<Path>, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = path.as_ref();
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut it| it.write_all(text.as_bytes())).with_context(|| format!("write {}", path.display()))
}
