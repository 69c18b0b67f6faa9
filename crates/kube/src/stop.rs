//! Ends the processes of a container, whose Pod stays.

use std::time::Duration;

use coracle_types::{ContainerId, ContainerStatus, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::api_error;
use crate::exec::run;
use crate::find::find_pod;
use crate::pod::{PodState, STOP_DEADLINE, main_state, status};
use crate::retry::{WRITE, retry};
use crate::wait::{PodWait, wait_for};

/// How late a node may report an end, beyond the grace.
const REPORT: Duration = Duration::from_secs(5);

/// Time for a node to end a Pod after its deadline: TERM, ten seconds of grace, KILL.
const DEADLINE: Duration = Duration::from_secs(30);

const TERM: [&str; 3] = ["/bin/sh", "-c", "kill -TERM 1"];

/// Sends TERM from inside, then sets the Pod's deadline: there is no other way to end a Pod without deleting it.
pub(crate) async fn stop(cluster: &Cluster, id: &ContainerId, grace: Duration) -> Result<()> {
    let pod = find_pod(cluster, &id.into()).await?;
    if status(&pod) != ContainerStatus::Running {
        return Ok(());
    }
    let name = pod.metadata.name.clone().unwrap_or_default();
    let ended = |within| {
        let wait = PodWait { verb: "stop", pod: &name, uid: pod.metadata.uid.as_deref(), within };
        wait_for(cluster, wait, |pod| Ok(matches!(main_state(pod), PodState::Ended(_)).then_some(())))
    };
    let signalled = match grace.is_zero() {
        true => false,
        false => run(cluster, &pod, &TERM.map(str::to_owned)).await.is_ok(),
    };
    if signalled && ended(grace + REPORT).await.is_ok() {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": STOP_DEADLINE } }));
    let (pods, params) = (cluster.api::<Pod>().await?, PatchParams::default());
    retry("stop", WRITE, || pods.patch(&name, &params, &patch)).await?.map_err(|err| api_error("stop", err))?;
    ended(DEADLINE).await
}
