//! Nodes that report to be ready and start nothing.

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::{AT_ONCE, NAMESPACE};

/// Label and taint of such nodes.
pub(crate) const LABEL: &str = "coracle.dev/fake-node";

/// Nodes that were added.
pub(crate) struct FakeNodes;

/// A client of the cluster, and the namespace there.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    let params = PatchParams::apply("coracle-scale").force();
    let namespace = Patch::Apply(with_kind("Namespace", namespace));
    Api::<Namespace>::all(client.clone()).patch(NAMESPACE, &params, &namespace).await.unwrap();
    client
}

fn with_kind(kind: &str, mut object: Value) -> Value {
    (object["apiVersion"], object["kind"]) = ("v1".into(), kind.into());
    object
}

impl FakeNodes {
    pub(crate) async fn add(client: &Client, count: usize) -> Self {
        Self.remove(client).await;
        let nodes = Api::<Node>::all(client.clone());
        let added = stream::iter(0..count).map(Ok).try_for_each_concurrent(AT_ONCE, |number| {
            let nodes = &nodes;
            async move {
                let name = format!("fake-{number}");
                nodes.create(&PostParams::default(), &node(&name)).await?;
                nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready())).await.map(drop)
            }
        });
        added.await.unwrap();
        Self
    }

    pub(crate) async fn remove(&self, client: &Client) {
        let ours = ListParams::default().labels(LABEL);
        Api::<Node>::all(client.clone()).delete_collection(&DeleteParams::default(), &ours).await.unwrap();
    }
}

fn node(name: &str) -> Node {
    let taint = json!({ "key": LABEL, "value": "true", "effect": "NoSchedule" });
    let labels = json!({ LABEL: "true", "kubernetes.io/hostname": name });
    let node = json!({ "metadata": { "name": name, "labels": labels }, "spec": { "taints": [taint] } });
    serde_json::from_value(with_kind("Node", node)).unwrap()
}

fn ready() -> Value {
    let room = json!({ "cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "500Gi" });
    let now = jiff::Timestamp::now().to_string();
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    json!({ "status": { "capacity": room, "allocatable": room, "conditions": [condition] } })
}
