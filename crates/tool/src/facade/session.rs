//! How calls of a program are executed.

use std::any::Any;

use coracle_context::document::Render;
use coracle_context::failure::{Code, Failure};
use coracle_context::progress::Progress;
use coracle_context::warning::Warning;
use coracle_prepare::process::Process;
use coracle_types::Input;
use serde_json::{Map, Value};

use crate::dispatch::{CallResponse, ParsedCall};
use crate::operations;
use crate::tools;

/// Fields of a call, or of its response.
pub type CallFields = Map<String, Value>;

/// Event channel and input of a call.
#[derive(Debug)]
pub(super) struct CallStreams {
    /// Receives its events.
    pub(super) progress: Progress,
    /// Standard input of a command, or the content of a file.
    pub(super) input: Option<Input>,
}

impl CallStreams {
    pub(super) fn none() -> Self {
        Self { progress: Progress::none(), input: None }
    }
}

/// A response, and the warnings of its call.
pub(super) struct Typed<T> {
    pub(super) response: T,
    pub(super) warnings: Vec<Warning>,
}

/// A session, in which every call is a task of its own.
#[derive(Clone, Debug)]
pub(super) struct Session(pub(super) Process);

impl Session {
    /// The response of an operation or a session tool as JSON.
    pub(super) async fn call(
        &self,
        name: &str,
        fields: CallFields,
        streams: CallStreams,
    ) -> Result<CallFields, Failure> {
        match tools::ALL.iter().chain(tools::CONTENT).find(|entry| entry.name == name) {
            Some(tool) => {
                let execute = |process: Process| async move { Ok(tools::execute(tool, &process, fields).await) };
                value_of(self.execute(streams, execute).await?.json)
            }
            None => Ok(self.operation(name, fields, streams).await?.json),
        }
    }

    /// The typed response of an operation.
    pub(super) async fn typed<T: Render>(
        &self,
        name: &str,
        fields: CallFields,
        streams: CallStreams,
    ) -> Result<Typed<T>, Failure> {
        let CallResponse { response, warnings, .. } = self.operation(name, fields, streams).await?;
        let response: Option<Box<dyn Any + Send>> = response.map(|response| response as _);
        let response = response.and_then(|response| response.downcast().ok());
        let response =
            *response.ok_or_else(|| Failure::internal(format!("`{name}` has a response of another type")))?;
        Ok(Typed { response, warnings })
    }

    pub(super) async fn operation(
        &self,
        name: &str,
        mut fields: CallFields,
        streams: CallStreams,
    ) -> Result<CallResponse, Failure> {
        fields.insert("operation".into(), name.into());
        let execute = |process: Process| async move {
            let response = match ParsedCall::parse(operations::ALL, &process, fields) {
                Ok(call) => call.execute(&process).await,
                Err(failure) => Err(failure),
            };
            response.map_err(|failure| failure.for_reader(&process.context.reader()))
        };
        self.execute(streams, execute).await
    }

    /// Executes a call in a separate task, so that the clean-up after a cancelled call continues even if the caller is
    /// gone.
    async fn execute<F, R>(&self, streams: CallStreams, call: F) -> Result<CallResponse, Failure>
    where
        F: FnOnce(Process) -> R,
        R: Future<Output = Result<CallResponse, Failure>> + Send + 'static,
    {
        let CallStreams { progress, input } = streams;
        let cancel = self.0.context.call.cancel.child_token();
        let mut process = self.0.for_call(cancel.clone(), progress);
        if let Some(input) = input {
            process.context = process.context.with_input(input);
        }
        let _cancel_on_drop = cancel.drop_guard();
        tokio::spawn(call(process)).await.map_err(Failure::internal)?
    }
}

/// The value of a tool's response, or its failure.
fn value_of(mut envelope: CallFields) -> Result<CallFields, Failure> {
    if envelope.get("success").and_then(Value::as_bool) != Some(false) {
        return Ok(match envelope.remove("value") {
            Some(Value::Object(value)) => value,
            _ => envelope,
        });
    }
    let text = |name: &str| envelope.get(name).and_then(Value::as_str).map(str::to_owned);
    let code = envelope.get("code").and_then(|it| serde_json::from_value(it.clone()).ok()).unwrap_or(Code::Internal);
    let mut failure = Failure::new(code, text("message").unwrap_or_default());
    if let Some(hint) = text("hint") {
        failure = failure.hint(hint);
    }
    let details = envelope.get("details").and_then(Value::as_object).into_iter().flatten();
    Err(details.fold(failure, |failure, (name, value)| failure.detail(name, value)))
}
