//! Finds the Pod of a container, by name, id or the first digits of the id.

use coracle_types::{ContainerId, Error, Handle, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

use crate::cluster::Cluster;
use crate::error::{api_error, is_not_found};
use crate::names::{CLAIM_LABEL, CORACLE, ID_LABEL, MANAGED_BY, NAME, id_label, object_name};
use crate::pod::container_id;
use crate::retry::{READ, retry};

/// Number of Pods per page.
pub(crate) const PAGE: u32 = 500;

/// Number of digits of an id in its label.
const LABEL_DIGITS: usize = 32;

/// Returns the Pod of a container.
///
/// # Errors
/// [`Error::NoSuchContainer`], also for a Pod that is being deleted or is not Coracle's.
pub(crate) async fn find_pod(cluster: &Cluster, handle: &Handle) -> Result<Pod> {
    let found = match handle {
        Handle::Name(name) => by_name(cluster, name.as_str()).await?,
        Handle::IdPrefix(digits) => by_digits(cluster, digits).await?,
    };
    let pod = found.filter(is_present).ok_or_else(|| Error::NoSuchContainer(handle.as_str().to_owned()))?;
    if let (Some(id), Some(name)) = (container_id(&pod), &pod.metadata.name) {
        cluster.remember_pod(&id, name);
    }
    Ok(pod)
}

/// Finds its own Pod, else one of a warm pool.
async fn by_name(cluster: &Cluster, name: &str) -> Result<Option<Pod>> {
    let object = object_name(name);
    let has_name = |it: &Pod| it.metadata.annotations.as_ref().and_then(|it| it.get(NAME)).is_some_and(|it| it == name);
    if let Some(pod) = get_pod(cluster, &object).await?.filter(has_name) {
        return Ok(Some(pod));
    }
    let claimed = list_pods(cluster, &format!("{MANAGED_BY}={CORACLE},{CLAIM_LABEL}={object}")).await?;
    Ok(claimed.into_iter().find(|it| has_name(it) && is_present(it)))
}

/// A Pod that is being deleted counts as removed: its end takes seconds, and it can no longer be used.
pub(crate) fn is_present(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    pod.metadata.deletion_timestamp.is_none()
        && labels.and_then(|it| it.get(MANAGED_BY)).is_some_and(|it| it == CORACLE)
}

pub(crate) async fn get_pod(cluster: &Cluster, name: &str) -> Result<Option<Pod>> {
    let pods = cluster.api::<Pod>().await?;
    match retry("inspect", READ, || pods.get(name)).await? {
        Ok(pod) => Ok(Some(pod)),
        Err(err) if is_not_found(&err) => Ok(None),
        Err(err) => Err(api_error("inspect", err)),
    }
}

async fn by_digits(cluster: &Cluster, digits: &str) -> Result<Option<Pod>> {
    let has_digits = |pod: &Pod| container_id(pod).is_some_and(|it| it.as_str().starts_with(digits));
    if let Some(name) = ContainerId::parse(digits).ok().and_then(|it| cluster.known_pod(&it)) {
        return Ok(get_pod(cluster, &name).await?.filter(has_digits));
    }
    let selector = match digits.len() {
        LABEL_DIGITS.. => format!("{MANAGED_BY}={CORACLE},{ID_LABEL}={}", id_label(digits)),
        _ => format!("{MANAGED_BY}={CORACLE}"),
    };
    Ok(list_pods(cluster, &selector).await?.into_iter().find(|it| has_digits(it) && is_present(it)))
}

/// Lists all Pods of a selector, page by page. Starts again if the list changes too much meanwhile.
pub(crate) async fn list_pods(cluster: &Cluster, selector: &str) -> Result<Vec<Pod>> {
    let pods = cluster.api::<Pod>().await?;
    let first = ListParams::default().labels(selector).limit(PAGE);
    let (mut found, mut params, mut restarts) = (Vec::new(), first.clone(), 0);
    loop {
        let page = match retry("list", READ, || pods.list(&params)).await? {
            Err(kube::Error::Api(status)) if status.code == 410 && restarts < 3 => {
                (found, params, restarts) = (Vec::new(), first.clone(), restarts + 1);
                continue;
            }
            page => page.map_err(|err| api_error("list", err))?,
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(token) => params = first.clone().continue_token(&token),
            None => return Ok(found),
        }
    }
}
