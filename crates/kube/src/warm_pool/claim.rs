//! Creates a claim and binds its Pod to a container.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::NetworkAttachment;
use coracle_types::{ContainerId, Error, Result};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use tokio::time::{Instant, sleep};

use super::binding::{BoundPod, adopt, bound_pod};
use super::compatibility::misfit;
use super::objects::{ClaimLifecycle, ClaimSpec, ClaimStatus, ObjectName, SandboxClaim, claims, objects};
use super::readiness::{NO_GUEST_IMAGE, template_of};
use super::release::delete_claim;
use crate::cluster::Cluster;
use crate::error::{api_error, is_conflict, is_not_found};
use crate::find::get_pod;
use crate::names::{CORACLE, ID, ID_LABEL, MANAGED_BY, id_label, object_name};
use crate::pod::{PodRequest, lifetime};
use crate::retry::{READ, WRITE, retry};

/// Time after which a claim without a container expires.
const UNBOUND: Duration = Duration::from_secs(600);

/// How long to wait for a claim of the same name that is being deleted.
const PREDECESSOR: Duration = Duration::from_secs(30);

const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// The result of a claim.
pub(crate) enum ClaimOutcome {
    /// A Pod of the pool is the container of this id.
    Bound(ContainerId),
    /// No Pod of the pool is suitable, for this reason.
    Unfit(String),
}

/// Uses a Pod of the pool for a container, if it equals the container's own Pod.
///
/// # Errors
/// [`Error::WarmPool`] for a pool that cannot be used; [`Error::NameTaken`]; those of the API server.
pub(crate) async fn claim(
    cluster: &Cluster,
    pool: &str,
    request: PodRequest<'_>,
    wanted: &Pod,
) -> Result<ClaimOutcome> {
    if cluster.settings.guest_image.is_none() {
        return Err(unusable(pool, NO_GUEST_IMAGE));
    }
    let template = template_of(cluster, pool).await?;
    let name = object_name(request.placed.spec().name.as_str());
    if let Some(why) = unfit(request, wanted, &template.spec.pod_template.spec) {
        return match is_there(cluster, &name).await? {
            true => Err(Error::NameTaken(request.placed.spec().name.clone())),
            false => Ok(ClaimOutcome::Unfit(why)),
        };
    }
    if get_pod(cluster, &name).await?.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
        return Err(Error::NameTaken(request.placed.spec().name.clone()));
    }
    post(cluster, request, &new_claim(pool, &name, request.id)).await?;
    match Box::pin(bind(cluster, pool, request, wanted)).await {
        Ok(ClaimOutcome::Bound(id)) => Ok(ClaimOutcome::Bound(id)),
        other => {
            // It would expire by itself, but later.
            if let Err(err) = delete_claim(cluster, &name).await {
                tracing::warn!(claim = name, %err, "cannot delete a claim, which will expire");
            }
            other
        }
    }
}

/// Checks the Pod of a new claim, and makes it the container.
async fn bind(cluster: &Cluster, pool: &str, request: PodRequest<'_>, wanted: &Pod) -> Result<ClaimOutcome> {
    let name = object_name(request.placed.spec().name.as_str());
    let BoundPod { pod, claim } = bound_pod(cluster, pool, &name).await?;
    let offered = pod.spec.clone().unwrap_or_default();
    // The Pod may be older than its template.
    if let Some(why) = unfit(request, wanted, &offered) {
        return Ok(ClaimOutcome::Unfit(format!("the pool's Pod is older than its template: {why}")));
    }
    let id =
        ContainerId::parse(request.id).map_err(|err| Error::Unreadable { verb: "create", detail: err.to_string() })?;
    adopt(cluster, &pod, wanted, &claim, lifetime(request)).await?;
    cluster.remember_pod(&id, pod.metadata.name.as_deref().unwrap_or_default());
    Ok(ClaimOutcome::Bound(id))
}

fn unfit(request: PodRequest<'_>, wanted: &Pod, offered: &PodSpec) -> Option<String> {
    match request.placed.network() {
        NetworkAttachment::EngineDefault | NetworkAttachment::Alone => {
            misfit(&wanted.spec.clone().unwrap_or_default(), offered)
        }
        // Policies are combined: one of the template may allow what `none` denies.
        _ => Some("its network is not the default one".into()),
    }
}

fn new_claim(pool: &str, name: &str, id: &str) -> SandboxClaim {
    let expires = jiff::Timestamp::now() + UNBOUND;
    let spec = ClaimSpec {
        warm_pool_ref: ObjectName { name: pool.to_owned() },
        lifecycle: Some(ClaimLifecycle {
            shutdown_time: expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            shutdown_policy: "Delete".into(),
        }),
    };
    let text = |pairs: [(&str, &str); 2]| -> BTreeMap<String, String> {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    };
    let metadata = ObjectMeta {
        labels: Some(text([(MANAGED_BY, CORACLE), (ID_LABEL, id_label(id))])),
        annotations: Some([(ID.to_owned(), id.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let mut claim = SandboxClaim::new(name, &claims(), spec);
    claim.metadata = ObjectMeta { name: claim.metadata.name, ..metadata };
    claim
}

async fn post(cluster: &Cluster, request: PodRequest<'_>, claim: &SandboxClaim) -> Result<()> {
    let api = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    let (params, deadline) = (PostParams::default(), Instant::now() + PREDECESSOR);
    let name = claim.metadata.name.clone().unwrap_or_default();
    loop {
        match retry("create", WRITE, || api.create(&params, claim)).await? {
            Ok(_) => return Ok(()),
            Err(err) if is_conflict(&err) => {
                let found = retry("create", READ, || api.get_opt(&name)).await?;
                let Some(holder) = found.map_err(|err| api_error("create", err))? else { continue };
                let holder_id = holder.metadata.annotations.as_ref().and_then(|it| it.get(ID));
                if holder_id.is_some_and(|it| it == request.id) {
                    // An answer of the server was lost.
                    return Ok(());
                }
                if holder.metadata.deletion_timestamp.is_none() || Instant::now() >= deadline {
                    return Err(Error::NameTaken(request.placed.spec().name.clone()));
                }
                sleep(BETWEEN_LOOKS).await;
            }
            Err(err) => return Err(api_error("create", err)),
        }
    }
}

async fn is_there(cluster: &Cluster, name: &str) -> Result<bool> {
    let api = objects::<ClaimSpec, ClaimStatus>(cluster, &claims()).await?;
    match retry("create", READ, || api.get_metadata(name)).await? {
        Ok(it) => Ok(it.metadata.deletion_timestamp.is_none()),
        Err(err) if is_not_found(&err) => Ok(false),
        Err(err) => Err(api_error("create", err)),
    }
}

/// The error for a pool that cannot be used.
pub(super) fn unusable(pool: &str, reason: impl Into<String>) -> Error {
    Error::WarmPool { pool: pool.to_owned(), reason: reason.into() }
}
