//! `exec_interactive_hint`: how a person gets a terminal in a container.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::{Failure, root_refused};
use coracle_lifecycle::hint;
use coracle_types::{Handle, Ids};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connect_command::connect_command;
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::reach_running;

/// Tell how a person opens a shell in a container.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExecInteractiveHint {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Run as root inside.
    #[schemars(extend("default" = false))]
    as_root: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct InteractiveHintResponse {
    command: String,
    shell: String,
    container: String,
    #[schemars(with = "String")]
    user: Ids,
    coracle_command: String,
}

impl Operation for ExecInteractiveHint {
    const NAME: &'static str = "exec_interactive_hint";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<InteractiveHintResponse>;
    type Response = InteractiveHintResponse;

    async fn run(self, cx: &Context) -> Result<InteractiveHintResponse, Failure> {
        let as_root = self.as_root.unwrap_or(false);
        if as_root && !cx.config.security.allow_root {
            return Err(root_refused("root.exec", "commands as root are not granted"));
        }
        let found = reach_running(cx, &self.container).await?;
        let hint = hint(&found, as_root)?;
        let container = found.record.name.to_string();
        let coracle_command = format!("coracle shell {container}{}", if as_root { " --as-root" } else { "" });
        Ok(InteractiveHintResponse {
            command: connect_command(found.runtime.kind(), &found.record.endpoint, &hint, &coracle_command),
            coracle_command,
            shell: hint.shell,
            user: hint.user,
            container,
        })
    }
}

impl Render for InteractiveHintResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(self.command.as_str())
    }
}
