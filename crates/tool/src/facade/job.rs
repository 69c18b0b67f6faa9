//! A job: a command that outlives its call.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_context::failure::Failure;
use coracle_jobs::{JobState, WaitOutcome};
use coracle_types::JobId;
use serde_json::{Map, json};

use super::options::WaitOptions;
use super::results::{OutputPage, Waited};
use super::session::{CallFields, CallStreams, Session, Typed};
use crate::commands::{ExecCancelResponse, JobOutput, JobWaitResponse};

/// Time limit of each `job_wait` call of [`ClientJob::wait`], which repeats it.
const WAIT: Duration = Duration::from_secs(600);

/// A job of a container. It continues when this value is dropped, and when this process ends.
#[derive(Clone, Debug)]
pub struct ClientJob {
    session: Session,
    container: String,
    id: JobId,
}

impl ClientJob {
    pub(super) fn new(session: &Session, container: &str, id: JobId) -> Self {
        Self { session: session.clone(), container: container.to_owned(), id }
    }

    /// The job's id, for [`Container::job`](super::Container::job) in this or another process.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Waits until the job has ended, without a time limit.
    ///
    /// # Errors
    /// Those of `job_wait`.
    pub async fn wait(&self) -> Result<Waited, Failure> {
        loop {
            let waited = self.wait_for(WaitOptions::default().timeout(WAIT)).await?;
            if waited.reason != WaitOutcome::Timeout {
                return Ok(waited);
            }
        }
    }

    /// Waits for the first of several conditions. If none holds within the time limit, the result is
    /// [`WaitOutcome::Timeout`], not an error.
    ///
    /// # Errors
    /// Those of `job_wait`.
    pub async fn wait_for(&self, options: WaitOptions) -> Result<Waited, Failure> {
        let fields = self.fields(options.into_fields());
        let Typed { response, .. } =
            self.session.typed::<JobWaitResponse>("job_wait", fields, CallStreams::none()).await?;
        Ok(response.into())
    }

    /// Reads up to 32 KiB of retained output from byte `offset` on. Does not wait for more.
    ///
    /// # Errors
    /// Those of `job_read`.
    pub async fn read(&self, offset: u64) -> Result<OutputPage, Failure> {
        let selection =
            Map::from_iter([("offset".to_owned(), offset.into()), ("encoding".to_owned(), json!("base64"))]);
        let fields = self.fields(selection);
        let Typed { response, .. } = self.session.typed::<JobOutput>("job_read", fields, CallStreams::none()).await?;
        let JobOutput { data, next_offset, total_bytes, eof, running, .. } = response;
        let bytes = STANDARD.decode(data.unwrap_or_default()).map_err(Failure::internal)?;
        Ok(OutputPage { bytes, next_offset, total_bytes, is_last: eof, running })
    }

    /// Ends the job and every process that it started, and waits for that. Succeeds if the job had ended already.
    ///
    /// # Errors
    /// Those of `exec_cancel`.
    pub async fn cancel(&self) -> Result<JobState, Failure> {
        let fields = self.fields(Map::new());
        let Typed { response, .. } =
            self.session.typed::<ExecCancelResponse>("exec_cancel", fields, CallStreams::none()).await?;
        Ok(response.state)
    }

    fn fields(&self, mut fields: CallFields) -> CallFields {
        fields.insert("job_id".to_owned(), json!(self.id));
        fields.insert("container".to_owned(), json!(self.container));
        fields
    }
}
