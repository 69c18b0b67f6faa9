//! `snapshots`: what was kept (containers.md 11.8).

use coracle_images::snapshot::Used;
use coracle_runtime::SnapshotName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// List the snapshots there are, with size, age and use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshots {}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    snapshots: Vec<Listed>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct Listed {
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
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, cx: &Context) -> Result<Listing, Failure> {
        let runtime = cx.runtime().await?;
        let mut all = snapshots(cx, &cx.store()?)?.list(&*runtime).await?;
        all.retain(|it| may_use_snapshot(cx, &it.snapshot).is_ok());
        Ok(Listing { count: all.len(), snapshots: all.into_iter().map(listed).collect() })
    }
}

fn listed(Used { snapshot: it, by }: Used) -> Listed {
    Listed {
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
