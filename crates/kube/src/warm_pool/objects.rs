//! The kinds of agent-sandbox, as far as they are used: `extensions.agents.x-k8s.io/v1beta1` and
//! `agents.x-k8s.io/v1beta1`.

use coracle_types::Result;
use k8s_openapi::api::core::v1::PodSpec;
use kube::Api;
use kube::core::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::Cluster;

/// Group of claims, pools and templates.
pub(crate) const EXTENSIONS: &str = "extensions.agents.x-k8s.io";

/// Group of Sandboxes.
pub(crate) const AGENTS: &str = "agents.x-k8s.io";

/// Version of both.
pub(super) const VERSION: &str = "v1beta1";

/// Annotation of a Sandbox: the name of its Pod, if it differs.
pub(super) const POD_NAME: &str = "agents.x-k8s.io/pod-name";

pub(super) type SandboxClaim = Object<ClaimSpec, ClaimStatus>;
pub(super) type PooledSandbox = Object<Map<String, Value>, Map<String, Value>>;
pub(super) type WarmPool = Object<PoolSpec, PoolStatus>;
pub(super) type SandboxTemplate = Object<TemplateSpec, Map<String, Value>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimSpec {
    pub(super) warm_pool_ref: ObjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lifecycle: Option<ClaimLifecycle>,
}

/// A reference to an object of the same namespace; empty if there is none yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ObjectName {
    pub(super) name: String,
}

/// When the controller deletes a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimLifecycle {
    pub(super) shutdown_time: String,
    pub(super) shutdown_policy: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ClaimStatus {
    pub(super) conditions: Vec<ClaimCondition>,
    pub(super) sandbox: ObjectName,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ClaimCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolSpec {
    pub(super) sandbox_template_ref: ObjectName,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PoolStatus {
    pub(super) ready_replicas: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateSpec {
    pub(super) pod_template: PodTemplate,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PodTemplate {
    pub(super) spec: PodSpec,
}

pub(super) fn claims() -> ApiResource {
    resource(EXTENSIONS, "SandboxClaim", "sandboxclaims")
}

pub(super) fn pools() -> ApiResource {
    resource(EXTENSIONS, "SandboxWarmPool", "sandboxwarmpools")
}

pub(super) fn templates() -> ApiResource {
    resource(EXTENSIONS, "SandboxTemplate", "sandboxtemplates")
}

pub(super) fn sandboxes() -> ApiResource {
    resource(AGENTS, "Sandbox", "sandboxes")
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, VERSION, kind), plural)
}

/// Accesses objects of one of these kinds in the namespace.
pub(super) async fn objects<S, T>(cluster: &Cluster, resource: &ApiResource) -> Result<Api<Object<S, T>>>
where
    S: Clone,
    T: Clone,
{
    Ok(Api::namespaced_with(cluster.client().await?, cluster.namespace(), resource))
}
