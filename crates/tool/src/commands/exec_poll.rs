//! `exec_poll`: the state of a job.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, ProgramOutput, Render};
use coracle_context::failure::Failure;
use coracle_context::redaction;
use coracle_jobs::{JobState, JobStatus, MAX_LINES, Tail};
use coracle_types::{Handle, JobId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{reach_guest, signal, state_line, time, timed_out};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Look at a job: its state and the last lines that it printed. To wait for it, call `job_wait`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ExecPoll {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    pub job_id: JobId,
    /// How many of the last lines of output are answered, at most 1000.
    #[schemars(extend("default" = 100))]
    pub lines: Option<u32>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ExecPollResponse {
    #[schemars(with = "String")]
    job_id: JobId,
    running: bool,
    pub output: String,
    exit_code: Option<u8>,
    #[schemars(with = "String")]
    state: JobState,
    signal: Option<String>,
    timed_out: bool,
    started_at: Option<String>,
    ended_at: Option<String>,
    total_bytes: u64,
    next_offset: u64,
}

impl Operation for ExecPoll {
    const NAME: &'static str = "exec_poll";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ExecPollResponse>;
    type Response = ExecPollResponse;

    async fn run(self, cx: &Context) -> Result<ExecPollResponse, Failure> {
        if self.lines.is_some_and(|it| it > MAX_LINES) {
            return Err(
                Failure::invalid("lines", "at most 1000").hint("`job_read` gives all stored output, page by page")
            );
        }
        let guided = reach_guest(cx, &self.container, false).await?;
        let redactor = guided.redactor(cx).await?;
        let lines = self.lines.unwrap_or(cx.config.jobs.poll_lines);
        let JobStatus { job, tail } = {
            let answer = coracle_jobs::poll(&guided.link, &self.job_id, lines).await;
            guided.or_lost(&self.job_id, answer, |job| JobStatus { job, tail: Tail::default() }).await?
        };
        Ok(ExecPollResponse {
            running: job.running(),
            output: redaction::clean_text(&redactor, &tail.bytes),
            exit_code: job.exit_code,
            state: job.state,
            signal: signal(&job),
            timed_out: timed_out(&job),
            started_at: time(job.began_ms),
            ended_at: job.ended_ms.and_then(time),
            total_bytes: tail.total,
            next_offset: tail.next,
            job_id: job.id,
        })
    }
}

impl Render for ExecPollResponse {
    fn render(&self, _: Timestamp) -> Document {
        let line = state_line(&self.job_id, self.state, self.exit_code, self.signal.as_deref());
        Document::of_output(ProgramOutput::Job(self.output.clone().into_bytes())).note(line)
    }
}
