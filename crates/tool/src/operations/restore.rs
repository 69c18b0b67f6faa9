//! `restore`: a container made from a snapshot.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_prepare::preflight::ensure_ready;
use coracle_prepare::requests::{Create, without_image};
use coracle_types::SnapshotName;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::create::{self, CreateResponse, CreateSource};
use crate::dispatch::{Effect, Operation, SharedFields};
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// Create a container from a snapshot: its files, and everything that `create` puts into a container.
/// Without `purpose` it has that of the snapshot; `workdir` and `mount_cwd` are by default those of the container that was
/// kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(transform = without_image)]
pub(crate) struct Restore {
    /// Name of the snapshot.
    #[schemars(with = "Name")]
    snapshot: SnapshotName,
    #[serde(flatten)]
    create: Create,
}

impl Operation for Restore {
    const NAME: &'static str = "restore";
    const EFFECT: Effect = Effect::Mutating;
    const SHARED: SharedFields = SharedFields::for_type::<Create>();
    const RESULT: fn() -> Value = Create::RESULT;
    type Response = CreateResponse;

    async fn run(self, cx: &Context) -> Result<CreateResponse, Failure> {
        create::check(&self.create, cx)?;
        let ready = ensure_ready(cx).await?;
        let snapshot = snapshots(cx, &cx.store()?)?.find(&*ready.runtime, &self.snapshot).await?;
        may_use_snapshot(cx, &snapshot)?;
        create::create(&self.create, Some(CreateSource::Snapshot(Box::new(snapshot))), cx).await
    }
}
