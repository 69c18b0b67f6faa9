//! `kubernetes.*`: the cluster whose Pods are the containers of `engine = "kubernetes"`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_types::ImageRef;
use serde::Deserialize;

use super::macros::table;
use crate::arg_types::Seconds;

table! {
    /// `kubernetes.*`
    Kubernetes {
        /// File with the cluster's address and credentials; default: that of `kubectl`.
        kubeconfig: Option<PathBuf>,
        /// Context in that file; default: its current context.
        context: Option<String>,
        /// Namespace of the Pods; default: that of the context.
        namespace: Option<String>,
        /// Registry and name prefix for images that are built for this cluster.
        registry: Option<String>,
        /// Registries that are reached by plain http, as `host:port`.
        insecure_registries: Vec<String>,
        /// Image that contains the guest at `/coracle-guest`; without one the guest is sent to each Pod.
        guest_image: Option<ImageRef>,
        /// Name of a SandboxWarmPool of agent-sandbox whose Pods become containers; needs `guest_image`.
        warm_pool: Option<String>,
        /// How long the cluster runs a container that is not persistent; 0 for no limit.
        max_lifetime: Seconds = Seconds::new(7 * 86400),
        /// Runtime class of the Pods, such as `gvisor`.
        runtime_class: Option<String>,
        /// Secret in the namespace with the registry's login.
        image_pull_secret: Option<String>,
        /// Labels of the nodes that Pods may run on.
        node_selector: BTreeMap<String, String>,
        /// Taints of nodes that Pods tolerate.
        tolerations: Vec<Toleration>,
    }
}

/// A taint that Pods tolerate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toleration {
    /// Key of the taint.
    pub key: String,
    /// Its value; default: any.
    pub value: Option<String>,
    /// Its effect; default: any.
    pub effect: Option<TolerationEffect>,
}

/// Effect of a taint, by Kubernetes' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TolerationEffect {
    /// No new Pods.
    NoSchedule,
    /// Preferably no new Pods.
    PreferNoSchedule,
    /// No Pods.
    NoExecute,
}
