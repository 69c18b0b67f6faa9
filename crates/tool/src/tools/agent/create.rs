//! `create`: the fields that most calls of the operation have. The others are passed on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::AgentTool;
use super::inner_call::InnerCall;
use crate::failure::Failure;

/// Make another container. Your machine needs no call. Example: {"name": "web", "purpose": "node", "ports": [3000]}. More fields:
/// `containers` {"operation": "help", "about": "create"}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
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
    #[serde(flatten)]
    #[schemars(skip)]
    more: Map<String, Value>,
}

impl AgentTool for CreateTool {
    const NAME: &'static str = "create";
    const IS_OPEN: bool = true;

    fn inner_call(self) -> Result<InnerCall, Failure> {
        InnerCall::operation("create", self)
    }
}
