//! Removes the Pod of a container.

use coracle_runtime::RemovalOutcome;
use coracle_types::{ContainerId, Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};

use crate::cluster::Cluster;
use crate::error::{api_error, is_conflict, is_not_found};
use crate::find::find_pod;
use crate::names::CLAIM_LABEL;
use crate::retry::{WRITE, retry};
use crate::warm_pool::release;

/// Deletes it without grace, so that the object is removed at once. The node ends the processes; a lost node ends them
/// when it comes back, since its Pod no longer exists.
pub(crate) async fn remove(cluster: &Cluster, id: &ContainerId) -> Result<RemovalOutcome> {
    let pod = match find_pod(cluster, &id.into()).await {
        Err(Error::NoSuchContainer(_)) => {
            // Its claim may still exist, and would create a new Pod.
            if cluster.settings.warm_pool.is_some() {
                release(cluster, id).await?;
            }
            return Ok(RemovalOutcome::AlreadyGone);
        }
        found => found?,
    };
    let name = pod.metadata.name.clone().unwrap_or_default();
    if pod.metadata.labels.as_ref().is_some_and(|it| it.contains_key(CLAIM_LABEL)) {
        // The Pod is deleted with its claim, with grace. Below it is deleted at once.
        release(cluster, id).await?;
    }
    let outcome = delete_pod(cluster, &name, pod.metadata.uid.as_deref()).await;
    cluster.forget_pod(id);
    outcome
}

/// Deletes the Pod of that name, if it is still the same one.
pub(crate) async fn delete_pod(cluster: &Cluster, name: &str, uid: Option<&str>) -> Result<RemovalOutcome> {
    let pods = cluster.api::<Pod>().await?;
    let preconditions = uid.map(|it| Preconditions { uid: Some(it.to_owned()), resource_version: None });
    let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    match retry("remove", WRITE, || pods.delete(name, &params)).await? {
        Ok(_) => Ok(RemovalOutcome::Now),
        // Another Pod has the name by now.
        Err(err) if is_not_found(&err) || is_conflict(&err) => Ok(RemovalOutcome::AlreadyGone),
        Err(err) => Err(api_error("remove", err)),
    }
}
