//! `create_network`: containers that find each other by name.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::egress;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::{NetworkOwner, NewNetwork};
use coracle_types::NetworkName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{Access, check_session};

/// Make a network on which containers find each other by name. Put them on it with `network` of `create`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CreateNetwork {
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a generated name.
    #[schemars(with = "Name")]
    name: NetworkName,
    /// Give the network no way out.
    #[schemars(extend("default" = false))]
    internal: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CreateNetworkResponse {
    network: String,
    network_id: String,
    created: bool,
    internal: bool,
    detail: &'static str,
}

impl Operation for CreateNetwork {
    const NAME: &'static str = "create_network";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<CreateNetworkResponse>;
    type Response = CreateNetworkResponse;

    async fn run(self, cx: &Context) -> Result<CreateNetworkResponse, Failure> {
        let (session, internal) = (cx.call.session.to_string(), self.internal.unwrap_or(false));
        nobodys(cx, &self.name)?;
        if !internal {
            leads_out(cx)?;
        }
        let ready = coracle_prepare::preflight::ensure_ready(cx).await?;
        let new = NewNetwork { name: self.name, owner: NetworkOwner::Session(session), internal };
        let (network, created) = coracle_lifecycle::create_network(&*ready.runtime, &cx.store()?, &new).await?;
        check_session(cx, network.session.as_deref().unwrap_or_default(), &network.name, Access::Use)?;
        let detail = if created { "Created" } else { "It exists already" };
        Ok(CreateNetworkResponse {
            network: network.name,
            network_id: network.id,
            created,
            internal: network.internal,
            detail,
        })
    }
}

/// Prefixes of networks that Coracle creates itself: for one sandbox, and for single containers. They can be guessed, and a
/// network with such a name would block them.
fn nobodys(cx: &Context, name: &NetworkName) -> Result<(), Failure> {
    let prefix = format!("{}-", cx.config.label_namespace);
    if name.as_str().starts_with(&prefix) {
        let message = format!("names that begin with `{prefix}` are for networks that are made by themselves");
        return Err(Failure::invalid("name", message).hint("give it another name"));
    }
    Ok(())
}

/// A bridge with a way out is not made where no container may use it.
fn leads_out(cx: &Context) -> Result<(), Failure> {
    if cx.config.is_strict() {
        let message = "`policy = \"strict\"` gives no container a way out, and this network would be one";
        return Err(Failure::new(Code::PolicyDenied, message)
            .detail("rule", "network.open")
            .detail("setting", "policy")
            .hint("say `internal: true`"));
    }
    egress::open(cx, "and this network would be one").map_err(|failure| failure.hint("say `internal: true`"))
}

impl Render for CreateNetworkResponse {
    fn render(&self, _: Timestamp) -> Document {
        let outcome = match (self.created, self.internal) {
            (true, true) => " created, without a way out",
            (true, false) => " created",
            (false, _) => " was there already",
        };
        Document::line(StyledText::new().name(&self.network).plain(outcome)).timed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_context::Context;
    use coracle_context::config::{Config, NetworkGrant, Preset};
    use coracle_prepare::process::Process;
    use coracle_types::LabelNamespace;
    use serde_json::{Value, json};

    use crate::{CallInput, execute, operations};

    #[tokio::test]
    async fn a_name_that_a_network_of_a_sandbox_could_have_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(dir.path());
        let make = async |cx: &Context, name: &str| {
            let call = json!({ "operation": "create_network", "name": name, "internal": true });
            execute(operations::ALL, &Process::new(cx.clone()), CallInput::Text(call.to_string().into())).await.json
        };
        for name in ["coracle-sbx-0123456789abcdef", "coracle-lone-0a", "coracle-mine"] {
            let refused = make(&cx, name).await;
            assert_eq!((&refused["code"], &refused["details"]["field"]), (&"invalid_input".into(), &"name".into()));
        }
        assert_eq!(make(&cx, "coracle").await["created"], true);
        cx.config =
            Arc::new(Config { label_namespace: LabelNamespace::parse("mine").unwrap(), ..(*cx.config).clone() });
        assert_eq!(make(&cx, "coracle-theirs").await["created"], true);
        assert_eq!(make(&cx, "mine-sbx-0a").await["code"], "invalid_input");
    }

    #[tokio::test]
    async fn a_network_with_a_way_out_is_made_only_where_the_person_allows_one() {
        let dir = tempfile::tempdir().unwrap();
        let usual = Context::for_tests(dir.path());
        let make = async |change: fn(&mut Config), internal: bool| {
            let mut config = (*usual.config).clone();
            change(&mut config);
            let mut cx = usual.clone();
            cx.config = Arc::new(config);
            let call = json!({ "operation": "create_network", "name": "n", "internal": internal });
            let answer = execute(operations::ALL, &Process::new(cx.clone()), CallInput::Text(call.to_string().into()))
                .await
                .json;
            answer.get("details").map_or(Value::Null, |it| it["rule"].clone())
        };
        let closed: fn(&mut Config) = |it| it.security.network = NetworkGrant::Proxy;
        let strict: fn(&mut Config) = |it| it.policy = Preset::Strict;
        for change in [closed, strict] {
            assert_eq!(make(change, false).await, "network.open");
        }
        assert_eq!(make(closed, true).await, Value::Null);
        assert_eq!(make(|_| {}, true).await, Value::Null);
    }
}
