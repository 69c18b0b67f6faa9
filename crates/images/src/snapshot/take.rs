//! Takes a snapshot of a container.

use std::fs::File;

use coracle_runtime::labels::SNAPSHOT;
use coracle_runtime::{Container, ContainerRuntime, Image};
use coracle_types::{ImageId, SnapshotName};
use jiff::Timestamp;

use super::image::{SnapshotImage, SnapshotOrigin};
use super::{Error, Snapshots};
use crate::Progress;
use crate::commit::{Commit, unfit};
use crate::lock::lock;

/// A name that is locked for a snapshot.
#[derive(Debug)]
pub struct SnapshotReservation<'a> {
    pub(super) snapshots: &'a Snapshots,
    pub(super) name: SnapshotName,
    /// The image that has the name, and loses it.
    old: Option<ImageId>,
    _lock: File,
}

impl Snapshots {
    /// Locks a name, so that only one of two calls takes it.
    ///
    /// # Errors
    /// [`Error::Taken`] by a snapshot without `replace`, and by any other image; [`Error::Engine`].
    pub async fn place(
        &self,
        runtime: &dyn ContainerRuntime,
        name: SnapshotName,
        replace: bool,
        progress: &Progress<'_>,
    ) -> Result<SnapshotReservation<'_>, Error> {
        let waiting = "another call takes a snapshot of that name; waiting for it";
        let lock = lock(&self.locks.join(format!("snapshot-{name}")), waiting, progress).await?;
        let there = self.image(runtime, &name).await?;
        let ours = there.as_ref().is_none_or(|it| self.read(runtime.kind(), it, Some(&name)).is_some());
        if there.is_some() && !(ours && replace) {
            return Err(Error::Taken { name, ours });
        }
        Ok(SnapshotReservation { snapshots: self, name, old: there.map(|it| it.id), _lock: lock })
    }
}

impl SnapshotReservation<'_> {
    /// Commits the image of a container, which may be running and is paused meanwhile. An earlier image of the name is
    /// removed, or, while containers of it exist, only loses its name.
    ///
    /// Not safe to abandon: the container may stay paused if an engine's program is killed.
    ///
    /// # Errors
    /// [`crate::Error::Unfit`] if the container has variables that are not those of its image; the image is then
    /// removed.
    /// [`Error::Engine`].
    pub async fn take(
        self,
        runtime: &dyn ContainerRuntime,
        container: &Container,
        of: &SnapshotOrigin,
        now: Timestamp,
    ) -> Result<SnapshotImage, Error> {
        let base = runtime.find_images(&[container.image.clone().into()]).await?.into_iter().next();
        let Some(base) = base else { return Ok(unfit("the image of the container was removed")?) };
        let commit = Commit {
            signer: &self.snapshots.signer,
            container,
            base: &base,
            tag: self.snapshots.reference(&self.name),
            kind: SNAPSHOT,
            created: now.to_string(),
            version: &self.snapshots.version,
        };
        let labels = of.labels(&self.name).into_iter().chain([("snapshot.base_bytes", base.size_bytes.to_string())]);
        let read = |image: &Image| self.snapshots.read(runtime.kind(), image, Some(&self.name));
        let snapshot = commit.run(runtime, labels, read).await?;
        self.drop_old(runtime, &snapshot.image.id).await;
        Ok(snapshot)
    }

    pub(super) async fn drop_old(&self, runtime: &dyn ContainerRuntime, new: &ImageId) {
        let Some(old) = self.old.as_ref().filter(|it| *it != new) else { return };
        if let Err(err) = runtime.remove_image(old).await {
            tracing::debug!(image = %old, %err, "cannot remove a snapshot that lost its name");
        }
    }
}
