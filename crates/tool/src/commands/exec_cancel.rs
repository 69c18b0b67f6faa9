//! `exec_cancel`: the end of a job.

use std::time::Duration;

use coracle_context::arg_types::{Name, Seconds};
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_jobs::{CancelReport, JobState};
use coracle_types::{Handle, JobId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{outcome, reach_guest, signal};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// End a job with everything that it started, and wait until it is gone. One that has ended already is a success too.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ExecCancel {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    pub job_id: JobId,
    /// Seconds between the request to end (TERM) and the end by force (KILL), at most 60.
    #[schemars(extend("default" = 2))]
    pub grace: Option<Seconds>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ExecCancelResponse {
    #[schemars(with = "String")]
    job_id: JobId,
    cancelled: bool,
    #[schemars(with = "String")]
    pub(crate) state: JobState,
    exit_code: Option<u8>,
    signal: Option<String>,
    tree_ended: Option<bool>,
}

const MAX_GRACE: Duration = Duration::from_secs(60);

impl Operation for ExecCancel {
    const NAME: &'static str = "exec_cancel";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<ExecCancelResponse>;
    type Response = ExecCancelResponse;

    async fn run(self, cx: &Context) -> Result<ExecCancelResponse, Failure> {
        let grace = self.grace.unwrap_or(cx.config.exec.grace).0;
        if self.grace.is_some() && grace > MAX_GRACE {
            return Err(Failure::invalid("grace", "at most 60 s").hint("leave it out for the configured time"));
        }
        let guided = reach_guest(cx, &self.container, false).await?;
        let CancelReport { cancelled, job } = {
            let answer = coracle_jobs::cancel(&guided.link, &self.job_id, grace).await;
            guided.or_lost(&self.job_id, answer, |job| CancelReport { cancelled: false, job }).await?
        };
        Ok(ExecCancelResponse {
            cancelled,
            state: job.state,
            exit_code: job.exit_code,
            signal: signal(&job),
            tree_ended: job.tree_ended,
            job_id: job.id,
        })
    }
}

impl Render for ExecCancelResponse {
    fn render(&self, _: Timestamp) -> Document {
        let line = StyledText::new().name(&self.job_id);
        Document::line(match (self.cancelled, self.tree_ended) {
            (false, _) => {
                let state = outcome(self.state, self.exit_code, self.signal.as_deref());
                line.plain(format!(" had ended already: {state}"))
            }
            (true, Some(false)) => line.plain(" ended; ").doubtful("some of its processes could not be ended"),
            (true, _) => line.plain(" ended"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_whether_there_was_something_to_end() {
        let (exit_code, signal) = Default::default();
        let job_id = JobId::parse("0123abcd").unwrap();
        let (state, tree_ended) = (JobState::Cancelled, Some(true));
        let mut ended = ExecCancelResponse { job_id, cancelled: true, state, exit_code, signal, tree_ended };
        assert_eq!(coracle_context::document::rendered(&ended, "2026-11-21T12:30:00Z"), "0123abcd ended");
        (ended.cancelled, ended.state, ended.exit_code) = (false, JobState::Exited, Some(3));
        assert_eq!(
            coracle_context::document::rendered(&ended, "2026-11-21T12:30:00Z"),
            "0123abcd had ended already: exited 3"
        );
    }
}
