//! `shell_read`: what a shell printed since it was last read.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{ShellResponse, find};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Read what a shell printed since the last call, without waiting.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellRead {
    /// The shell, from `shell_open`.
    shell: String,
    /// Also the screen as it looks now, for programs that draw on it.
    #[schemars(extend("default" = false))]
    screen: Option<bool>,
}

impl Operation<Process> for ShellRead {
    const NAME: &'static str = "shell_read";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ShellResponse>;
    type Response = ShellResponse;

    async fn run(self, process: &Process) -> Result<ShellResponse, Failure> {
        let shell = find(process, &self.shell)?;
        Ok(ShellResponse::new(self.shell, None, shell.read(self.screen.unwrap_or(false))))
    }
}
