//! `create_network`: containers that find each other by name (containers.md 12.1).

use coracle_lifecycle::NewNetwork;
use coracle_runtime::NetworkName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::args::Name;
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;
use crate::reach::{Act, allowed};

/// Make a network on which containers find each other by name. Put them on it with `network` of `create`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateNetwork {
    /// Its name: letters, digits, `_`, `.`, `-`. A container without one gets a fresh name.
    #[schemars(with = "Name")]
    name: NetworkName,
    /// Give the network no way out.
    #[schemars(extend("default" = false))]
    internal: Option<bool>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    network: String,
    network_id: String,
    created: bool,
    internal: bool,
    detail: &'static str,
}

impl Operation for CreateNetwork {
    const NAME: &'static str = "create_network";
    type Answer = Made;

    async fn run(self, cx: &Context) -> Result<Made, Failure> {
        let ready = super::preflight::ensure_ready(cx).await?;
        let (session, internal) = (cx.session.to_string(), self.internal.unwrap_or(false));
        let new = NewNetwork { name: self.name, session, internal };
        let (network, created) = coracle_lifecycle::create_network(&*ready.runtime, &cx.store()?, &new).await?;
        allowed(cx, network.session.as_deref().unwrap_or_default(), &network.name, Act::Use)?;
        let detail = if created { "Created" } else { "It exists already" };
        Ok(Made { network: network.name, network_id: network.id, created, internal: network.internal, detail })
    }
}
