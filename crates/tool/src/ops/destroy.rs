//! `destroy`: one container, with all that only it used.

use std::sync::Arc;

use coracle_lifecycle::{Error, Record, at_hand, reconcile};
use coracle_runtime::{ContainerName, ContainerRuntime, Handle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::args::Name;
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;
use crate::reach::{Act, allowed, reach};

/// Remove a container with all that only it used. A second time succeeds quietly.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Destroy {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// End its processes at once.
    #[expect(dead_code, reason = "no work is saved yet, so nothing is waited for: processes go with their container")]
    #[schemars(extend("default" = false))]
    force: Option<bool>,
}

/// The answer (containers.md 14.3).
#[derive(Debug, Serialize)]
pub(crate) struct Destroyed {
    container: ContainerName,
    detail: &'static str,
    already_gone: bool,
    saved: Vec<String>,
    compose_project: Option<String>,
}

impl Operation for Destroy {
    const NAME: &'static str = "destroy";
    type Answer = Destroyed;

    async fn run(self, cx: &Context) -> Result<Destroyed, Failure> {
        let store = cx.store()?;
        reconcile(cx, &store, cx.config.lifecycle.gone_for.0).await?;
        let (runtime, record) = match reach_to_destroy(cx, &self.container).await {
            Ok(found) => found,
            Err(failure) => {
                let gone = store.destroyed(&self.container).map_err(Error::from)?;
                let unknown = matches!(failure.code, crate::failure::Code::NotFound | crate::failure::Code::NotManaged);
                // One that was ours is gone for good, also when a stranger took its name since.
                return match gone.filter(|_| unknown) {
                    Some(container) => Ok(answer(container, true)),
                    None => Err(failure),
                };
            }
        };
        let done = coracle_lifecycle::destroy(&*runtime, &store, &record).await?;
        record.id.iter().for_each(|id| cx.links().forget(id));
        Ok(answer(record.name, done.already_gone))
    }
}

/// A container whose guest answers is proven ours, and the engine need not be asked once more.
async fn reach_to_destroy(cx: &Context, handle: &Handle) -> Result<(Arc<dyn ContainerRuntime>, Record), Failure> {
    if let Some((record, _)) = at_hand(&cx.store()?, cx.links(), handle).await? {
        allowed(cx, &record.session, record.name.as_str(), Act::Destroy)?;
        return Ok((cx.runtime_for(record.engine, &record.endpoint)?, record));
    }
    let found = reach(cx, handle, Act::Destroy).await?;
    Ok((found.runtime, found.record))
}

fn answer(container: ContainerName, already_gone: bool) -> Destroyed {
    Destroyed { container, detail: "Destroyed", already_gone, saved: Vec::new(), compose_project: None }
}
