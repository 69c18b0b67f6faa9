//! Exports snapshots as OCI archives to other hosts and engines, and imports them.
//!
//! **Invariant:** namespace, session and signature in an archive are ignored: an imported snapshot belongs to the
//! importing session, as one that was taken there.

use std::collections::BTreeMap;
use std::fs::File;

use coracle_archive::image::ImageArchive;
use coracle_archive::oci::ImageError;
use coracle_runtime::labels::{SNAPSHOT, SNAPSHOT_NAME};
use coracle_runtime::{ContainerRuntime, Image};
use coracle_types::{ContainerName, ContainerPath, RecordId, SnapshotName};
use jiff::Timestamp;

use super::image::{SnapshotImage, SnapshotOrigin};
use super::{Error, SnapshotReservation, Snapshots};
use crate::base_image::local_name;
use crate::profile::Purpose;
use crate::relabel::{off_thread, relabel};

/// Labels of Coracle that an archive contains. The others concern this host and user.
const TRAVELLING: [&str; 8] = [
    "kind",
    "created",
    "version",
    SNAPSHOT_NAME,
    "snapshot.container",
    "snapshot.purpose",
    "snapshot.workdir",
    "snapshot.mount_cwd",
];

/// Labels by which other tools would take a container of an imported image for their own.
const OF_OTHER_TOOLS: [&str; 3] = ["com.docker.compose.", "io.podman.compose.", "io.podman."];

/// A snapshot in an archive. It is on no engine yet.
#[derive(Debug)]
pub struct ArchivedSnapshot {
    image: ImageArchive,
    /// Its original name.
    pub name: SnapshotName,
    /// The description of its container. The caller sets the session.
    pub of: SnapshotOrigin,
    /// Labels of others.
    labels: BTreeMap<String, String>,
}

impl ArchivedSnapshot {
    /// Reads the description of a snapshot in an archive, for this session.
    ///
    /// # Errors
    /// [`Error::Archive`] for a file that is no OCI archive, [`Error::NoSnapshot`] for another image.
    pub async fn open(file: File, session: String) -> Result<Self, Error> {
        let image = off_thread(move |_| ImageArchive::open(file)).await?;
        let mut labels = image.labels();
        let prefix = namespace(&labels).ok_or(Error::NoSnapshot("it has no labels of a snapshot"))?;
        let label = |name: &str| labels.get(&format!("{prefix}{name}")).map(String::as_str);
        let name = label(SNAPSHOT_NAME).and_then(|it| SnapshotName::parse(it).ok());
        let workdir = label("snapshot.workdir").and_then(|it| ContainerPath::parse(it).ok());
        let container = label("snapshot.container").and_then(|it| ContainerName::parse(it).ok());
        let of = SnapshotOrigin {
            container: container.map_or_else(|| "imported".to_owned(), |it| it.to_string()),
            purpose: label("snapshot.purpose").and_then(|it| Purpose::parse(it).ok()),
            session,
            workdir: workdir.ok_or(Error::NoSnapshot("its work directory is invalid"))?,
            mount_cwd: label("snapshot.mount_cwd") == Some("true"),
        };
        let name = name.ok_or(Error::NoSnapshot("its name is invalid"))?;
        labels.retain(|key, _| !key.starts_with(&prefix));
        Ok(Self { image, name, of, labels })
    }
}

/// The namespace of the labels, with its dot.
fn namespace(labels: &BTreeMap<String, String>) -> Option<String> {
    let prefixes = labels.keys().filter_map(|it| it.strip_suffix(SNAPSHOT_NAME));
    let is_snapshot = |it: &&str| {
        it.len() > 1 && it.ends_with('.') && labels.get(&format!("{it}kind")).map(String::as_str) == Some(SNAPSHOT)
    };
    prefixes.into_iter().find(is_snapshot).map(str::to_owned)
}

impl Snapshots {
    /// Writes a snapshot as an OCI archive. `spool` is an empty file for the engine's export.
    ///
    /// # Errors
    /// [`Error::Archive`] if it cannot be written; [`Error::Engine`].
    pub async fn export(
        &self,
        runtime: &dyn ContainerRuntime,
        snapshot: &SnapshotImage,
        spool: File,
        into: File,
    ) -> Result<(), Error> {
        let handle = spool.try_clone().map_err(ImageError::from)?;
        runtime.save_image(&snapshot.image.id, handle).await?;
        let mut labels = snapshot.image.labels.clone();
        let prefix = self.signer.key("");
        labels.retain(|key, _| key.strip_prefix(&prefix).is_none_or(|it| TRAVELLING.contains(&it)));
        Ok(relabel(spool, &snapshot.reference, labels, into).await?)
    }
}

impl SnapshotReservation<'_> {
    /// Imports a snapshot from an archive. `spool` is an empty file. An earlier image of the name is removed as in
    /// [`take`](Self::take).
    ///
    /// # Errors
    /// [`Error::Archive`] if a layer is damaged; [`Error::Engine`] if the engine refuses it, and
    /// [`crate::Error::Unfit`] if it changed the image.
    pub async fn import(
        self,
        runtime: &dyn ContainerRuntime,
        archived: ArchivedSnapshot,
        spool: File,
        now: Timestamp,
    ) -> Result<SnapshotImage, Error> {
        let ArchivedSnapshot { mut image, of, labels, .. } = archived;
        let (labels, id) = self.labels_of_import(runtime, &of, labels, now);
        image.set_labels(&labels);
        let name = local_name(runtime.kind(), &self.snapshots.reference(&self.name));
        let (written, tag) = (spool.try_clone().map_err(ImageError::from)?, name.to_string());
        off_thread(move |is_cancelled| image.write(&tag, &written, is_cancelled)).await?;
        let loaded = runtime.load_image(spool, &name).await?;
        let is_ours = |it: &Image| it.labels.get(&self.snapshots.signer.key("id")).map(String::as_str) == Some(&*id);
        let read = self.snapshots.read(runtime.kind(), &loaded, Some(&self.name)).filter(|it| is_ours(&it.image));
        let Some(snapshot) = read else {
            runtime.remove_image(&loaded.id).await?;
            return Ok(crate::commit::unfit("its labels or its name differ from the requested ones")?);
        };
        self.drop_old(runtime, &snapshot.image.id).await;
        Ok(snapshot)
    }

    /// Returns the labels of a snapshot that was taken here, signed, with its id.
    fn labels_of_import(
        &self,
        runtime: &dyn ContainerRuntime,
        of: &SnapshotOrigin,
        mut labels: BTreeMap<String, String>,
        now: Timestamp,
    ) -> (BTreeMap<String, String>, String) {
        let (signer, id) = (&self.snapshots.signer, RecordId::random().to_string());
        let prefix = signer.key("");
        labels.retain(|key, _| !key.starts_with(&prefix) && !OF_OTHER_TOOLS.iter().any(|other| key.starts_with(other)));
        let own = [
            ("managed", "true".to_owned()),
            ("kind", SNAPSHOT.to_owned()),
            ("id", id.clone()),
            ("created", now.to_string()),
            ("version", self.snapshots.version.clone()),
            ("snapshot.base_bytes", "0".to_owned()),
        ];
        let described = of.labels(&self.name);
        labels.extend(own.into_iter().chain(described).map(|(name, value)| (signer.key(name), value)));
        signer.sign(runtime.kind(), &mut labels);
        (labels, id)
    }
}
