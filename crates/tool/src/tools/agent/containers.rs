//! `forward`, `undo`, `destroy`, and `containers`, which reaches every operation.

use coracle_context::arg_types::Name;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_types::Handle;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inner_call::{ContainerChoice, InnerCall};
use super::{AgentTool, help};
use crate::checkpoints::Rewind;
use crate::operations::{Destroy, Forward};
use crate::schema::{self, Arguments};

/// Reach a server inside: answers a URL on this host. Example: {"port": 8000}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ForwardTool {
    /// Port inside.
    port: u16,
    /// Else a free one.
    host_port: Option<u16>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

impl AgentTool for ForwardTool {
    const NAME: &'static str = "forward";

    fn inner_call(self, process: &Process, mut args: Map<String, Value>) -> Result<InnerCall, Failure> {
        if let Some(port) = args.remove("port") {
            args.insert("container_port".into(), port);
        }
        let (container, choice) = ContainerChoice::new(process, self.container, &mut args)?;
        let (container_port, host_port) = (self.port, self.host_port);
        let request = Forward { container: Some(container), workflow: None, container_port, host_port };
        Ok(InnerCall::operation(request, choice, args))
    }
}

/// Give a machine the files of its last saved state (before the last command, where each call is saved), or of a checkpoint.
/// Processes end. Example: {}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct UndoTool {
    /// From `timeline` of `containers`.
    checkpoint: Option<u64>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

impl AgentTool for UndoTool {
    const NAME: &'static str = "undo";

    fn inner_call(self, process: &Process, mut args: Map<String, Value>) -> Result<InnerCall, Failure> {
        let (container, choice) = ContainerChoice::new(process, self.container, &mut args)?;
        let request = Rewind { container, checkpoint: self.checkpoint, skip_save: None };
        Ok(InnerCall::operation(request, choice, args))
    }
}

/// Remove a container; unsaved work is saved on the host. Example: {"container": "web"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DestroyTool {
    #[schemars(with = "Name")]
    container: Handle,
}

impl AgentTool for DestroyTool {
    const NAME: &'static str = "destroy";

    fn inner_call(self, _: &Process, args: Map<String, Value>) -> Result<InnerCall, Failure> {
        let request = Destroy { container: self.container, force: None, compose_project: None, discard: None };
        Ok(InnerCall::operation(request, ContainerChoice::Named, args))
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

    fn inner_call(self, process: &Process, _: Map<String, Value>) -> Result<InnerCall, Failure> {
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
        InnerCall::parse(help::find(&operation)?, process, fields)
    }
}
