//! Starts Coracle's own commands in a Pod.

use std::time::Instant;

use coracle_host::drain::{Drain, DrainOutcome};
use coracle_types::{Error, ExecLimits, ExecOutput, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use tokio_util::sync::CancellationToken;

use super::process::PodProcess;
use crate::cluster::Cluster;
use crate::error::{api_error, is_not_found};
use crate::names::MAIN;
use crate::retry::READ;

/// Size of the buffer in each direction.
const BUFFER: usize = 256 << 10;

/// Captured bytes of each output.
const KEEP: usize = 64 << 10;

/// Starts a command in the main container of a Pod.
///
/// # Errors
/// Those of the API server. If the node does not answer, [`Error::NodeLost`].
pub(crate) async fn spawn(cluster: &Cluster, pod: &Pod, argv: &[String], stdin: bool) -> Result<PodProcess> {
    let pods = cluster.api::<Pod>().await?;
    let params = AttachParams::default()
        .container(MAIN)
        .stdin(stdin)
        .stdout(true)
        .stderr(true)
        .max_stdin_buf_size(BUFFER)
        .max_stdout_buf_size(BUFFER)
        .max_stderr_buf_size(BUFFER);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let started = tokio::time::timeout(READ, pods.exec(name, argv, &params)).await;
    let started = started.map_err(|_| Error::TimedOut { verb: "exec", after: READ })?;
    let attached = started.map_err(|err| refused(cluster, pod, "exec", err))?;
    cluster.lost_nodes.forget(node_of(pod));
    Ok(PodProcess::new(attached))
}

/// Converts a refused connection to a Pod. The server does not report which node it could not reach.
pub(crate) fn refused(cluster: &Cluster, pod: &Pod, verb: &'static str, err: kube::Error) -> Error {
    if is_not_found(&err) {
        return Error::NoSuchContainer(pod.metadata.name.clone().unwrap_or_default());
    }
    match api_error(verb, err) {
        Error::NodeLost { reason, .. } => {
            let node = node_of(pod);
            cluster.lost_nodes.add(node);
            Error::NodeLost { node: node.to_owned(), reason }
        }
        err => err,
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or("unknown")
}

/// Runs a short command and waits for it.
pub(crate) async fn run(cluster: &Cluster, pod: &Pod, argv: &[String]) -> Result<ExecOutput> {
    let begun = Instant::now();
    let mut process = spawn(cluster, pod, argv, false).await?;
    let mut drain = Drain::new(&mut process, KEEP, None);
    let limits = ExecLimits { total: Some(READ), ..ExecLimits::default() };
    let end = drain.until_end(&mut process, &limits, &CancellationToken::new()).await;
    if !matches!(end, DrainOutcome::Exited(_)) {
        return Err(Error::TimedOut { verb: "exec", after: READ });
    }
    let outputs = drain.finish(&mut process).await;
    Ok(ExecOutput::plain(end.into(), outputs, None, begun.elapsed()))
}
