//! The session of a program.

use coracle_context::context::{Frontend, Options};
use coracle_context::failure::{Code, Failure};
use coracle_context::host::Host;
use coracle_context::progress::Progress;
use coracle_prepare::process::Process;
use coracle_runtime::Input;
use serde_json::Value;

use super::answers::CallFields;
use super::container::{ClientContainer, ContainerOptions};
use crate::dispatch::ParsedCall;
use crate::operations;
use crate::tools;

/// A session with the engine and the configuration of this machine. Clones are the same session; calls run at once.
///
/// Without a name of its own it is a session of this process: containers stay when it is dropped, and are removed some time after
/// the process has ended, unless they are persistent. [`ClientContainer::destroy`] removes one earlier.
#[derive(Clone, Debug)]
pub struct Client(Process);

impl Client {
    /// A session with the configuration of the person who runs this process. Asks no engine.
    ///
    /// # Errors
    /// `config_invalid` without a home directory; `invalid_name`.
    pub fn open() -> Result<Self, Failure> {
        Self::with_options(&Options::default())
    }

    /// The same with another configuration, engine or session.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_options(options: &Options) -> Result<Self, Failure> {
        let host = Host::detect().map_err(Failure::from)?;
        Ok(Self(Process::open(host, options, Frontend::Serve)?))
    }

    /// A session of a process that is open.
    #[must_use]
    pub fn of_process(process: Process) -> Self {
        Self(process)
    }

    /// Makes a container.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn create(&self, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        ClientContainer::made(self, "create", options.into_fields()?).await
    }

    /// Makes a container from a snapshot.
    ///
    /// # Errors
    /// Those of `restore`.
    pub async fn restore(&self, snapshot: &str, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        let mut fields = options.into_fields()?;
        fields.insert("snapshot".into(), snapshot.into());
        ClientContainer::made(self, "restore", fields).await
    }

    /// A container that is there.
    #[must_use]
    pub fn attach(&self, name: &str) -> ClientContainer {
        ClientContainer::attached(self, name)
    }

    /// Calls an operation, or a tool of a session such as `edit_file` or `grep`, with its fields, and gives its answer.
    ///
    /// A call that is dropped is withdrawn: its command ends, and what it made is removed.
    ///
    /// # Errors
    /// What `success: false` says in an answer: code, message, hint and details.
    pub async fn call(&self, name: &str, fields: CallFields) -> Result<CallFields, Failure> {
        self.call_with(name, fields, Progress::none(), None).await
    }

    /// As [`call`](Self::call), with its events, and with input for it.
    pub(super) async fn call_with(
        &self,
        name: &str,
        mut fields: CallFields,
        progress: Progress,
        input: Option<Input>,
    ) -> Result<CallFields, Failure> {
        let cancel = self.0.context.call.cancel.child_token();
        let mut process = self.0.for_call(cancel.clone(), progress);
        if let Some(input) = input {
            process.context = process.context.with_input(input);
        }
        let _withdrawn_on_drop = cancel.drop_guard();
        let name = name.to_owned();
        let work = async move {
            if let Some(tool) = tools::ALL.iter().chain(tools::CONTENT).find(|it| it.name == name) {
                return value_of(tools::execute(tool, &process, fields).await.json);
            }
            fields.insert("operation".into(), name.into());
            let call = ParsedCall::parse(operations::ALL, &process, fields);
            let response = match call {
                Ok(call) => call.execute(&process).await,
                Err(failure) => Err(failure),
            };
            response.map(|response| response.json).map_err(|failure| failure.for_reader(&process.context.reader()))
        };
        // Beside its caller: what must not be abandoned half way goes on until it may end.
        tokio::spawn(work).await.map_err(Failure::internal)?
    }
}

/// The value of a tool's envelope, or its failure.
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
