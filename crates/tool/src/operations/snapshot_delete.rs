//! `snapshot_delete`: removes a snapshot.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::humanize::bytes;
use coracle_types::SnapshotName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::snapshot::{named, snapshots};
use crate::target::may_use_snapshot;

/// Remove a snapshot that no container is made of.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SnapshotDelete {
    /// Name of the snapshot.
    #[schemars(with = "Option<Name>")]
    snapshot: Option<SnapshotName>,
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a generated name.
    #[schemars(with = "Option<Name>")]
    name: Option<SnapshotName>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct SnapshotDeleteResponse {
    #[schemars(with = "String")]
    snapshot: SnapshotName,
    detail: &'static str,
    reclaimed_bytes: u64,
}

impl Operation for SnapshotDelete {
    const NAME: &'static str = "snapshot_delete";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<SnapshotDeleteResponse>;
    type Response = SnapshotDeleteResponse;

    async fn run(self, cx: &Context) -> Result<SnapshotDeleteResponse, Failure> {
        let name = named(self.snapshot, self.name)?;
        let runtime = cx.runtime().await?;
        let snapshots = snapshots(cx, &cx.store()?)?;
        let snapshot = snapshots.find(&*runtime, &name).await?;
        may_use_snapshot(cx, &snapshot)?;
        snapshots.delete(&*runtime, &snapshot).await?;
        Ok(SnapshotDeleteResponse { snapshot: snapshot.name, detail: "Deleted", reclaimed_bytes: snapshot.own_bytes })
    }
}

impl Render for SnapshotDeleteResponse {
    fn render(&self, _: Timestamp) -> Document {
        let freed = bytes(self.reclaimed_bytes);
        Document::line(StyledText::new().name(&self.snapshot).plain(format!(" deleted, {freed} of its own"))).timed()
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;

    use super::*;

    #[test]
    fn a_deletion_says_what_it_freed() {
        let snapshot = SnapshotName::parse("base").unwrap();
        let deleted = SnapshotDeleteResponse { snapshot, detail: "Deleted", reclaimed_bytes: 2048 };
        assert_eq!(rendered(&deleted, "2026-11-21T12:30:00Z"), "base deleted, 2 KiB of its own");
    }
}
