//! Checks whether a pool can be used.

use coracle_types::Result;
use kube::core::{ApiResource, Object};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::claim::unusable;
use super::objects::{
    EXTENSIONS, PoolSpec, PoolStatus, SandboxTemplate, TemplateSpec, VERSION, WarmPool, objects, pools, templates,
};
use crate::cluster::Cluster;
use crate::error::{api_error, is_not_found};
use crate::retry::{READ, retry};

/// Why a pool needs an image with the guest.
pub(super) const NO_GUEST_IMAGE: &str =
    "it needs `kubernetes.guest_image`: its Pods have their guest before they are claimed";

/// Returns the number of ready Pods in the pool.
///
/// # Errors
/// [`coracle_types::Error::WarmPool`] if the pool, its template or agent-sandbox is missing.
pub(crate) async fn check_pool(cluster: &Cluster, pool: &str) -> Result<u32> {
    if cluster.settings.guest_image.is_none() {
        return Err(unusable(pool, NO_GUEST_IMAGE));
    }
    let found = pool_of(cluster, pool).await?;
    template_of(cluster, pool).await?;
    Ok(found.status.unwrap_or_default().ready_replicas)
}

async fn pool_of(cluster: &Cluster, pool: &str) -> Result<WarmPool> {
    find::<PoolSpec, PoolStatus>(cluster, pool, &pools(), pool).await
}

/// Returns the template of a pool's Pods.
///
/// # Errors
/// Those of [`check_pool`].
pub(super) async fn template_of(cluster: &Cluster, pool: &str) -> Result<SandboxTemplate> {
    let name = pool_of(cluster, pool).await?.spec.sandbox_template_ref.name;
    find::<TemplateSpec, Map<String, Value>>(cluster, pool, &templates(), &name).await
}

async fn find<S, T>(cluster: &Cluster, pool: &str, kind: &ApiResource, name: &str) -> Result<Object<S, T>>
where
    S: Clone + std::fmt::Debug + DeserializeOwned,
    T: Clone + std::fmt::Debug + Default + DeserializeOwned,
{
    let api = objects::<S, T>(cluster, kind).await?;
    match retry("warm pool", READ, || api.get(name)).await? {
        Ok(found) => Ok(found),
        Err(err) if is_not_found(&err) => Err(unusable(pool, missing(&err, kind, name, cluster.namespace()))),
        Err(err) => Err(api_error("warm pool", err)),
    }
}

/// Describes a missing object. If the kind is missing, the server's answer names no object.
fn missing(err: &kube::Error, kind: &ApiResource, name: &str, namespace: &str) -> String {
    let names_object = matches!(err, kube::Error::Api(status) if status.message.contains(name));
    match names_object {
        true => format!("there is no {} `{name}` in the namespace `{namespace}`", kind.kind),
        false => format!("the cluster has no agent-sandbox: it does not know {} of {EXTENSIONS}/{VERSION}", kind.kind),
    }
}
