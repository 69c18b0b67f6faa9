//! Waits for a state of a Pod, with watches and polling.

use std::time::Duration;

use coracle_types::{Error, Result};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::find::{get_pod, is_present};

/// Interval of polling a Pod whose watch reports nothing: the watch may have been cut off silently.
const WATCH_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Nodes report a container's end up to a second after its commands and connections have ended.
pub(crate) const END_REPORT_TIMEOUT: Duration = Duration::from_millis(1500);

/// Interval of polling a Pod whose end may not be reported yet.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A wait for the state of one Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodWait<'a> {
    pub(crate) verb: &'static str,
    pub(crate) pod: &'a str,
    /// The Pod of that name has to be this one.
    pub(crate) uid: Option<&'a str>,
    pub(crate) within: Duration,
}

/// Waits until `judge` returns a value for the Pod.
///
/// # Errors
/// [`Error::NoSuchContainer`] if the Pod is removed, [`Error::TimedOut`], and those of `judge`.
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
        if let Ok(Some(done)) = timeout(left.min(WATCH_CHECK_INTERVAL), watched).await {
            return done;
        }
    }
}

/// `None` when the watch ends, for any reason: the Pod is then polled.
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
            // The same delay as a watch, before the caller polls again.
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
