//! The arguments of `shell_execute`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::time_limit::TimeLimit;

/// Run one program with its arguments in the workspace, for at most two minutes; nothing keeps running after it. No shell is
/// added: for a shell line give `["sh", "-c", "…"]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shell {
    /// The program and its arguments.
    #[schemars(with = "Vec<String>")]
    pub command: Value,
    /// Directory to run in; without it the root of the workspace.
    pub cwd: Option<String>,
    /// Variables for this command, at most 64.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Text for its standard input, at most 48000 characters.
    pub stdin: Option<String>,
    /// Seconds, or a text such as `90s`, before it and everything it started is ended; at most 120.
    #[schemars(with = "Option<TimeLimit>", extend("default" = 30))]
    pub timeout: Option<Value>,
    /// The same as a number, where more than the maximum counts as the maximum.
    #[schemars(skip)]
    pub timeout_seconds: Option<Value>,
    /// Give back what it prints.
    #[schemars(extend("default" = true))]
    pub capture_output: Option<bool>,
}
