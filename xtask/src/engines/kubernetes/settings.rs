//! The settings of the cluster's programs, as text.

use super::layout::{API_PORT, CONTROL_PLANE_ADDRESS, HOST_REGISTRY, Layout, Node, REGISTRY_PORT};

/// The image of the container that holds a Pod's namespaces.
pub(super) const PAUSE: &str = "coracle.test/pause:1";

/// A node's containerd. Its network namespaces and runc's state are below its own directory, where they end with it.
pub(super) fn containerd(layout: &Layout, node: Node) -> String {
    let at = |path: &str| layout.of_node(node, path);
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  netns_mounts_under_state_dir = true
  # Without CAP_SYS_RESOURCE, runc may not lower the score below that of containerd.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{cni_settings}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{runc}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
"#,
        root = at("containerd"),
        state = at("state"),
        socket = at("containerd.sock"),
        opt = at("opt"),
        cni = layout.unpacked("usr/lib/cni").display(),
        cni_settings = at("cni"),
        runc = at("runc"),
        registries = layout.text("registries"),
    )
}

/// The names under which containerd looks into the cluster's registry: every image there is, and the registry's own
/// names on the host and in the cluster.
pub(super) fn registry_names() -> [String; 3] {
    ["_default".to_owned(), HOST_REGISTRY.to_owned(), format!("{CONTROL_PLANE_ADDRESS}:{REGISTRY_PORT}")]
}

/// containerd's settings of each of [`registry_names`].
pub(super) fn registry_host() -> String {
    format!(
        "[host.\"http://{CONTROL_PLANE_ADDRESS}:{REGISTRY_PORT}\"]\n  capabilities = [\"pull\", \"resolve\", \"push\"]\n"
    )
}

/// Pods of a node share a bridge in its namespace.
pub(super) fn cni(layout: &Layout, node: Node) -> String {
    let networks = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": node.pods() }]],
                    "dataDir": layout.of_node(node, "ipam"),
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    networks.to_string()
}

/// A node's kubelet. Only the API server has a certificate for it.
pub(super) fn kubelet(layout: &Layout, node: Node) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failSwapOn: false
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: false}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: AlwaysAllow}}
address: {address}
healthzBindAddress: 127.0.0.1
evictionHard: {{memory.available: \"100Mi\"}}
imageGCHighThresholdPercent: 100
maxPods: 110
podPidsLimit: 256
syncFrequency: 10s
",
        cgroup = node.cgroup(),
        ca = layout.text("pki/ca.crt"),
        address = node.address(),
    )
}

/// What clients need, at an address of the API server.
pub(super) fn kubeconfig(layout: &Layout, address: &str, token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: https://{address}
    certificate-authority: {ca}
users:
- name: admin
  user:
    token: {token}
contexts:
- name: coracle
  context: {{cluster: coracle, user: admin, namespace: default}}
current-context: coracle
",
        ca = layout.text("pki/ca.crt")
    )
}

/// The API server as its clients in the cluster see it.
pub(super) fn api_in_cluster() -> String {
    format!("{CONTROL_PLANE_ADDRESS}:{API_PORT}")
}

/// What the API server writes down: whole requests about Pods, so that a test can look for secrets in them.
pub(super) const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: \"\"
    resources: [pods, pods/exec, pods/attach, pods/portforward, services, persistentvolumeclaims]
- level: None
  users: [system:apiserver]
- level: None
  verbs: [get, list, watch, update, patch]
  resources:
  - group: coordination.k8s.io
  - group: \"\"
    resources: [nodes, nodes/status, endpoints, events]
- level: Metadata
";

/// Volumes are directories below `/tmp/hostpath_pv`, which go with their claims.
pub(super) const STORAGE_CLASS: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: directories
  annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}
provisioner: kubernetes.io/host-path
reclaimPolicy: Delete
";

pub(super) fn registry(layout: &Layout) -> String {
    format!(
        "version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {storage}}}
  delete: {{enabled: true}}
http:
  addr: {CONTROL_PLANE_ADDRESS}:{REGISTRY_PORT}
",
        storage = layout.text("registry")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_nothing_but_the_registry() {
        let layout = Layout::here().expect("a directory");
        let (one, two) = (containerd(&layout, Node(1)), containerd(&layout, Node(2)));
        let paths = |text: &str| -> Vec<String> {
            let of_nodes = text.split('"').filter(|it| it.contains("/cluster/") && !it.ends_with("/registries"));
            of_nodes.map(str::to_owned).collect()
        };
        assert_eq!(paths(&one).len(), 6);
        assert!(paths(&one).iter().all(|it| !paths(&two).contains(it)), "{one}\n{two}");
    }

    #[test]
    fn a_node_gives_addresses_of_its_own_to_pods() {
        let layout = Layout::here().expect("a directory");
        let cni: serde_json::Value = serde_json::from_str(&cni(&layout, Node(2))).expect("JSON");
        assert_eq!(cni["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.97.2.0/24");
    }
}
