//! `forward`, `destroy`, and `containers`, which reaches every operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::AgentTool;
use super::help;
use super::inner_call::InnerCall;
use crate::failure::Failure;
use crate::schema::{self, Arguments};

/// Reach a server inside: answers a URL on this host. Example: {"port": 8000}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ForwardTool {
    /// Port inside.
    port: u16,
    /// Else a free one.
    host_port: Option<u16>,
    /// Name; else your machine.
    container: Option<String>,
}

impl AgentTool for ForwardTool {
    const NAME: &'static str = "forward";

    fn inner_call(self) -> Result<InnerCall, Failure> {
        let Self { port, host_port, container } = self;
        let fields = json!({ "container": container, "container_port": port, "host_port": host_port });
        InnerCall::operation("forward", fields)
    }
}

/// Remove a container; unsaved work is saved on the host. Example: {"container": "web"}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct DestroyTool {
    container: String,
}

impl AgentTool for DestroyTool {
    const NAME: &'static str = "destroy";

    fn inner_call(self) -> Result<InnerCall, Failure> {
        InnerCall::operation("destroy", self)
    }
}

/// Everything else: list, copy, snapshot, networks, images, workflows, … `help` lists the operations, and with `about` the
/// fields of one, which stand beside `operation`. Example: {"operation": "help", "about": "fork"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ContainersTool {
    operation: String,
    /// With `help`: an operation.
    about: Option<String>,
    /// Name; else your machine.
    container: Option<String>,
    #[serde(flatten)]
    #[schemars(skip)]
    more: Map<String, Value>,
}

/// Its arguments, with the names of all operations.
pub(super) fn arguments() -> Arguments {
    let mut arguments = schema::arguments::<ContainersTool>();
    if let Some(Value::Object(operation)) = arguments.properties.get_mut("operation") {
        operation.insert("enum".into(), json!(help::names().collect::<Vec<_>>()));
    }
    arguments
}

impl AgentTool for ContainersTool {
    const NAME: &'static str = "containers";
    const IS_OPEN: bool = true;

    fn inner_call(self) -> Result<InnerCall, Failure> {
        let Self { operation, about, container, more: mut fields } = self;
        if operation == help::NAME {
            return match fields.keys().next() {
                None => Ok(InnerCall::Text(help::about(about.as_deref())?)),
                Some(field) => Err(help::unknown_field(field)),
            };
        }
        // A field of this tool that the operation does not have is refused as any other.
        let own = [("about", about), ("container", container)];
        fields.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
        InnerCall::entry(help::find(&operation)?, fields)
    }
}
