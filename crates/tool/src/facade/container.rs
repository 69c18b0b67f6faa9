//! One container of a [`Client`], and the calls on it.

use coracle_context::failure::Failure;
use coracle_context::progress::{Event, Progress};
use coracle_context::warning::Warning;
use coracle_provision::Report;
use coracle_runtime::PublishedPort;
use coracle_types::{ContainerPath, Input, JobId};
use serde_json::{Map, Value};

use super::command_stream::CommandStream;
use super::job::ClientJob;
use super::options::{ContainerOptions, ExecOptions};
use super::results::{CommandResult, JobInfo, Removed, SnapshotInfo};
use super::session::{CallFields, CallStreams, Session, Typed};
use crate::commands::{ExecBackgroundResponse, ExecResponse, JobsResponse};
use crate::create::CreateResponse;
use crate::operations::DestroyResponse;
use crate::snapshot::SnapshotResponse;

/// A container. It stays until [`destroy`](Self::destroy): dropping the value removes nothing.
#[derive(Clone, Debug)]
pub struct ClientContainer {
    session: Session,
    name: String,
    created: Option<CreateResponse>,
    warnings: Vec<Warning>,
}

impl ClientContainer {
    pub(super) async fn created_by(session: &Session, operation: &str, fields: CallFields) -> Result<Self, Failure> {
        let Typed { response: created, warnings } =
            session.typed::<CreateResponse>(operation, fields, CallStreams::none()).await?;
        Ok(Self { session: session.clone(), name: created.container.to_string(), created: Some(created), warnings })
    }

    pub(super) fn attached(session: &Session, name: &str) -> Self {
        Self { session: session.clone(), name: name.to_owned(), created: None, warnings: Vec::new() }
    }

    /// The container's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The image that it was created from. `None` for an attached container.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.created.as_ref().map(|created| created.image.as_str())
    }

    /// The directory in which commands run. `None` for an attached container.
    #[must_use]
    pub fn workdir(&self) -> Option<&ContainerPath> {
        self.created.as_ref().map(|created| &created.workdir)
    }

    /// Its published ports, as they were when it was created. Empty for an attached container.
    #[must_use]
    pub fn ports(&self) -> &[PublishedPort] {
        self.created.as_ref().map_or(&[], |created| &created.ports)
    }

    /// The steps of provisioning, and the checks after them. `None` for an attached container.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.created.as_ref().map(|created| &created.provisioning_report)
    }

    /// Warnings of its creation.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Runs a command and waits for it. A command that fails is a result, not an error.
    ///
    /// # Errors
    /// Those of `exec`.
    pub async fn exec(&self, command: impl Into<ExecOptions>) -> Result<CommandResult, Failure> {
        let fields = self.fields(command.into().into_fields());
        let Typed { response, warnings } =
            self.session.typed::<ExecResponse>("exec", fields, CallStreams::none()).await?;
        Ok(CommandResult::new(response, warnings))
    }

    /// Runs a command and streams its output. A slow reader slows the command down.
    ///
    /// Must be called within a Tokio runtime.
    #[must_use = "dropping the stream ends the command"]
    pub fn stream(&self, command: impl Into<ExecOptions>) -> CommandStream {
        CommandStream::start(self.session.clone(), self.fields(command.into().into_fields()))
    }

    /// Starts a command as a job, which runs until it ends, is cancelled, or its container stops.
    ///
    /// # Errors
    /// Those of `exec_background`.
    pub async fn start(&self, command: impl Into<ExecOptions>) -> Result<ClientJob, Failure> {
        let fields = self.fields(command.into().into_fields());
        let Typed { response, .. } =
            self.session.typed::<ExecBackgroundResponse>("exec_background", fields, CallStreams::none()).await?;
        Ok(self.job(response.job_id))
    }

    /// A job by its id. The first call checks whether it exists.
    #[must_use]
    pub fn job(&self, id: JobId) -> ClientJob {
        ClientJob::new(&self.session, &self.name, id)
    }

    /// Lists the jobs of this container, including those that have ended.
    ///
    /// # Errors
    /// Those of `jobs`.
    pub async fn jobs(&self) -> Result<Vec<JobInfo>, Failure> {
        let Typed { response, .. } =
            self.session.typed::<JobsResponse>("jobs", self.fields(Map::new()), CallStreams::none()).await?;
        Ok(response.jobs.into_iter().map(JobInfo::from).collect())
    }

    /// Calls an operation or a session tool on this container, with its fields as JSON.
    ///
    /// # Errors
    /// Those of [`Client::call`](super::Client::call).
    pub async fn call(&self, name: &str, fields: CallFields) -> Result<CallFields, Failure> {
        self.session.call(name, self.fields(fields), CallStreams::none()).await
    }

    /// Reads a file, with the permissions of the exec user. A relative path starts at the work directory.
    ///
    /// # Errors
    /// `file_not_found`, and those of [`Client::call`](super::Client::call).
    pub async fn read_file(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let (progress, mut events) = Progress::channel();
        let streams = CallStreams { progress, input: None };
        let mut content = Vec::new();
        let collect = async {
            while let Some(event) = events.recv().await {
                if let Event::Output(chunk) = event {
                    content.extend(chunk.bytes);
                }
            }
        };
        let call = self.session.call("download", self.fields(path_field(path)), streams);
        let (response, ()) = tokio::join!(call, collect);
        response.map(|_| content)
    }

    /// Writes a file, with the permissions of the exec user. Replaces an existing file atomically, and creates missing
    /// parent directories.
    ///
    /// # Errors
    /// Those of [`Client::call`](super::Client::call).
    pub async fn write_file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
        let input = Some(Input::Bytes(content.as_ref().to_vec()));
        let streams = CallStreams { progress: Progress::none(), input };
        self.session.call("upload", self.fields(path_field(path)), streams).await.map(drop)
    }

    /// Creates another container with the files of this one as they are now.
    ///
    /// # Errors
    /// Those of `fork`.
    pub async fn fork(&self, options: ContainerOptions) -> Result<Self, Failure> {
        Self::created_by(&self.session, "fork", self.fields(options.into_fields()?)).await
    }

    /// Saves its files under a name, for [`Client::restore`](super::Client::restore).
    ///
    /// # Errors
    /// Those of `snapshot`.
    pub async fn snapshot(&self, name: &str) -> Result<SnapshotInfo, Failure> {
        let fields = self.fields(Map::from_iter([("name".to_owned(), name.into())]));
        let Typed { response, warnings } =
            self.session.typed::<SnapshotResponse>("snapshot", fields, CallStreams::none()).await?;
        Ok(SnapshotInfo::new(response, warnings))
    }

    /// Saves its unsaved work on the host and removes it.
    ///
    /// # Errors
    /// Those of `destroy`.
    pub async fn destroy(self) -> Result<Removed, Failure> {
        let fields = self.fields(Map::new());
        let Typed { response, warnings } =
            self.session.typed::<DestroyResponse>("destroy", fields, CallStreams::none()).await?;
        Ok(Removed::new(response, warnings))
    }

    /// Adds this container to the fields of a call.
    pub(super) fn fields(&self, mut fields: CallFields) -> CallFields {
        fields.insert("container".to_owned(), Value::from(self.name.as_str()));
        fields
    }
}

fn path_field(path: &str) -> CallFields {
    Map::from_iter([("path".to_owned(), path.into())])
}
