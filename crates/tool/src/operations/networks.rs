//! `networks`: those that containers share.

use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render};
use coracle_context::failure::Failure;
use coracle_context::humanize::ago;
use coracle_lifecycle::OwnNetwork;
use coracle_types::ProjectName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// List the networks of this session, and those of others that it may see, with the containers on them.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Networks {}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct NetworksResponse {
    networks: Vec<NetworkRow>,
    count: usize,
}

#[derive(Debug, JsonSchema, Serialize)]
struct NetworkRow {
    name: String,
    network_id: String,
    created: String,
    internal: bool,
    session: Option<String>,
    containers: Vec<String>,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
}

impl Operation for Networks {
    const NAME: &'static str = "networks";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<NetworksResponse>;
    type Response = NetworksResponse;

    async fn run(self, cx: &Context) -> Result<NetworksResponse, Failure> {
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &OwnNetwork| all || it.session.as_deref() == Some(cx.call.session.as_str());
        let found = coracle_lifecycle::networks(cx.engines(), &cx.store()?).await?;
        let mut networks: Vec<_> = found.into_iter().filter(seen).map(row).collect();
        networks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(NetworksResponse { count: networks.len(), networks })
    }
}

fn row(it: OwnNetwork) -> NetworkRow {
    NetworkRow {
        name: it.name,
        network_id: it.id,
        created: it.created,
        internal: it.internal,
        session: it.session,
        containers: it.containers,
        compose_project: it.project,
    }
}

const COLUMNS: [Column; 5] = [
    Column::flexible("NETWORK"),
    Column::fixed("INTERNET"),
    Column::flexible("CONTAINERS"),
    Column::fixed("CREATED").or_left_out(1),
    Column::flexible("OWNER").or_left_out(2),
];

impl Render for NetworksResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &NetworkRow| {
            let owner = match &it.compose_project {
                Some(project) => format!("stack {project}"),
                None => it.session.clone().unwrap_or_default(),
            };
            let internet = if it.internal { "no" } else { "yes" };
            let (members, created) = (it.containers.join(", "), ago(&it.created, now));
            vec![it.name.as_str().into(), internet.into(), members.into(), created.into(), owner.into()]
        };
        Document::rows(&COLUMNS, &self.networks, row, "no networks; `coracle create-network NAME` makes one")
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn networks_are_a_table() {
        let network = |name: &str, internal, containers: &[&str], created: &str| NetworkRow {
            name: name.into(),
            network_id: String::new(),
            created: created.into(),
            internal,
            session: Some("default".into()),
            containers: containers.iter().map(|it| (*it).to_owned()).collect(),
            compose_project: None,
        };
        let shop = NetworkRow {
            compose_project: Some(ProjectName::parse("shop").unwrap()),
            ..network("shop_default", true, &[], "2026-11-21T12:29:30Z")
        };
        let networks = vec![network("team", false, &["web", "db"], "2026-11-21T10:00:00Z"), shop];
        assert_snapshot!(rendered(&NetworksResponse { networks, count: 2 }, "2026-11-21T12:30:00Z"), @r"
        NETWORK       INTERNET  CONTAINERS  CREATED   OWNER
        team          yes       web, db     2 h ago   default
        shop_default  no                    just now  stack shop
        ");
        let none = NetworksResponse { networks: vec![], count: 0 };
        assert_snapshot!(rendered(&none, "2026-11-21T12:30:00Z"), @"no networks; `coracle create-network NAME` makes one");
    }
}
