//! The user's settings for Pods of a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use coracle_host::registry_login::LoginFiles;
use coracle_types::ImageRef;

/// The cluster, and options of its Pods.
#[derive(Clone, Debug, Default)]
pub struct KubeSettings {
    /// File with address and credentials. Without one this process is in a Pod of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Context of that file; its current one if unset.
    pub context: Option<String>,
    /// Namespace of the Pods; that of the context if unset.
    pub namespace: Option<String>,
    /// Registry and name prefix of images that are built here. Without one no image can be built.
    pub registry: Option<String>,
    /// The user's registry logins. Nodes have their own, see [`image_pull_secret`](Self::image_pull_secret).
    pub logins: LoginFiles,
    /// Registries that are reached by plain http, as `host:port`.
    pub insecure_registries: Vec<String>,
    /// Image that contains the guest at `/coracle-guest`. Without one the guest is sent to each Pod.
    pub guest_image: Option<ImageRef>,
    /// Pool of running Pods, by its SandboxWarmPool's name. A container that matches none of them gets its own.
    pub warm_pool: Option<String>,
    /// How long the cluster runs a Pod whose container is not persistent. Unset for no limit.
    pub max_lifetime: Option<Duration>,
    /// Runtime class of the Pods.
    pub runtime_class: Option<String>,
    /// Secret with the registry's login.
    pub image_pull_secret: Option<String>,
    /// Labels of the nodes that Pods may run on.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that Pods tolerate.
    pub tolerations: Vec<KubeToleration>,
}

/// A taint that Pods tolerate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeToleration {
    /// Key of the taint.
    pub key: String,
    /// Its value; any if unset.
    pub value: Option<String>,
    /// Its effect; any if unset.
    pub effect: Option<String>,
}
