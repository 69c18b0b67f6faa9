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
        /// address and login of the cluster
        kubeconfig: Option<PathBuf>
            => "the first file of `$KUBECONFIG`, else `~/.kube/config`, else the Pod's own account",
        /// which cluster and login of the file
        context: Option<String> => "the file's current one",
        /// where the Pods are
        namespace: Option<String> => "that of the context, else `default`",
        /// registry and name prefix of images that are built for this cluster: purposes, packages, sandboxes, snippets
        registry: Option<String>,
        /// registries with plain http, as `host:port`
        insecure_registries: Vec<String>,
        /// an image with a shell and the guest at `/coracle-guest`; without it, Coracle sends the guest to each Pod
        guest_image: Option<ImageRef>,
        /// the SandboxWarmPool of [agent-sandbox](kubernetes.md#warm-pool) whose Pods become containers; needs
        /// `guest_image`
        warm_pool: Option<String>,
        /// the cluster [ends a container](kubernetes.md#lifetime) that is not persistent after this; 0 for never
        max_lifetime: Seconds = "7d",
        /// the Pods' runtime, such as gVisor or Kata
        runtime_class: Option<String>,
        /// the Secret with the registry's login, for the nodes
        image_pull_secret: Option<String>,
        /// labels of the nodes that take the Pods
        node_selector: BTreeMap<String, String>,
        /// taints of nodes that take the Pods: a list of `{key, value, effect}`
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
