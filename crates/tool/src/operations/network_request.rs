//! `network_request`: an agent requests a rule of its container's proxy from the user.

use coracle_context::arg_types::Name;
use coracle_context::container_proxy;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::{Code, Failure};
use coracle_types::Handle;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{Access, reach};

/// Request a rule of a container's proxy from the user.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct NetworkRequest {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name", extend("x-first" = true))]
    container: Handle,
    /// As a refusal names it.
    rule: String,
    /// Why.
    reason: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct NetworkRequestResponse {
    container: String,
    rule: String,
    /// `allowed`; or `pending`: not allowed, as long as the user does not decide otherwise.
    state: RequestedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum RequestedState {
    Allowed,
    Pending,
}

/// Maximum length of a rule in bytes.
const MAX_RULE: usize = 300;

/// Maximum length of a reason in bytes.
const MAX_REASON: usize = 500;

impl Operation for NetworkRequest {
    const NAME: &'static str = "network_request";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<NetworkRequestResponse>;
    type Response = NetworkRequestResponse;

    async fn run(self, cx: &Context) -> Result<NetworkRequestResponse, Failure> {
        let limits = [("rule", &self.rule, MAX_RULE), ("reason", &self.reason, MAX_REASON)];
        if let Some((field, _, most)) = limits.into_iter().find(|(_, text, most)| text.is_empty() || text.len() > *most)
        {
            return Err(Failure::invalid(field, format!("1 to {most} bytes")));
        }
        let found = reach(cx, &self.container, Access::Use).await?;
        let record = &found.record;
        if !record.proxied {
            let message = format!("the network of `{}` has no rules", record.name);
            return Err(Failure::new(Code::InvalidInput, message).detail("field", "container"));
        }
        let is_allowed = cx.unless_cancelled(container_proxy::request(cx, record, &self.rule, &self.reason)).await?;
        let state = if is_allowed { RequestedState::Allowed } else { RequestedState::Pending };
        Ok(NetworkRequestResponse { container: record.name.to_string(), rule: self.rule, state })
    }
}

impl Render for NetworkRequestResponse {
    fn render(&self, _: Timestamp) -> Document {
        let line = match self.state {
            RequestedState::Allowed => format!("{}: the user allowed {}", self.container, self.rule),
            RequestedState::Pending => {
                format!("{}: the user has not allowed {}; `coracle approvals` lists it", self.container, self.rule)
            }
        };
        Document::default().and_lines([line.into()])
    }
}
