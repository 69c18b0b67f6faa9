//! The client of a program that uses Coracle as a library: one session.

use coracle_context::context::{Frontend, Options};
use coracle_context::failure::Failure;
use coracle_context::host::Host;
use coracle_prepare::process::Process;

use super::container::ClientContainer;
use super::options::ContainerOptions;
use super::session::{CallFields, CallStreams, Session};

/// A session on this machine's engine, with its configuration. Clones share the session; calls run concurrently.
///
/// Unless [`Options::session`] names one, the session belongs to this process alone: other processes, the command line
/// included, have others. Its containers outlive the value, and are removed some time after the process has ended unless
/// they are persistent. [`ClientContainer::destroy`] removes one earlier.
#[derive(Clone, Debug)]
pub struct Client(Session);

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
        Ok(Self(Session(Process::open(host, options, Frontend::Serve)?)))
    }

    /// Creates a client of an open process.
    #[must_use]
    pub fn of_process(process: Process) -> Self {
        Self(Session(process))
    }

    /// Creates a container.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn create(&self, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        ClientContainer::created_by(&self.0, "create", options.into_fields()?).await
    }

    /// Creates a container from a snapshot.
    ///
    /// # Errors
    /// Those of `restore`.
    pub async fn restore(&self, snapshot: &str, options: ContainerOptions) -> Result<ClientContainer, Failure> {
        let mut fields = options.into_fields()?;
        fields.insert("snapshot".into(), snapshot.into());
        ClientContainer::created_by(&self.0, "restore", fields).await
    }

    /// An existing container. Whether it exists is checked by the first call.
    #[must_use]
    pub fn attach(&self, name: &str) -> ClientContainer {
        ClientContainer::attached(&self.0, name)
    }

    /// Calls an operation, or a tool of a session such as `edit_file` or `grep`, with its fields as JSON.
    ///
    /// Dropping the future cancels the call: its command is ended, and what it created is removed.
    ///
    /// # Errors
    /// If the response would have `success: false`, with its code, message, hint and details.
    pub async fn call(&self, name: &str, fields: CallFields) -> Result<CallFields, Failure> {
        self.0.call(name, fields, CallStreams::none()).await
    }
}

impl ClientContainer {
    /// Creates a container in a new session: see [`Client::open`] and [`Client::create`].
    ///
    /// # Errors
    /// Those of both.
    pub async fn create(options: ContainerOptions) -> Result<Self, Failure> {
        Client::open()?.create(options).await
    }
}
