//! `destroy_network`: removes an unused network.

use std::sync::Arc;

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::suggest;
use coracle_lifecycle::{Engines, Error, OwnNetwork, Store, find_network};
use coracle_runtime::ContainerRuntime;
use coracle_types::NetworkName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{Access, check_session};

/// Remove a network that no container is on. A second time succeeds quietly.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DestroyNetwork {
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a generated name.
    #[schemars(with = "Name")]
    name: NetworkName,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct DestroyNetworkResponse {
    network: String,
    removed: bool,
    detail: &'static str,
}

impl Operation for DestroyNetwork {
    const NAME: &'static str = "destroy_network";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<DestroyNetworkResponse>;
    type Response = DestroyNetworkResponse;

    async fn run(self, cx: &Context) -> Result<DestroyNetworkResponse, Failure> {
        let store = cx.store()?;
        let network = self.name.to_string();
        let Some((runtime, found)) = reach(cx, &store, &self.name).await? else {
            return match store.network_destroyed(&self.name).map_err(Error::from)? {
                true => Ok(DestroyNetworkResponse { network, removed: false, detail: "It was gone already" }),
                false => {
                    let known = coracle_lifecycle::networks(cx.engines(), &store).await.unwrap_or_default();
                    let seen = |it: &OwnNetwork| {
                        let session = it.session.as_deref().unwrap_or_default();
                        check_session(cx, session, &it.name, Access::Read).is_ok()
                    };
                    let known: Vec<String> = known.into_iter().filter(seen).map(|it| it.name).collect();
                    let hint = suggest::hint(&network, &known, "`networks` shows the networks there are");
                    Err(Failure::not_found("network", &network, &[]).detail("near", known).hint(hint))
                }
            };
        };
        check_session(cx, found.session.as_deref().unwrap_or_default(), &network, Access::Destroy)?;
        coracle_lifecycle::destroy_network(&*runtime, &store, &found).await?;
        Ok(DestroyNetworkResponse { network, removed: true, detail: "Removed" })
    }
}

/// Searches on the engine for new containers, then on all others with managed objects.
async fn reach(
    cx: &Context,
    store: &Store,
    name: &NetworkName,
) -> Result<Option<(Arc<dyn ContainerRuntime>, OwnNetwork)>, Failure> {
    let preferred = cx.engines().preferred().await?;
    if let Some(found) = find_network(&*preferred, store, name).await? {
        return Ok(Some((preferred, found)));
    }
    for record in store.records().map_err(Error::from)? {
        let runtime = cx.engines().for_record(record.engine, &record.endpoint).await?;
        if runtime.kind() == preferred.kind() && runtime.endpoint() == preferred.endpoint() {
            continue;
        }
        if let Some(found) = find_network(&*runtime, store, name).await? {
            return Ok(Some((runtime, found)));
        }
    }
    Ok(None)
}

impl Render for DestroyNetworkResponse {
    fn render(&self, _: Timestamp) -> Document {
        let outcome = if self.removed { " removed" } else { " was gone already" };
        Document::line(StyledText::new().name(&self.network).plain(outcome)).timed()
    }
}
