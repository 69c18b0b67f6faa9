//! From a container to a snapshot.

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

/// A name that is held for a snapshot.
#[derive(Debug)]
pub struct SnapshotReservation<'a> {
    pub(super) snapshots: &'a Snapshots,
    pub(super) name: SnapshotName,
    /// What has the name, and loses it.
    old: Option<ImageId>,
    _lock: File,
}

impl Snapshots {
    /// Holds a name, so that of two calls one takes it.
    ///
    /// # Errors
    /// [`Error::Taken`] by one of ours without `replace`, and by anything else in any case; [`Error::Engine`].
    pub async fn place(
        &self,
        runtime: &dyn ContainerRuntime,
        name: SnapshotName,
        replace: bool,
        progress: &Progress<'_>,
    ) -> Result<SnapshotReservation<'_>, Error> {
        let waiting = "another call makes a snapshot of that name; waiting for it";
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
    /// Makes the image of a container, which may run, and is paused meanwhile. What had the name before goes, or, while
    /// containers are made of it, loses its name.
    ///
    /// Not safe to abandon: an engine's program that is ended may leave the container paused.
    ///
    /// # Errors
    /// [`crate::Error::Unfit`] when the container has variables that are not those of its image; then nothing is kept.
    /// [`Error::Engine`].
    pub async fn take(
        self,
        runtime: &dyn ContainerRuntime,
        container: &Container,
        of: &SnapshotOrigin,
        now: Timestamp,
    ) -> Result<SnapshotImage, Error> {
        let base = runtime.find_images(&[container.image.clone().into()]).await?.into_iter().next();
        let Some(base) = base else { return Ok(unfit("what the container was made from is gone")?) };
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
            tracing::debug!(image = %old, %err, "a snapshot that lost its name stays");
        }
    }
}
