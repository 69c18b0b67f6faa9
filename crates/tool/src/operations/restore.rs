//! `restore`: a container made from a snapshot (containers.md 11.7).

use coracle_runtime::SnapshotName;
use schemars::JsonSchema;

use crate::arg_types::Name;
use crate::context::Context;
use crate::create::{CreateResponse, CreateSource, create};
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::preflight::ensure_ready;
use crate::requests::{SourceArgs, SourceField};
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// Make a container from a snapshot: its files as they were kept, and whatever `create` puts into a container, anew.
/// Without `purpose` it has that of the snapshot; `workdir` and `mount_cwd` are by default those of the container that was
/// kept.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "its field is read by `SourceArgs`; here it is only described")]
pub(crate) struct RestoreRequest {
    /// Name of the snapshot.
    #[schemars(with = "Name")]
    snapshot: SnapshotName,
}

impl SourceField for RestoreRequest {
    const FIELD: &'static str = "snapshot";
    type Value = SnapshotName;
}

impl Operation for SourceArgs<RestoreRequest> {
    const NAME: &'static str = "restore";
    type Response = CreateResponse;

    async fn run(self, cx: &Context) -> Result<CreateResponse, Failure> {
        self.create.check(cx)?;
        let ready = ensure_ready(cx).await?;
        let snapshot = snapshots(cx, &cx.store()?)?.find(&*ready.runtime, &self.origin).await?;
        may_use_snapshot(cx, &snapshot)?;
        create(&self.create, Some(CreateSource::Snapshot(Box::new(snapshot))), cx).await
    }
}
