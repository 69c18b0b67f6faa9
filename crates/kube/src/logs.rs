//! The output of a container's PID 1.

use coracle_types::{ContainerId, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;

use crate::cluster::Cluster;
use crate::exec::refused;
use crate::find::find_pod;
use crate::names::MAIN;
use crate::retry::{READ, retry};

/// Number of requested lines: the API can only limit bytes from the beginning.
const LINES: i64 = 5000;

/// Returns the last bytes of its output, both streams in one.
pub(crate) async fn logs(cluster: &Cluster, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
    let pod = find_pod(cluster, &id.into()).await?;
    let name = pod.metadata.name.clone().unwrap_or_default();
    let params = LogParams { container: Some(MAIN.into()), tail_lines: Some(LINES), ..LogParams::default() };
    let pods = cluster.api::<Pod>().await?;
    let text =
        retry("logs", READ, || pods.logs(&name, &params)).await?.map_err(|err| refused(cluster, &pod, "logs", err))?;
    let bytes = text.into_bytes();
    Ok(bytes[bytes.len().saturating_sub(max_bytes)..].to_vec())
}
