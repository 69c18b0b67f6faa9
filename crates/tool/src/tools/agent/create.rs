//! `create`: the fields that most calls of the operation have. The others are passed on.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AgentTool;
use super::help;
use super::inner_call::InnerCall;

/// Make another container. Your machine needs no call. Example: {"name": "web", "purpose": "node", "ports": [3000]}. More fields:
/// `containers` {"operation": "help", "about": "create"}
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "the fields are the schema that a model reads; the operation reads the call")]
pub(super) struct CreateTool {
    name: Option<String>,
    /// `python`, `node`, `bun`, `rust`, `go`, `general`, `browser`, `desktop`, …
    purpose: Option<String>,
    image: Option<String>,
    /// Debian's names.
    packages: Option<Vec<String>>,
    /// URLs to clone.
    #[schemars(with = "Option<Vec<String>>")]
    repos: Option<Value>,
    /// Ports to publish on the host's loopback.
    #[schemars(with = "Option<Vec<u16>>")]
    ports: Option<Value>,
    env: Option<Map<String, Value>>,
    /// Run as root.
    setup_commands: Option<Vec<String>>,
    /// Mount the user's directory at `/workspace`.
    mount_cwd: Option<bool>,
}

impl AgentTool for CreateTool {
    const NAME: &'static str = "create";
    const IS_OPEN: bool = true;

    /// Its fields are those of the operation, which are all read at once.
    fn inner_call(self, process: &Process, args: Map<String, Value>) -> Result<InnerCall, Failure> {
        InnerCall::parse(help::find("create")?, process, args)
    }
}
