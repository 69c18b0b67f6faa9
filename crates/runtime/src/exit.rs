//! Whether a container has ended, of one whose guest has just fallen silent.

use std::time::Duration;

use crate::{ContainerId, ContainerRuntime, Error, ProcessId};

/// An engine reports the end of a container a moment after its last process ended: a busy one up to a second.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const POLLS: usize = 6;

/// Queries until a first process counts as alive: one that was signalled stops listening before it ends.
const ALIVE_POLLS: usize = 3;

/// The error of a container that does not run any more, or of an engine that is gone. `None` when the container runs.
pub async fn ended(runtime: &dyn ContainerRuntime, id: &ContainerId) -> Option<Error> {
    for look in 1..=POLLS {
        match runtime.inspect(&id.into()).await {
            Err(err @ (Error::NoSuchContainer(_) | Error::Unavailable { .. } | Error::NotConnected { .. })) => {
                return Some(err);
            }
            Ok(it) if !it.running() => return Some(it.not_running()),
            Ok(it) if look >= ALIVE_POLLS && it.pid.and_then(ProcessId::from_pid).is_some() => return None,
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
    None
}
