//! Snapshots: the files of a container, stored as an image.
//!
//! [`Snapshots::place`] reserves the name, [`SnapshotReservation::take`] commits the image; [`Snapshots::find`],
//! [`list`], [`export`] and [`delete`] operate on existing snapshots.
//!
//! [`list`]: Snapshots::list
//! [`delete`]: Snapshots::delete
//! [`export`]: Snapshots::export
//!
//! **Invariant:** an image without Coracle's signature, or of another kind or name, is no snapshot, whatever its tag.
//! **Invariant:** a snapshot has the environment, the volumes and the command of its container's image.

mod archive;
mod error;
mod image;
mod take;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use coracle_runtime::labels::{SNAPSHOT, SNAPSHOT_NAME, Signer};
use coracle_runtime::{ContainerRuntime, Image, LabelFilter};
use coracle_types::{ContainerPath, EngineKind, ImageRef, SnapshotName};

pub use self::archive::ArchivedSnapshot;
pub use self::error::Error;
pub use self::image::{SnapshotImage, SnapshotOrigin};
pub use self::take::SnapshotReservation;
use crate::base_image;
use crate::profile::Purpose;

/// Signs and locks snapshots. All values from configuration and host are passed in.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// Signs the labels of images.
    pub signer: Signer,
    /// The directory of locks.
    pub locks: PathBuf,
    /// Coracle's version, for the label.
    pub version: String,
}

/// A snapshot, and the containers that were created from it.
#[derive(Clone, Debug)]
pub struct SnapshotUse {
    /// The snapshot.
    pub snapshot: SnapshotImage,
    /// Names of containers.
    pub by: Vec<String>,
}

impl Snapshots {
    /// Returns the image name of a snapshot.
    #[must_use]
    pub fn reference(&self, name: &SnapshotName) -> ImageRef {
        let reference = format!("{}-snapshot:{name}", self.signer.namespace());
        ImageRef::parse(reference).expect("a namespace and a snapshot's name are fit for an image's")
    }

    /// Finds the snapshot of that name.
    ///
    /// # Errors
    /// [`Error::NotFound`] with similar names; [`Error::NotManaged`] if the image is not Coracle's;
    /// [`Error::Engine`].
    pub async fn find(&self, runtime: &dyn ContainerRuntime, name: &SnapshotName) -> Result<SnapshotImage, Error> {
        let Some(image) = self.image(runtime, name).await? else {
            let all = self.all(runtime).await?;
            let near = all.into_iter().map(|it| it.name).filter(|it| it.as_str().eq_ignore_ascii_case(name.as_str()));
            return Err(Error::NotFound { name: name.clone(), near: near.collect() });
        };
        self.read(runtime.kind(), &image, Some(name)).ok_or_else(|| Error::NotManaged(name.clone()))
    }

    /// Lists all snapshots from newest to oldest.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn list(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<SnapshotUse>, Error> {
        let mut all = self.all(runtime).await?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        all.sort_by_key(|it| std::cmp::Reverse(it.created));
        let mut users = base_image::users(runtime).await?;
        let used = |snapshot: SnapshotImage| SnapshotUse {
            by: users.remove(&snapshot.image.id).unwrap_or_default(),
            snapshot,
        };
        Ok(all.into_iter().map(used).collect())
    }

    /// Removes a snapshot, by id.
    ///
    /// # Errors
    /// [`Error::InUse`] while a container of it exists; those of [`find`](Self::find).
    pub async fn delete(&self, runtime: &dyn ContainerRuntime, snapshot: &SnapshotImage) -> Result<(), Error> {
        let by = base_image::users(runtime).await?.remove(&snapshot.image.id).unwrap_or_default();
        if !by.is_empty() {
            return Err(Error::InUse { name: snapshot.name.clone(), by });
        }
        runtime.remove_image(&snapshot.image.id).await?;
        Ok(())
    }

    /// Returns the image with the name, whether it is a snapshot or not.
    async fn image(&self, runtime: &dyn ContainerRuntime, name: &SnapshotName) -> Result<Option<Image>, Error> {
        let names = base_image::names(runtime.kind(), &self.reference(name));
        let mut here = runtime.find_images(&names).await?;
        // A name without a registry may match several images: a snapshot is preferred.
        here.sort_by_key(|it| self.read(runtime.kind(), it, Some(name)).is_none());
        Ok(here.into_iter().next())
    }

    async fn all(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<SnapshotImage>, Error> {
        let ours = LabelFilter(vec![(self.signer.key("kind"), Some(SNAPSHOT.to_owned()))]);
        let here = runtime.list_images(&ours).await?;
        Ok(here.iter().filter_map(|it| self.read(runtime.kind(), it, None)).collect())
    }

    /// Reads a snapshot, if its signature and labels are valid. An image that lost its name to a newer snapshot is
    /// none.
    fn read(&self, engine: EngineKind, image: &Image, name: Option<&SnapshotName>) -> Option<SnapshotImage> {
        let label = |name: &str| image.labels.get(&self.signer.key(name)).map(String::as_str);
        if label("kind") != Some(SNAPSHOT) || !self.signer.verify(engine, &image.labels) {
            return None;
        }
        let own = SnapshotName::parse(label(SNAPSHOT_NAME)?).ok()?;
        let reference = self.reference(&own);
        if name.is_some_and(|it| *it != own) || !image.is_named(&reference) {
            return None;
        }
        let purpose = label("snapshot.purpose").filter(|it| !it.is_empty());
        Some(SnapshotImage {
            created: label("created")?.parse().ok()?,
            of: SnapshotOrigin {
                container: label("snapshot.container")?.to_owned(),
                purpose: purpose.and_then(|it| Purpose::parse(it).ok()),
                session: label("snapshot.session")?.to_owned(),
                workdir: ContainerPath::parse(label("snapshot.workdir")?).ok()?,
                mount_cwd: label("snapshot.mount_cwd")? == "true",
            },
            own_bytes: image.size_bytes.saturating_sub(label("snapshot.base_bytes")?.parse().ok()?),
            name: own,
            reference,
            image: image.clone(),
        })
    }
}
