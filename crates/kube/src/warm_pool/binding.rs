//! Binds a claim to its Pod, and turns the Pod into a container.

use std::time::Duration;

use coracle_types::{Error, Result};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::claim::unusable;
use super::objects::{ClaimSpec, ClaimStatus, POD_NAME, PooledSandbox, SandboxClaim, claims, objects, sandboxes};
use crate::cluster::Cluster;
use crate::error::{api_error, is_not_found};
use crate::find::get_pod;
use crate::names::CLAIM_LABEL;
use crate::retry::{READ, WRITE, retry};

/// Timeout until a claim has its Pod: for an empty pool, one is created from its template.
const BOUND: Duration = Duration::from_secs(90);

/// Interval of polling a claim whose watch reports nothing: the watch may have been cut off silently.
const WATCH_CHECK_INTERVAL: Duration = Duration::from_secs(5);

const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// A Pod, and the claim that it is bound to.
pub(super) struct BoundPod {
    pub(super) pod: Pod,
    pub(super) claim: SandboxClaim,
}

/// Waits until the claim of that name has a Pod, which need not run yet.
///
/// # Errors
/// [`Error::WarmPool`] with the controller's message, if there is none in time, or if the Pod is not the claim's.
pub(super) async fn bound_pod(cluster: &Cluster, pool: &str, name: &str) -> Result<BoundPod> {
    let deadline = Instant::now() + BOUND;
    let claim = assigned(cluster, pool, name, deadline).await?;
    let sandbox = claim.status.as_ref().map(|it| it.sandbox.name.clone()).unwrap_or_default();
    let api = objects::<Map<String, Value>, Map<String, Value>>(cluster, &sandboxes()).await?;
    loop {
        let found = retry("create", READ, || api.get_opt(&sandbox)).await?;
        if let Some(sandbox) = found.map_err(|err| api_error("create", err))? {
            let pod_name = pod_name(&sandbox);
            let pod = get_pod(cluster, &pod_name).await?.filter(|it| it.metadata.deletion_timestamp.is_none());
            if let Some(pod) = pod {
                if !is_owned(&sandbox.metadata, &claim.metadata) || !is_owned(&pod.metadata, &sandbox.metadata) {
                    return Err(unusable(pool, format!("the Pod `{pod_name}` does not belong to the claim `{name}`")));
                }
                return Ok(BoundPod { pod, claim });
            }
        }
        if Instant::now() >= deadline {
            return Err(unusable(pool, format!("the Sandbox `{sandbox}` got no Pod within {} s", BOUND.as_secs())));
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

fn pod_name(sandbox: &PooledSandbox) -> String {
    let named = sandbox.metadata.annotations.as_ref().and_then(|it| it.get(POD_NAME)).filter(|it| !it.is_empty());
    named.or(sandbox.metadata.name.as_ref()).cloned().unwrap_or_default()
}

fn is_owned(object: &ObjectMeta, owner: &ObjectMeta) -> bool {
    let uid = owner.uid.as_deref().unwrap_or_default();
    !uid.is_empty() && object.owner_references.iter().flatten().any(|it| it.uid == uid)
}

/// Waits until the controller assigns a Sandbox to the claim.
async fn assigned(cluster: &Cluster, pool: &str, name: &str, deadline: Instant) -> Result<SandboxClaim> {
    let api = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    loop {
        let found = match retry("create", READ, || api.get(name)).await? {
            Err(err) if is_not_found(&err) => return Err(unusable(pool, format!("the claim `{name}` was deleted"))),
            found => found.map_err(|err| api_error("create", err))?,
        };
        if is_assigned(&found) {
            return Ok(found);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(unusable(pool, not_assigned(&found)));
        }
        let version = found.metadata.resource_version.clone().unwrap_or_default();
        if let Ok(Some(claim)) = timeout(left.min(WATCH_CHECK_INTERVAL), watch(&api, name, &version)).await {
            return Ok(claim);
        }
    }
}

/// `None` when the watch ends, for any reason: the claim is then polled.
async fn watch(api: &Api<SandboxClaim>, name: &str, version: &str) -> Option<SandboxClaim> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
    let Ok(events) = api.watch(&params, version).await else {
        sleep(BETWEEN_LOOKS).await;
        return None;
    };
    let mut events = events.boxed();
    while let Some(Ok(WatchEvent::Added(claim) | WatchEvent::Modified(claim))) = events.next().await {
        if is_assigned(&claim) {
            return Some(claim);
        }
    }
    None
}

fn is_assigned(claim: &SandboxClaim) -> bool {
    claim.status.as_ref().is_some_and(|it| !it.sandbox.name.is_empty())
}

/// Describes why no Sandbox was assigned, with the controller's message.
fn not_assigned(claim: &SandboxClaim) -> String {
    let conditions = claim.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let condition = conditions.iter().find(|it| it.kind == "Ready" && it.status != "True");
    let message = condition.map(|it| format!("{}: {}", it.reason, it.message));
    let message = message.unwrap_or_else(|| "its controller does not answer".into());
    format!("no Sandbox was assigned within {} s ({message})", BOUND.as_secs())
}

/// Makes the Pod the container: sets labels, annotations, and its deadline. Then the claim no longer expires.
pub(super) async fn adopt(
    cluster: &Cluster,
    pod: &Pod,
    wanted: &Pod,
    claim: &SandboxClaim,
    lifetime: Option<i64>,
) -> Result<()> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
    let mut labels = wanted.metadata.labels.clone().unwrap_or_default();
    labels.insert(CLAIM_LABEL.to_owned(), claim_name.to_owned());
    let mut patch = json!({
        "metadata": { "uid": pod.metadata.uid, "labels": labels, "annotations": wanted.metadata.annotations },
    });
    if let Some(lifetime) = lifetime {
        patch["spec"]["activeDeadlineSeconds"] = json!(lifetime.saturating_add(age(pod)).min(i64::from(i32::MAX)));
    }
    let (pods, params, patch) = (cluster.api::<Pod>().await?, PatchParams::default(), Patch::Merge(patch));
    let patched = retry("create", WRITE, || pods.patch(name, &params, &patch)).await?;
    patched.map_err(|err| api_error("create", err))?;
    let claims = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    let lasting = Patch::Merge(json!({ "spec": { "lifecycle": null } }));
    let patched = retry("create", WRITE, || claims.patch(claim_name, &params, &lasting)).await?;
    patched.map(drop).map_err(|err: kube::Error| match is_not_found(&err) {
        true => Error::NoSuchContainer(claim_name.to_owned()),
        false => api_error("create", err),
    })
}

/// Seconds that a Pod has run: a deadline counts from its start, which was before it became a container.
fn age(pod: &Pod) -> i64 {
    let started = pod.status.as_ref().and_then(|it| it.start_time.as_ref());
    started.map_or(0, |it| (jiff::Timestamp::now().as_second() - it.0.as_second()).max(0))
}
