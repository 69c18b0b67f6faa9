//! Creates the Pod of a container.

use std::time::Duration;

use coracle_runtime::Placed;
use coracle_types::{ContainerId, Error, Result, random_hex};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::{api_error, is_conflict};
use crate::find::get_pod;
use crate::images::to_run;
use crate::names::{NO_POOL, object_name};
use crate::network::ensure_policy;
use crate::pod::{PodRequest, container_id, pod};
use crate::remove::delete_pod;
use crate::retry::{WRITE, retry};
use crate::warm_pool::{ClaimOutcome, claim};

/// How long to wait for a Pod of the same name that is being deleted.
const PREDECESSOR: Duration = Duration::from_secs(30);

const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Creates the Pod. The cluster starts it as soon as it can; its status is created until `start`.
pub(crate) async fn create(cluster: &Cluster, placed: &Placed) -> Result<ContainerId> {
    let id = random_hex::<32>();
    let (pull_name, image) = to_run(cluster, placed.image()).await?;
    let (settings, namespace) = (&cluster.settings, cluster.namespace());
    let request = PodRequest { placed, settings, namespace, id: &id, image: &pull_name, image_env: &image.env };
    let mut pod = pod(request)?;
    ensure_policy(cluster, placed.network()).await?;
    if let Some(pool) = &settings.warm_pool {
        match claim(cluster, pool, request, &pod).await? {
            ClaimOutcome::Bound(id) => return Ok(id),
            ClaimOutcome::Unfit(why) => {
                tracing::info!(pool, %why, "creating a separate Pod for the container");
                pod.metadata.annotations.get_or_insert_default().insert(NO_POOL.to_owned(), why);
            }
        }
    }
    // Pods of the pool already have a node, so they are compared without the affinity.
    pod.spec.get_or_insert_default().affinity = cluster.lost_nodes.affinity();
    let id = ContainerId::parse(&id).map_err(|err| Error::Unreadable { verb: "create", detail: err.to_string() })?;
    let name = object_name(placed.spec().name.as_str());
    let deadline = Instant::now() + PREDECESSOR;
    loop {
        match post(cluster, &pod).await? {
            Ok(_) => break,
            Err(err) if is_conflict(&err) => match name_holder(cluster, &name, &id).await? {
                NameHolder::Ours => break,
                NameHolder::Ending if Instant::now() < deadline => tokio::time::sleep(BETWEEN_LOOKS).await,
                NameHolder::Gone => {}
                _ => return Err(Error::NameTaken(placed.spec().name.clone())),
            },
            Err(err) => return Err(api_error("create", err)),
        }
    }
    cluster.remember_pod(&id, &name);
    Ok(id)
}

async fn post(cluster: &Cluster, pod: &Pod) -> Result<Result<Pod, kube::Error>> {
    let pods = cluster.api::<Pod>().await?;
    let params = PostParams::default();
    retry("create", WRITE, || pods.create(&params, pod)).await
}

/// The Pod that has the name.
enum NameHolder {
    /// The Pod of this call: an answer of the server was lost.
    Ours,
    /// It is being deleted.
    Ending,
    Gone,
    Another,
}

async fn name_holder(cluster: &Cluster, name: &str, id: &ContainerId) -> Result<NameHolder> {
    let Some(pod) = get_pod(cluster, name).await? else { return Ok(NameHolder::Gone) };
    if container_id(&pod).as_ref() == Some(id) {
        return Ok(NameHolder::Ours);
    }
    if pod.metadata.deletion_timestamp.is_none() {
        return Ok(NameHolder::Another);
    }
    // Its node may be lost: without this the name would never be free.
    delete_pod(cluster, name, pod.metadata.uid.as_deref()).await?;
    Ok(NameHolder::Ending)
}
