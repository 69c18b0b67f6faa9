//! `snapshot_delete`: a snapshot goes (containers.md 11.8).

use coracle_runtime::SnapshotName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arg_types::Name;
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::snapshot::{named, snapshots};
use crate::target::may_use_snapshot;

/// Remove a snapshot that no container is made of.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotDelete {
    /// Name of the snapshot.
    #[schemars(with = "Option<Name>")]
    snapshot: Option<SnapshotName>,
    /// Its name: letters, digits, `_`, `.`, `-`. A container without one gets a fresh name.
    #[schemars(with = "Option<Name>")]
    name: Option<SnapshotName>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Deleted {
    snapshot: SnapshotName,
    detail: &'static str,
    reclaimed_bytes: u64,
}

impl Operation for SnapshotDelete {
    const NAME: &'static str = "snapshot_delete";
    type Answer = Deleted;

    async fn run(self, cx: &Context) -> Result<Deleted, Failure> {
        let name = named(self.snapshot, self.name)?;
        let runtime = cx.runtime().await?;
        let snapshots = snapshots(cx, &cx.store()?)?;
        let snapshot = snapshots.find(&*runtime, &name).await?;
        may_use_snapshot(cx, &snapshot)?;
        snapshots.delete(&*runtime, &snapshot).await?;
        Ok(Deleted { snapshot: snapshot.name, detail: "Deleted", reclaimed_bytes: snapshot.own_bytes })
    }
}
