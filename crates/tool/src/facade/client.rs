//! The client of a program that uses Coracle as a library: one session.

use std::any::Any;

use coracle_context::context::{Frontend, Options};
use coracle_context::document::Render;
use coracle_context::failure::{Code, Failure};
use coracle_context::host::Host;
use coracle_context::progress::Progress;
use coracle_context::warning::Warning;
use coracle_prepare::process::Process;
use coracle_types::Input;
use serde_json::{Map, Value};

use super::container::ClientContainer;
use super::options::ContainerOptions;
use crate::dispatch::{CallResponse, ParsedCall};
use crate::{operations, tools};

/// Fields of a call, or of its response.
pub type CallFields = Map<String, Value>;

/// A session on this machine's engine, with its configuration. Clones share the session; calls run concurrently.
///
/// Unless [`Options::session`] names one, the session belongs to this process alone: other processes, the command line
/// included, have others. Its containers outlive the value, and are removed some time after the process has ended unless
/// they are persistent. [`ClientContainer::destroy`] removes one earlier.
#[derive(Clone, Debug)]
pub struct Client(Process);

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

impl Client {
    /// Opens a session with the configuration of the user who runs this process. Calls no engine.
    ///
    /// # Errors
    /// `config_invalid` if the user has no home directory.
    pub fn open() -> Result<Self, Failure> {
        Self::with_options(&Options::default())
    }

    /// Opens a session with another configuration, engine or name.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and `invalid_name` for the session's name.
    pub fn with_options(options: &Options) -> Result<Self, Failure> {
        let host = Host::detect().map_err(Failure::from)?;
        Ok(Self(Process::open(host, options, Frontend::Serve)?))
    }

    /// Creates a client of an open process.
    #[must_use]
    pub fn of_process(process: Process) -> Self {
        Self(process)
    }

    /// Creates a container.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn create(&self, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        ClientContainer::created_by(self, "create", options.into_fields()?).await
    }

    /// Creates a container from a snapshot.
    ///
    /// # Errors
    /// Those of `restore`.
    pub async fn restore(&self, snapshot: &str, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        let mut fields = options.into_fields()?;
        fields.insert("snapshot".into(), snapshot.into());
        ClientContainer::created_by(self, "restore", fields).await
    }

    /// An existing container. Whether it exists is checked by the first call.
    #[must_use]
    pub fn attach(&self, name: &str) -> ClientContainer {
        ClientContainer::attached(self, name)
    }

    /// Calls an operation, or a tool of a session such as `edit_file` or `grep`, with its fields as JSON.
    ///
    /// Dropping the future cancels the call: its command is ended, and what it created is removed.
    ///
    /// # Errors
    /// If the response would have `success: false`, with its code, message, hint and details.
    pub async fn call(&self, name: &str, fields: CallFields) -> Result<CallFields, Failure> {
        match tools::ALL.iter().chain(tools::CONTENT).find(|entry| entry.name == name) {
            Some(tool) => {
                let execute = |process: Process| async move { Ok(tools::execute(tool, &process, fields).await) };
                value_of(self.execute(CallStreams::none(), execute).await?.json)
            }
            None => Ok(self.operation(name, fields, CallStreams::none()).await?.json),
        }
    }

    /// Calls an operation and returns its typed response.
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

    /// Executes a call in a task of its own, so that the clean-up after a cancelled call continues without the caller.
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

/// Returns the value of a tool's response, or its failure as an error.
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
