//! A snapshot, and the container that it was taken of.

use coracle_runtime::Image;
use coracle_runtime::labels::SNAPSHOT_NAME;
use coracle_types::{ContainerPath, ImageRef, SnapshotName};
use jiff::Timestamp;

use crate::profile::Purpose;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotImage {
    /// Its name.
    pub name: SnapshotName,
    /// Its name as an image.
    pub reference: ImageRef,
    /// The engine's description of it.
    pub image: Image,
    /// When it was taken.
    pub created: Timestamp,
    /// Its container.
    pub of: SnapshotOrigin,
    /// Its size beyond the image of its container.
    pub own_bytes: u64,
}

/// The container of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// Its name.
    pub container: String,
    /// Its purpose.
    pub purpose: Option<Purpose>,
    /// The session that the snapshot belongs to.
    pub session: String,
    /// The work directory.
    pub workdir: ContainerPath,
    /// The user's working directory was mounted there.
    pub mount_cwd: bool,
}

impl SnapshotOrigin {
    /// Renders the labels, without the namespace.
    pub(super) fn labels(&self, name: &SnapshotName) -> [(&'static str, String); 6] {
        [
            (SNAPSHOT_NAME, name.to_string()),
            ("snapshot.container", self.container.clone()),
            ("snapshot.purpose", self.purpose.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("snapshot.session", self.session.clone()),
            ("snapshot.workdir", self.workdir.to_string()),
            ("snapshot.mount_cwd", self.mount_cwd.to_string()),
        ]
    }
}
