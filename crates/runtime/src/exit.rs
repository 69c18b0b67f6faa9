//! Whether a container has ended, of one whose guest has just fallen silent.

use std::time::Duration;

use coracle_types::{ContainerId, Error};

use crate::ContainerRuntime;

/// An engine reports the end of a container some time after its last process has ended, a busy engine up to a second
/// later. An existing first process does not mean that the container continues: after a signal it first stops
/// listening.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const POLLS: usize = 6;

/// The error of a container that does not run any more, or of an engine that is gone. `None` when the container runs.
pub async fn ended(runtime: &dyn ContainerRuntime, id: &ContainerId) -> Option<Error> {
    for _ in 0..POLLS {
        match runtime.inspect(&id.into()).await {
            Err(err @ (Error::NoSuchContainer(_) | Error::Unavailable { .. } | Error::NotConnected { .. })) => {
                return Some(err);
            }
            Ok(it) if !it.running() => return Some(it.not_running()),
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
    None
}
