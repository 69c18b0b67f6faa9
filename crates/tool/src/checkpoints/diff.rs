//! `checkpoint_diff`: what differs between two checkpoints.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render};
use coracle_context::failure::Failure;
use coracle_context::humanize::bytes;
use coracle_runtime::ChangeKind;
use coracle_types::{ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Checkpointed;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::Access;

/// Maximum number of changes in an answer.
const MAX_CHANGES: usize = 1000;

/// List files that differ between two checkpoints.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CheckpointDiff {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Number of a checkpoint, from `timeline`.
    checkpoint: u64,
    /// Number of another checkpoint.
    other_checkpoint: u64,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CheckpointDiffResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    checkpoint: u64,
    other_checkpoint: u64,
    changes: Vec<ChangeRow>,
    count: usize,
    /// Whether there are more changes than are listed.
    truncated: bool,
}

#[derive(Debug, JsonSchema, Serialize)]
struct ChangeRow {
    path: String,
    /// `added`, `changed` or `removed`.
    change: &'static str,
    size_bytes: u64,
}

impl Operation for CheckpointDiff {
    const NAME: &'static str = "checkpoint_diff";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<CheckpointDiffResponse>;
    type Response = CheckpointDiffResponse;

    async fn run(self, cx: &Context) -> Result<CheckpointDiffResponse, Failure> {
        let it = Checkpointed::reach(cx, &self.container, Access::Read).await?;
        let Self { checkpoint, other_checkpoint, .. } = self;
        it.find(checkpoint).await?;
        it.find(other_checkpoint).await?;
        let all = it.checkpoints()?.checkpoint_diff(&it.id, checkpoint, other_checkpoint).await?;
        let count = all.len();
        let row = |it: coracle_runtime::CheckpointChange| ChangeRow {
            path: it.path,
            change: match it.kind {
                ChangeKind::Added => "added",
                ChangeKind::Changed => "changed",
                ChangeKind::Removed => "removed",
            },
            size_bytes: it.bytes,
        };
        let changes = all.into_iter().take(MAX_CHANGES).map(row).collect();
        let (container, truncated) = (it.record.name, count > MAX_CHANGES);
        Ok(CheckpointDiffResponse { container, checkpoint, other_checkpoint, changes, count, truncated })
    }
}

const COLUMNS: [Column; 3] = [Column::fixed("CHANGE"), Column::fixed("SIZE").or_left_out(1), Column::flexible("PATH")];

impl Render for CheckpointDiffResponse {
    fn render(&self, _: Timestamp) -> Document {
        let row = |it: &ChangeRow| vec![it.change.into(), bytes(it.size_bytes).into(), it.path.clone().into()];
        let none = format!("checkpoints {} and {} have the same files", self.checkpoint, self.other_checkpoint);
        let listed = Document::rows(&COLUMNS, &self.changes, row, &none);
        match self.count - self.changes.len() {
            0 => listed,
            more => listed.and_lines([format!("and {more} more").into()]),
        }
    }
}
