//! `snapshots`: lists snapshots.

use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes};
use coracle_images::snapshot::SnapshotUse;
use coracle_types::SnapshotName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// List snapshots, with size, age and use.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Snapshots {}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct SnapshotsResponse {
    snapshots: Vec<SnapshotRow>,
    count: usize,
}

#[derive(Debug, JsonSchema, Serialize)]
struct SnapshotRow {
    #[schemars(with = "String")]
    name: SnapshotName,
    image: String,
    image_id: String,
    created: String,
    size_bytes: u64,
    container: String,
    purpose: Option<String>,
    in_use: bool,
}

impl Operation for Snapshots {
    const NAME: &'static str = "snapshots";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<SnapshotsResponse>;
    type Response = SnapshotsResponse;

    async fn run(self, cx: &Context) -> Result<SnapshotsResponse, Failure> {
        let runtime = cx.runtime().await?;
        let mut all = snapshots(cx, &cx.store()?)?.list(&*runtime).await?;
        all.retain(|it| may_use_snapshot(cx, &it.snapshot).is_ok());
        Ok(SnapshotsResponse { count: all.len(), snapshots: all.into_iter().map(snapshot_row).collect() })
    }
}

fn snapshot_row(SnapshotUse { snapshot: it, by }: SnapshotUse) -> SnapshotRow {
    SnapshotRow {
        image: it.reference.to_string(),
        image_id: it.image.id.to_string(),
        created: it.created.to_string(),
        size_bytes: it.image.size_bytes,
        container: it.of.container,
        purpose: it.of.purpose.map(|it| it.to_string()),
        in_use: !by.is_empty(),
        name: it.name,
    }
}

const COLUMNS: [Column; 6] = [
    Column::flexible("SNAPSHOT"),
    Column::flexible("CONTAINER"),
    Column::fixed("PURPOSE").or_left_out(1),
    Column::fixed("SIZE"),
    Column::fixed("CREATED").or_left_out(2),
    Column::fixed("IN USE").or_left_out(3),
];

impl Render for SnapshotsResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &SnapshotRow| {
            let (purpose, in_use) = (it.purpose.clone().unwrap_or_default(), if it.in_use { "yes" } else { "no" });
            let (size, created) = (bytes(it.size_bytes), ago(&it.created, now));
            let (name, container) = (it.name.to_string(), it.container.clone());
            vec![name.into(), container.into(), purpose.into(), size.into(), created.into(), in_use.into()]
        };
        Document::rows(&COLUMNS, &self.snapshots, row, "no snapshots; `coracle snapshot CONTAINER NAME` makes one")
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn snapshots_are_a_table() {
        let snapshot = |name: &str, purpose: Option<&str>, size_bytes, created: &str| SnapshotRow {
            name: SnapshotName::parse(name).unwrap(),
            image: String::new(),
            image_id: String::new(),
            created: created.into(),
            size_bytes,
            container: "web".into(),
            purpose: purpose.map(str::to_owned),
            in_use: purpose.is_some(),
        };
        let snapshots = vec![
            snapshot("base", Some("python"), 1_048_576, "2026-11-21T10:00:00Z"),
            snapshot("fork-012345abcdef", None, 1024, "2026-11-20T12:30:00Z"),
        ];
        assert_snapshot!(rendered(&SnapshotsResponse { snapshots, count: 2 }, "2026-11-21T12:30:00Z"), @r"
        SNAPSHOT           CONTAINER  PURPOSE  SIZE   CREATED   IN USE
        base               web        python   1 MiB  2 h ago   yes
        fork-012345abcdef  web                 1 KiB  24 h ago  no
        ");
        let none = SnapshotsResponse { snapshots: vec![], count: 0 };
        assert!(rendered(&none, "2026-11-21T12:30:00Z").starts_with("no snapshots"));
    }
}
