//! `checkpoint`: saves the state of a container's files.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::humanize::{bytes, count};
use coracle_runtime::{CheckpointOutcome, CheckpointRequest};
use coracle_types::{ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Checkpointed;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::Access;

/// Maximum length of a note, in bytes.
const MAX_NOTE: usize = 1024;

/// Save the files of a container, to go back to them with `rewind`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SaveCheckpoint {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Text for `timeline`.
    note: Option<String>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct SaveCheckpointResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    checkpoint: u64,
    /// Whether files have changed since the last checkpoint. Otherwise, `checkpoint` is that one.
    changed: bool,
    changes: u64,
    size_bytes: u64,
    /// Where something is mounted, which is not saved.
    not_covered: Vec<String>,
}

impl Operation for SaveCheckpoint {
    const NAME: &'static str = "checkpoint";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<SaveCheckpointResponse>;
    type Response = SaveCheckpointResponse;

    async fn run(self, cx: &Context) -> Result<SaveCheckpointResponse, Failure> {
        let note = self.note.unwrap_or_default();
        if note.len() > MAX_NOTE {
            let message = format!("`note` has {} bytes; at most {MAX_NOTE} are stored", note.len());
            return Err(Failure::invalid("note", message));
        }
        let it = Checkpointed::reach(cx, &self.container, Access::Snapshot).await?;
        let limits = &cx.config.checkpoints;
        let request = CheckpointRequest {
            note,
            is_step: false,
            max_copied: None,
            max_count: Some(limits.max_count.into()),
            max_bytes: Some(limits.max_bytes.0),
        };
        let saved = it.checkpoints()?.checkpoint(&it.id, &request).await?;
        let (checkpoint, changed, changes, size_bytes) = match saved {
            CheckpointOutcome::Saved(saved) => (saved.number, true, saved.changes, saved.bytes),
            CheckpointOutcome::Unchanged(number) => (number, false, 0, 0),
            CheckpointOutcome::TooLarge => {
                return Err(Failure::internal("a checkpoint without a limit was too large"));
            }
        };
        let Checkpointed { record, not_covered, .. } = it;
        Ok(SaveCheckpointResponse { container: record.name, checkpoint, changed, changes, size_bytes, not_covered })
    }
}

impl Render for SaveCheckpointResponse {
    fn render(&self, _: Timestamp) -> Document {
        let (name, number) = (&self.container, self.checkpoint);
        let line = match self.changed {
            true => format!(
                "checkpoint {number} of {name} is saved: {}, {}",
                count(self.changes, "change", "changes"),
                bytes(self.size_bytes)
            ),
            false => format!("nothing has changed since checkpoint {number} of {name}"),
        };
        Document::line(line)
            .facts([("next", StyledText::from(format!("coracle rewind {name} {number}")))])
            .and_lines(crate::snapshot::without(&self.not_covered))
            .timed()
    }
}
