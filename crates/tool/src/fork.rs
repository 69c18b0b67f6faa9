//! `fork`: a container made from another as that is now.

use std::time::Duration;

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::{Record, RemoveOptions, SavePolicy};
use coracle_prepare::preflight::ensure_ready;
use coracle_prepare::requests::{Create, without_image};
use coracle_types::{Handle, SnapshotName, random_hex};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::checkpoints;
use crate::create::{self, CreateResponse, CreateSource};
use crate::dispatch::{Effect, Operation, SharedFields};
use crate::snapshot::SnapshotSource;
use crate::target::{Access, reach};

/// Make a container from another one as its files are now, or were at a checkpoint; processes do not go with them. The embedded engine copies the
/// files, others make a snapshot that goes with the new container.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(transform = without_image)]
pub(crate) struct Fork {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub(crate) container: Handle,
    /// Number of a checkpoint, from `timeline`.
    pub(crate) checkpoint: Option<u64>,
    #[serde(flatten)]
    pub(crate) create: Create,
}

impl Operation for Fork {
    const NAME: &'static str = "fork";
    const EFFECT: Effect = Effect::Mutating;
    const SHARED: SharedFields = SharedFields::for_type::<Create>();
    const RESULT: fn() -> Value = Create::RESULT;
    type Response = CreateResponse;

    async fn run(self, cx: &Context) -> Result<CreateResponse, Failure> {
        create::check(&self.create, cx)?;
        let ready = ensure_ready(cx).await?;
        let source = SnapshotSource::reach(cx, &self.container).await?.at_checkpoint(self.checkpoint);
        if let Some(number) = self.checkpoint {
            checkpoints::find(&*source.runtime, &source.record, source.id()?, number).await?;
        }
        let (theirs, ours) = (source.runtime.endpoint(), ready.runtime.endpoint());
        if (source.record.engine, theirs.address) != (ready.runtime.kind(), ours.address) {
            let message = format!(
                "`{}` is on {}, and containers are made with {} now",
                source.record.name,
                source.record.engine,
                ready.runtime.kind()
            );
            return Err(Failure::new(Code::Unsupported, message).detail("capability", "fork").hint(format!(
                "`coracle --engine {0} fork`, or `engine = \"{0}\"`, makes it there",
                source.record.engine
            )));
        }
        let name = SnapshotName::parse(format!("fork-{}", random_hex::<6>())).map_err(Failure::internal)?;
        let parent = source.record.clone();
        let made = create::create(&self.create, Some(CreateSource::Fork(Box::new(source), name)), cx).await?;
        if self.checkpoint.is_some() {
            Box::pin(search(cx, &made, &parent)).await?;
        }
        Ok(made)
    }
}

/// Searches the files of a checkpoint for the secrets of the parent: only a container with them can do it. Removes it if
/// there are some.
async fn search(cx: &Context, made: &CreateResponse, parent: &Record) -> Result<(), Failure> {
    let container = Handle::Name(made.container.clone());
    let searched = SnapshotSource::reach(cx, &container).await?.search_secrets_of(cx, parent).await;
    let Err(found) = searched else { return Ok(()) };
    let removed = Box::pin(remove_copy(cx, &container)).await;
    Err(removed.err().unwrap_or(found))
}

/// Removes a copy at once, with all that was done in it. One that is gone is no error.
pub(crate) async fn remove_copy(cx: &Context, copy: &Handle) -> Result<(), Failure> {
    let found = match reach(cx, copy, Access::Destroy).await {
        Err(failure) if failure.code == Code::NotFound => return Ok(()),
        found => found?,
    };
    let options =
        RemoveOptions { links: cx.links(), saving: SavePolicy::Discard, grace: Duration::ZERO, adopted_too: false };
    coracle_lifecycle::destroy(&*found.runtime, &cx.store()?, &found.record, &options).await?;
    Ok(())
}
