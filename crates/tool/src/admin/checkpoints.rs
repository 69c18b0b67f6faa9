//! `timeline delete`: removes a checkpoint.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::Failure;
use coracle_types::{ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoints::Checkpointed;
use crate::dispatch::{Effect, Operation};
use crate::target::Access;

/// Remove a checkpoint, for example one with a secret. Others keep their files; the current one cannot be removed.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DeleteCheckpoint {
    /// Its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Number of a checkpoint, from `timeline`.
    checkpoint: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DeleteCheckpointResponse {
    container: ContainerName,
    checkpoint: u64,
}

impl Operation for DeleteCheckpoint {
    const NAME: &'static str = "timeline delete";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = DeleteCheckpointResponse;

    async fn run(self, cx: &Context) -> Result<DeleteCheckpointResponse, Failure> {
        let it = Checkpointed::reach(cx, &self.container, Access::Destroy).await?;
        it.find(self.checkpoint).await?;
        it.checkpoints()?.remove_checkpoint(&it.id, self.checkpoint).await?;
        Ok(DeleteCheckpointResponse { container: it.record.name, checkpoint: self.checkpoint })
    }
}

impl Render for DeleteCheckpointResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(format!("checkpoint {} of {} is removed", self.checkpoint, self.container))
    }
}
