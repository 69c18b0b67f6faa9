//! `networks`: those that containers share (containers.md 12.3).

use coracle_lifecycle::OwnNetwork;
use coracle_runtime::ProjectName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::CrossSession;
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;

/// List the networks of this session, and those of others that it may see, with the containers on them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Networks {}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    networks: Vec<Row>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    network_id: String,
    created: String,
    internal: bool,
    session: Option<String>,
    containers: Vec<String>,
    compose_project: Option<ProjectName>,
}

impl Operation for Networks {
    const NAME: &'static str = "networks";
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, cx: &Context) -> Result<Listing, Failure> {
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &OwnNetwork| all || it.session.as_deref() == Some(cx.call.session.as_str());
        let found = coracle_lifecycle::networks(cx.engines(), &cx.store()?).await?;
        let mut networks: Vec<_> = found.into_iter().filter(seen).map(row).collect();
        networks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Listing { count: networks.len(), networks })
    }
}

fn row(it: OwnNetwork) -> Row {
    Row {
        name: it.name,
        network_id: it.id,
        created: it.created,
        internal: it.internal,
        session: it.session,
        containers: it.containers,
        compose_project: it.project,
    }
}
