//! Takes a stack down, by the labels of its parts.

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{ProjectName, Result};

use super::labels;
use crate::container;
use crate::engine::Engine;
use crate::network::NetworkRecords;
use crate::volume::VolumeRecords;

/// Between the signal and the end of a service.
const GRACE: Duration = Duration::from_secs(10);

/// Stops and removes the containers of a project, then its networks and volumes.
///
/// # Errors
/// The first one; the rest is removed all the same.
pub(crate) async fn down(engine: &Arc<Engine>, project: &ProjectName) -> Result<()> {
    let filter = labels::of_project(project);
    let mut stops = tokio::task::JoinSet::new();
    for stored in container::list(engine, &filter)? {
        let engine = Arc::clone(engine);
        stops.spawn(async move {
            let id = stored.config.id;
            // One that does not stop is killed by the removal.
            let _ = container::stop(&engine, &id, GRACE).await;
            container::remove(&engine, &id).await.map(drop)
        });
    }
    let mut done = Ok(());
    while let Some(stopped) = stops.join_next().await {
        done = done.and(stopped.unwrap_or(Ok(())));
    }
    let networks = NetworkRecords::new(&engine.directories);
    for network in networks.list()?.into_iter().filter(|it| filter.admits(&it.labels)) {
        done = done.and(networks.remove(&network.id).await);
    }
    let volumes = VolumeRecords::new(&engine.directories, &engine.privileges);
    for volume in volumes.list()?.into_iter().filter(|it| filter.admits(&it.labels)) {
        done = done.and(volumes.remove(&volume.name));
    }
    done
}
