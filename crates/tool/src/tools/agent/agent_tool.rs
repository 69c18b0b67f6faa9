//! A tool that makes another call, as a row of the table.

use coracle_context::config::Toolset;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_workspace::{Alias, Effect};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::inner_call::InnerCall;
use crate::dispatch::{AnswerShape, Audience, OperationEntry, PreparedCall, Problems, SharedFields, read_any};
use crate::schema;

/// A small tool: its fields are its arguments, their comments the documentation that a model pays for.
pub(super) trait AgentTool: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its name.
    const NAME: &'static str;
    /// What it may do.
    const EFFECT: Effect = Effect::Mutating;
    /// Further names of its fields.
    const ALIASES: &'static [Alias] = &[];
    /// It passes on fields that it does not have.
    const IS_OPEN: bool = false;

    /// The call that does it. `args` are its fields, for the audit trail.
    ///
    /// # Errors
    /// `invalid_input` for fields that contradict each other.
    fn inner_call(self, process: &Process, args: Map<String, Value>) -> Result<InnerCall, Failure>;
}

impl OperationEntry {
    /// The row of a tool that makes another call.
    pub(super) const fn agent<T: AgentTool>() -> Self {
        Self {
            name: T::NAME,
            audience: Audience::Agent,
            sets: &[Toolset::Agent],
            effect: T::EFFECT,
            aliases: T::ALIASES,
            shape: AnswerShape::Forwarded { is_open: T::IS_OPEN },
            diagnoses: true,
            arguments: schema::arguments::<T>,
            value: || json!({ "type": "object" }),
            prepare: prepare::<T>,
        }
    }
}

fn prepare<T: AgentTool>(_: &'static str, args: Map<String, Value>) -> Result<PreparedCall, Problems> {
    let tool: T = read_any(args.clone(), SharedFields::NONE)?;
    Ok(Box::new(move |process| Box::pin(async move { tool.inner_call(process, args)?.execute(process).await })))
}
