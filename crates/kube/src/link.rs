//! The connection to a container's guest: `connect`, run by one exec that stays open.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Mounts, Transport};
use coracle_host::drain::ProgramPipe;
use coracle_protocol::{MountIdentity, SOCKET_GONE, paths};
use coracle_types::{Capture, ContainerId, Error, Excerpt, Result};
use k8s_openapi::api::core::v1::Pod;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::exec::spawn;
use crate::find::find_pod;
use crate::pod::{PodState, container_of, main_state, node_lost};
use crate::wait::{END_REPORT_TIMEOUT, POLL_INTERVAL};
use crate::watchdog::WatchedProcess;

/// Captured bytes of error output; its end is reported.
const MAX_STDERR: usize = 64 << 10;

pub(crate) fn link(cluster: &Arc<Cluster>, id: &ContainerId, settings: LinkSettings) -> Link {
    Link::new(Arc::new(ExecDial { cluster: Arc::clone(cluster), id: id.clone() }), settings)
}

#[derive(Debug)]
struct ExecDial {
    cluster: Arc<Cluster>,
    id: ContainerId,
}

#[async_trait]
impl Dial for ExecDial {
    async fn dial(&self) -> Result<GuestStream> {
        let pod = find_pod(&self.cluster, &(&self.id).into()).await?;
        if let PodState::Ended(_) = main_state(&pod) {
            return Err(ended(&pod));
        }
        if let Some(lost) = node_lost(&pod) {
            return Err(lost);
        }
        let argv = [paths::PROGRAM, "connect"].map(str::to_owned);
        let mut process = match spawn(&self.cluster, &pod, &argv, true).await {
            // A node refuses a command in a container that has just ended before it reports the end.
            Err(err @ Error::Engine { .. }) => return Err(self.diagnose(err).await),
            started => started?,
        };
        let (stdin, (stdout, stderr)) = (process.stdin(), process.outputs());
        let (Some(writer), Some(reader)) = (stdin, stdout) else {
            return Err(Error::GuestFailed { reason: "the exec has no streams".into() });
        };
        Ok(GuestStream {
            error_output: stderr.map(|it| tokio::spawn(complaints(it))),
            hold: Box::new(WatchedProcess::new(Arc::clone(&self.cluster), &pod, process)),
            ..GuestStream::plain(reader, writer, Transport::Stream)
        })
    }

    async fn diagnose(&self, failure: Error) -> Error {
        if let Error::GuestFailed { reason } = &failure
            && reason.contains(SOCKET_GONE)
        {
            return Error::FilesRemoved { missing: "the socket of the guest was removed".into() };
        }
        let deadline = Instant::now() + END_REPORT_TIMEOUT;
        loop {
            if let Some(cause) = self.cause().await {
                return cause;
            }
            if Instant::now() >= deadline {
                return failure;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(self)
    }
}

/// A Pod mounts no directory of this host.
#[async_trait]
impl Mounts for ExecDial {
    async fn expected(&self) -> Result<Vec<MountIdentity>> {
        Ok(Vec::new())
    }

    async fn end_container(&self) {}
}

impl ExecDial {
    /// Returns the state of a container whose guest does not answer; none if it runs.
    async fn cause(&self) -> Option<Error> {
        match find_pod(&self.cluster, &(&self.id).into()).await {
            Err(err @ (Error::NoSuchContainer(_) | Error::Unavailable { .. })) => Some(err),
            Ok(pod) if matches!(main_state(&pod), PodState::Ended(_)) => Some(ended(&pod)),
            Ok(pod) => node_lost(&pod),
            Err(_) => None,
        }
    }
}

fn ended(pod: &Pod) -> Error {
    match container_of(pod) {
        Ok(it) => it.not_running(),
        Err(err) => err,
    }
}

async fn complaints(mut pipe: ProgramPipe) -> String {
    let (mut capture, mut buffer) = (Capture::new(MAX_STDERR), vec![0; 4 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        capture.push(&buffer[..count]);
    }
    Excerpt::from_bytes(&capture.bytes()).to_string()
}
