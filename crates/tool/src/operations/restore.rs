//! `restore`: a container made from a snapshot (containers.md 11.7).

use coracle_runtime::SnapshotName;
use schemars::JsonSchema;

use crate::arg_types::Name;
use crate::context::Context;
use crate::create::{CreateResponse, Origin, create};
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::preflight::ensure_ready;
use crate::requests::{OriginField, WithOrigin};
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// Make a container from a snapshot: its files as they were kept, and whatever `create` puts into a container, anew.
/// Without `purpose` it has that of the snapshot; `workdir` and `mount_cwd` are by default those of the container that was
/// kept.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "its field is read by `WithOrigin`; here it is only described")]
pub(crate) struct OfSnapshot {
    /// Name of the snapshot.
    #[schemars(with = "Name")]
    snapshot: SnapshotName,
}

impl OriginField for OfSnapshot {
    const FIELD: &'static str = "snapshot";
    type Value = SnapshotName;
}

impl Operation for WithOrigin<OfSnapshot> {
    const NAME: &'static str = "restore";
    type Response = CreateResponse;

    async fn run(self, cx: &Context) -> Result<CreateResponse, Failure> {
        self.create.check(cx)?;
        let ready = ensure_ready(cx).await?;
        let snapshot = snapshots(cx, &cx.store()?)?.find(&*ready.runtime, &self.origin).await?;
        may_use_snapshot(cx, &snapshot)?;
        create(&self.create, Some(Origin::Snapshot(Box::new(snapshot))), cx).await
    }
}
