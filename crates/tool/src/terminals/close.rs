//! `shell_close`: the end of a shell and of all that it started.

use std::time::Duration;

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{ShellResponse, find};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Close a shell: everything it started is ended. Answers the rest of its output and how its command ended.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellClose {
    /// The shell, from `shell_open`.
    shell: String,
}

/// The guest ends the tree within its grace, and answers; a link that broke answers later.
const CLOSING: Duration = Duration::from_secs(10);

impl Operation<Process> for ShellClose {
    const NAME: &'static str = "shell_close";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<ShellResponse>;
    type Response = ShellResponse;

    async fn run(self, process: &Process) -> Result<ShellResponse, Failure> {
        let shell = find(process, &self.shell)?;
        shell.close(CLOSING).await;
        process.shells().remove(&self.shell);
        Ok(ShellResponse::new(self.shell, None, shell.read(false)))
    }
}
