//! What all tools have in common.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, Response, Warning, Workspace};

/// What a tool may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It reads only, and may be called any number of times.
    ReadOnly,
    /// It changes something.
    Mutating,
    /// It removes or replaces something for good: its line of the audit trail is on the disk before it begins.
    Irreversible,
}

/// A further name of a field: it is accepted and not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The further name.
    pub name: &'static str,
    /// The field in whose place it stands.
    pub of: &'static str,
}

/// One tool. Its fields are the arguments, their comments the documentation: schema and command line come from them.
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its name.
    const NAME: &'static str;
    /// What it may do.
    const EFFECT: Effect;
    /// Further names of its fields.
    const ALIASES: &'static [Alias] = &[];
    /// What it answers with.
    type Value: Serialize + JsonSchema + Send;

    /// Carries the call out.
    fn call(self, workspace: &Workspace) -> impl Future<Output = Result<Response<Self::Value>, Box<Failure>>> + Send;

    /// The same, with a failure as a response.
    fn run(self, workspace: &Workspace) -> impl Future<Output = Response<Self::Value>> + Send {
        async { self.call(workspace).await.unwrap_or_else(|failure| Response::failed(*failure)) }
    }

    /// The value as text for a model.
    fn render(answer: &Response<Self::Value>) -> String;
}

/// A text for a model: news stands before the rest, so that one that reads no further has it.
pub fn with_notes(text: &str, warnings: &[Warning]) -> String {
    let news = warnings.iter().map(|it| format!("Note: {}", it.message));
    news.chain([text.to_owned()]).collect::<Vec<_>>().join("\n")
}
