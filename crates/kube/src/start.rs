//! Waits until a container runs, and records that it was started.

use std::time::Duration;

use coracle_types::{Capability, ContainerId, EngineKind, Error, Excerpt, ImageRef, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::api_error;
use crate::find::find_pod;
use crate::names::{MAIN, STARTED};
use crate::pod::{PodState, main_state};
use crate::retry::{WRITE, retry};
use crate::wait::{PodWait, wait_for};

/// Timeout until a node has pulled the image and started the container.
const STARTUP: Duration = Duration::from_secs(300);

/// Timeout of scheduling: a cluster that adds nodes needs about a minute.
const SCHEDULING: Duration = Duration::from_secs(90);

/// Starts it. A Pod starts by itself, so this only waits.
pub(crate) async fn start(cluster: &Cluster, id: &ContainerId) -> Result<()> {
    let pod = find_pod(cluster, &id.into()).await?;
    let was_started = pod.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(STARTED));
    match main_state(&pod) {
        PodState::Running if was_started => return Ok(()),
        PodState::Ended(_) if was_started => return Err(no_restart()),
        _ => {}
    }
    let name = pod.metadata.name.clone().unwrap_or_default();
    let wait = PodWait { verb: "start", pod: &name, uid: pod.metadata.uid.as_deref(), within: STARTUP };
    let begun = tokio::time::Instant::now();
    wait_for(cluster, wait, |pod| check_running(pod, begun.elapsed())).await?;
    mark_started(cluster, &name).await
}

/// Whether it runs; an error if it cannot start.
pub(crate) fn check_running(pod: &Pod, waited: Duration) -> Result<Option<()>> {
    match main_state(pod) {
        PodState::Running => Ok(Some(())),
        PodState::Ended(ended) => Err(failed(&ended.why)),
        PodState::Stuck { reason, message } if reason.contains("Image") => Err(pull_failed(pod, &reason, &message)),
        PodState::Stuck { reason, message } => Err(failed(&format!("{reason}: {message}"))),
        PodState::Unscheduled(Some(why)) if waited > SCHEDULING => {
            Err(Error::Unschedulable { excerpt: Excerpt::from_bytes(why.as_bytes()) })
        }
        PodState::Unscheduled(_) | PodState::Starting => Ok(None),
    }
}

fn failed(why: &str) -> Error {
    Error::Engine { verb: "start", exit: 1, excerpt: Excerpt::from_bytes(why.as_bytes()) }
}

fn pull_failed(pod: &Pod, reason: &str, message: &str) -> Error {
    let containers = pod.spec.iter().flat_map(|it| &it.containers);
    let image = containers.filter(|it| it.name == MAIN).find_map(|it| it.image.clone()).unwrap_or_default();
    let why = format!("{reason}: {message}");
    match ImageRef::parse(image) {
        Ok(image) => Error::PullFailed { image, excerpt: Excerpt::from_bytes(why.as_bytes()) },
        Err(_) => failed(&why),
    }
}

fn no_restart() -> Error {
    Error::Unsupported { engine: EngineKind::Kubernetes, capability: Capability::Restart }
}

async fn mark_started(cluster: &Cluster, name: &str) -> Result<()> {
    let pods = cluster.api::<Pod>().await?;
    let now = jiff::Timestamp::now().to_string();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { STARTED: now } } }));
    let params = PatchParams::default();
    let patched = retry("start", WRITE, || pods.patch(name, &params, &patch)).await?;
    patched.map(drop).map_err(|err| api_error("start", err))
}
