//! Takes a stack down, by the labels of its parts.

use std::sync::Arc;
use std::time::Duration;

use coracle_types::{Error, ProjectName, Result};

use super::labels;
use crate::container;
use crate::engine::Engine;
use crate::network::NetworkRecords;
use crate::volume::VolumeRecords;

/// Time between the stop signal and KILL. As with `docker compose down --timeout`, it replaces `stop_grace_period`.
const GRACE: Duration = Duration::from_secs(10);

/// Stops and removes the containers of a project, then its networks and volumes.
///
/// # Errors
/// The first error. The rest is removed nevertheless, and further errors are logged.
pub(crate) async fn down(engine: &Arc<Engine>, project: &ProjectName) -> Result<()> {
    let mut removal = Removal::default();
    let filter = labels::of_project(project);
    let mut stops = tokio::task::JoinSet::new();
    for stored in container::list(engine, &filter)? {
        let engine = Arc::clone(engine);
        stops.spawn(async move {
            let id = stored.config.id;
            // A container that does not stop is killed by the removal.
            let _ = container::stop(&engine, &id, GRACE).await;
            container::remove(&engine, &id).await.map(drop)
        });
    }
    while let Some(stopped) = stops.join_next().await {
        let ended = |err| Error::Host { what: "cannot remove a container".into(), source: std::io::Error::other(err) };
        removal.note(stopped.map_err(ended).flatten());
    }
    let networks = NetworkRecords::new(&engine.directories);
    for network in removal.note(networks.list()).unwrap_or_default() {
        if filter.admits(&network.labels) {
            removal.note(networks.remove(&network.id).await);
        }
    }
    let volumes = VolumeRecords::new(&engine.directories, &engine.privileges);
    // Locked, so that no container that uses one of them is published meanwhile.
    if let Some(_names) = removal.note(container::lock_names(engine, "volume rm").await) {
        for volume in removal.note(volumes.list()).unwrap_or_default() {
            if filter.admits(&volume.labels) {
                removal.note(volumes.remove(&volume.name));
            }
        }
    }
    removal.first_error.map_or(Ok(()), Err)
}

/// A removal of many parts, which continues after an error.
#[derive(Default)]
struct Removal {
    first_error: Option<Error>,
}

impl Removal {
    fn note<T>(&mut self, step: Result<T>) -> Option<T> {
        match step {
            Ok(done) => return Some(done),
            Err(err) if self.first_error.is_none() => self.first_error = Some(err),
            Err(err) => tracing::warn!(%err, "a part of the stack is left"),
        }
        None
    }
}
