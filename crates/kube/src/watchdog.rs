//! Closes a link whose container was removed, or whose node is lost: its connection may stay silent forever.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::exec::PodProcess;
use crate::find::{get_pod, is_present};
use crate::pod::{PodState, main_state, node_lost};

/// Pause between two watches of a Pod.
const PAUSE: Duration = Duration::from_secs(5);

/// Length of one watch in seconds; a server's own limit is about five minutes.
const WATCH_SECONDS: u32 = 290;

/// The connection of a link, while its Pod can be reached.
pub(crate) struct WatchedProcess {
    watch: JoinHandle<()>,
}

impl Drop for WatchedProcess {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl WatchedProcess {
    /// The process is dropped with this.
    pub(crate) fn new(cluster: Arc<Cluster>, pod: &Pod, process: PodProcess) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let uid = pod.metadata.uid.clone();
        let watch = tokio::spawn(async move {
            until_unreachable(&cluster, &name, uid.as_deref()).await;
            tracing::debug!(pod = name, "closing the link of an unreachable Pod");
            process.cut();
        });
        Self { watch }
    }
}

async fn until_unreachable(cluster: &Cluster, name: &str, uid: Option<&str>) {
    loop {
        // Also before the first check, since most links are used only for a moment.
        tokio::time::sleep(PAUSE).await;
        // A server that does not answer proves nothing about the Pod.
        let Ok(found) = get_pod(cluster, name).await else { continue };
        let Some(pod) = found.filter(|it| it.metadata.uid.as_deref() == uid && is_reachable(it)) else { return };
        let version = pod.metadata.resource_version.unwrap_or_default();
        if watch(cluster, name, &version).await.is_none() {
            return;
        }
    }
}

/// Watches until the watch ends; `None` if the Pod can no longer be reached.
async fn watch(cluster: &Cluster, name: &str, version: &str) -> Option<()> {
    let Ok(pods) = cluster.api::<Pod>().await else { return Some(()) };
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let Ok(events) = pods.watch(&params, version).await else { return Some(()) };
    let mut events = events.boxed();
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) if !is_reachable(&pod) => return None,
            WatchEvent::Deleted(_) => return None,
            WatchEvent::Error(_) => break,
            _ => {}
        }
    }
    Some(())
}

fn is_reachable(pod: &Pod) -> bool {
    is_present(pod) && node_lost(pod).is_none() && !matches!(main_state(pod), PodState::Ended(_))
}
