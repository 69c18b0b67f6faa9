//! Waits for a state of a Pod: watched, and looked at again when the watch says nothing.

use std::time::Duration;

use coracle_types::{Error, Result};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::find::{get_pod, is_present};

/// A Pod that does not change is looked at this often: a watch may have been cut off silently.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Nodes tell of a container's end up to a second after its commands and connections have ended.
pub(crate) const END_TOLD_WITHIN: Duration = Duration::from_millis(1500);

/// Between two looks at a Pod whose end may not be told yet.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A wait for the state of one Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodWait<'a> {
    pub(crate) verb: &'static str,
    pub(crate) pod: &'a str,
    /// The Pod of that name has to be this one.
    pub(crate) uid: Option<&'a str>,
    pub(crate) within: Duration,
}

/// Waits until `judge` gives something of the Pod.
///
/// # Errors
/// [`Error::NoSuchContainer`] when the Pod goes, [`Error::TimedOut`], and those of `judge`.
pub(crate) async fn wait_for<T>(
    cluster: &Cluster,
    wait: PodWait<'_>,
    mut judge: impl FnMut(&Pod) -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + wait.within;
    loop {
        let found = get_pod(cluster, wait.pod).await?.filter(is_present);
        let found = found.filter(|it| wait.uid.is_none_or(|uid| it.metadata.uid.as_deref() == Some(uid)));
        let pod = found.ok_or_else(|| Error::NoSuchContainer(wait.pod.to_owned()))?;
        if let Some(done) = judge(&pod)? {
            return Ok(done);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TimedOut { verb: wait.verb, after: wait.within });
        }
        let version = pod.metadata.resource_version.unwrap_or_default();
        let watched = watch(cluster, wait.pod, &version, &mut judge);
        if let Ok(Some(done)) = timeout(left.min(LOOK_AGAIN), watched).await {
            return done;
        }
    }
}

/// `None` when the watch ends, for whatever reason: the Pod is then looked at.
async fn watch<T>(
    cluster: &Cluster,
    name: &str,
    version: &str,
    judge: &mut impl FnMut(&Pod) -> Result<Option<T>>,
) -> Option<Result<T>> {
    let pods = cluster.api::<Pod>().await.ok()?;
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut events = match pods.watch(&params, version).await {
        Ok(events) => events.boxed(),
        Err(err) => {
            tracing::debug!(%err, "the Pod cannot be watched");
            // As the watch would: the caller looks again after a while.
            tokio::time::sleep(Duration::from_millis(500)).await;
            return None;
        }
    };
    while let Some(Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod))) = events.next().await {
        if !is_present(&pod) {
            return None;
        }
        match judge(&pod) {
            Ok(None) => {}
            Ok(Some(done)) => return Some(Ok(done)),
            Err(err) => return Some(Err(err)),
        }
    }
    None
}
