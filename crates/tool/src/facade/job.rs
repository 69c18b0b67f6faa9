//! A command that outlives its call.

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

/// One wait of [`ClientJob::wait`], which repeats it.
const WAIT: Duration = Duration::from_secs(600);

/// A job of a container. It goes on when the value is dropped, and when this process ends.
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

    /// Its id, for [`Container::job`](super::Container::job), also in another process.
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

    /// Waits for the first of several conditions. That none held within the time limit is a result:
    /// [`WaitOutcome::Timeout`].
    ///
    /// # Errors
    /// Those of `job_wait`.
    pub async fn wait_for(&self, options: WaitOptions) -> Result<Waited, Failure> {
        let fields = self.fields(options.into_fields());
        let Typed { response, .. } =
            self.session.typed::<JobWaitResponse>("job_wait", fields, CallStreams::none()).await?;
        Ok(response.into())
    }

    /// The output from that byte on, at most 32 KiB: as far as it is retained, and does not wait for more.
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

    /// Ends the job, with everything that it started, and waits until it is gone. Succeeds if it had ended already.
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
