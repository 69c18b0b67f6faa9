//! `timeline`: lists the checkpoints of a container.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes};
use coracle_types::{ContainerName, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Checkpointed;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::Access;

/// List the checkpoints of a container.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Timeline {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct TimelineResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    checkpoints: Vec<CheckpointRow>,
    count: usize,
}

#[derive(Debug, JsonSchema, Serialize)]
struct CheckpointRow {
    checkpoint: u64,
    /// The one that its changes are relative to.
    parent: Option<u64>,
    created: String,
    note: String,
    changes: u64,
    size_bytes: u64,
    /// Whether the container continues from this one.
    current: bool,
}

impl Operation for Timeline {
    const NAME: &'static str = "timeline";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<TimelineResponse>;
    type Response = TimelineResponse;

    async fn run(self, cx: &Context) -> Result<TimelineResponse, Failure> {
        let it = Checkpointed::reach(cx, &self.container, Access::Read).await?;
        let all = it.checkpoints()?.checkpoints(&it.id).await?;
        let row = |it: coracle_runtime::Checkpoint| CheckpointRow {
            checkpoint: it.number,
            parent: it.parent,
            created: Timestamp::try_from(it.created).unwrap_or_default().to_string(),
            note: it.note,
            changes: it.changes,
            size_bytes: it.bytes,
            current: it.is_current,
        };
        let checkpoints: Vec<_> = all.into_iter().map(row).collect();
        Ok(TimelineResponse { container: it.record.name, count: checkpoints.len(), checkpoints })
    }
}

const COLUMNS: [Column; 6] = [
    Column::fixed(""),
    Column::fixed("CHECKPOINT"),
    Column::fixed("SAVED"),
    Column::fixed("CHANGES"),
    Column::fixed("SIZE").or_left_out(1),
    Column::flexible("NOTE"),
];

impl Render for TimelineResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &CheckpointRow| {
            let mark = if it.current { "*" } else { "" };
            // A reader sees where a branch begins.
            let follows = it.parent.is_none_or(|parent| parent + 1 == it.checkpoint);
            let number = match it.parent {
                Some(parent) if !follows => format!("{} after {parent}", it.checkpoint),
                _ => it.checkpoint.to_string(),
            };
            vec![
                mark.into(),
                number.into(),
                ago(&it.created, now).into(),
                it.changes.to_string().into(),
                bytes(it.size_bytes).into(),
                it.note.clone().into(),
            ]
        };
        let none = format!("no checkpoints; `coracle checkpoint {}` saves one", self.container);
        Document::rows(&COLUMNS, &self.checkpoints, row, &none)
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_timeline_shows_the_current_checkpoint_and_where_branches_begin() {
        let row = |checkpoint, parent, changes, note: &str| CheckpointRow {
            checkpoint,
            parent,
            created: format!("2026-11-21T12:0{checkpoint}:00Z"),
            note: note.into(),
            changes,
            size_bytes: changes * 4096,
            current: checkpoint == 3,
        };
        let checkpoints = vec![row(1, None, 12, "tests pass"), row(2, Some(1), 340, ""), row(3, Some(1), 1, "again")];
        let container = ContainerName::parse("web").unwrap();
        let timeline = TimelineResponse { container: container.clone(), checkpoints, count: 3 };
        assert_snapshot!(rendered(&timeline, "2026-11-21T12:30:00Z"), @r"
           CHECKPOINT  SAVED       CHANGES  SIZE     NOTE
           1           29 min ago  12       48 KiB   tests pass
           2           28 min ago  340      1.3 MiB
        *  3 after 1   27 min ago  1        4 KiB    again
        ");
        let none = TimelineResponse { container, checkpoints: vec![], count: 0 };
        assert_snapshot!(rendered(&none, "2026-11-21T12:30:00Z"), @"no checkpoints; `coracle checkpoint web` saves one");
    }
}
