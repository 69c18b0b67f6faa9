//! A snapshot, and the container that it is of.

use coracle_runtime::Image;
use coracle_runtime::labels::SNAPSHOT_NAME;
use coracle_types::{ContainerPath, ImageRef, SnapshotName};
use jiff::Timestamp;

use crate::profile::Purpose;

/// A snapshot of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotImage {
    /// Its name.
    pub name: SnapshotName,
    /// The same as the name of an image.
    pub reference: ImageRef,
    /// As the engine has it.
    pub image: Image,
    /// When it was made.
    pub created: Timestamp,
    /// The container that it is of.
    pub of: SnapshotOrigin,
    /// Bytes that it has beyond what its container was made from.
    pub own_bytes: u64,
}

/// What a snapshot says of the container that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// Its name.
    pub container: String,
    /// What it was made for.
    pub purpose: Option<Purpose>,
    /// The session that the snapshot belongs to.
    pub session: String,
    /// Where commands ran.
    pub workdir: ContainerPath,
    /// The person's working directory was mounted there.
    pub mount_cwd: bool,
}

impl SnapshotOrigin {
    /// The labels that say so, without the namespace.
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
