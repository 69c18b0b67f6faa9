//! From a container to a snapshot.

use std::fs::File;

use coracle_runtime::labels::{SNAPSHOT, SNAPSHOT_NAME};
use coracle_runtime::{Container, ContainerRuntime, Image, ImageCommit, ImageId, RecordId, SnapshotName};
use jiff::Timestamp;

use super::Error;
use super::image::{Of, Snapshot};
use super::settings::Snapshots;
use crate::validate::{OF_ONE_CONTAINER, check_env, check_image, unfit};
use crate::{Progress, lock};

/// A name that is held for a snapshot.
#[derive(Debug)]
pub struct Place<'a> {
    snapshots: &'a Snapshots,
    name: SnapshotName,
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
        (name, replace): (SnapshotName, bool),
        progress: &Progress<'_>,
    ) -> Result<Place<'_>, Error> {
        let path = self.locks.join(format!("snapshot-{name}"));
        let waiting = "another call makes a snapshot of that name; waiting for it";
        let locked = lock::take(&path, waiting, progress).await;
        let what = || format!("lock `{}`", path.display());
        let lock = locked.map_err(|source| crate::Error::State { what: what(), source })?;
        let there = self.image(runtime, &name).await?;
        let ours = there.as_ref().is_none_or(|it| self.read(runtime.kind(), it, Some(&name)).is_some());
        if there.is_some() && !(ours && replace) {
            return Err(Error::Taken { name, ours });
        }
        Ok(Place { snapshots: self, name, old: there.map(|it| it.id), _lock: lock })
    }
}

impl Place<'_> {
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
        (container, of): (&Container, &Of),
        now: Timestamp,
    ) -> Result<Snapshot, Error> {
        let base = runtime.find_images(&[container.image.clone().into()]).await?.into_iter().next();
        let Some(base) = base else { return Ok(unfit("what the container was made from is gone")?) };
        check_env(&container.env, &base)?;
        let labels = self.labels(runtime, (container, &base), (of, now));
        let commit = ImageCommit {
            container: container.id.clone(),
            tag: Some(self.snapshots.reference(&self.name)),
            labels: labels.into_iter().collect(),
            config: base.config.clone(),
        };
        let image = runtime.commit_image(&commit).await?;
        let read = self.snapshots.read(runtime.kind(), &image, Some(&self.name));
        let whole = match read {
            Some(snapshot) => check_image(&image, &base).map(|()| snapshot),
            None => unfit("its labels or its name are not those it was given"),
        };
        match whole {
            Ok(snapshot) => {
                self.drop_old(runtime, &snapshot.image.id).await;
                Ok(snapshot)
            }
            Err(unfit) => {
                runtime.remove_image(&image.id).await?;
                Err(unfit.into())
            }
        }
    }

    /// Labels of the container go along and cannot be taken away: those of ours are signed anew, without what they said
    /// of that container.
    fn labels(
        &self,
        runtime: &dyn ContainerRuntime,
        (container, base): (&Container, &Image),
        (of, now): (&Of, Timestamp),
    ) -> std::collections::BTreeMap<String, String> {
        let signer = &self.snapshots.signer;
        let prefix = signer.key("");
        let mut labels = container.labels.clone();
        labels.retain(|name, _| name.starts_with(&prefix));
        for name in OF_ONE_CONTAINER {
            labels.entry(signer.key(name)).and_modify(String::clear);
        }
        let own = [
            ("managed", "true".to_owned()),
            ("kind", SNAPSHOT.to_owned()),
            ("id", RecordId::random().to_string()),
            ("created", now.to_string()),
            ("version", self.snapshots.version.clone()),
            (SNAPSHOT_NAME, self.name.to_string()),
            ("snapshot.container", of.container.clone()),
            ("snapshot.purpose", of.purpose.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("snapshot.session", of.session.clone()),
            ("snapshot.workdir", of.workdir.to_string()),
            ("snapshot.mount_cwd", of.mount_cwd.to_string()),
            ("snapshot.base_bytes", base.size_bytes.to_string()),
        ];
        labels.extend(own.map(|(name, value)| (signer.key(name), value)));
        signer.sign(runtime.kind(), &mut labels);
        labels
    }

    async fn drop_old(&self, runtime: &dyn ContainerRuntime, new: &ImageId) {
        let Some(old) = self.old.as_ref().filter(|it| *it != new) else { return };
        if let Err(err) = runtime.remove_image(old).await {
            tracing::debug!(image = %old, %err, "a snapshot that lost its name stays");
        }
    }
}
