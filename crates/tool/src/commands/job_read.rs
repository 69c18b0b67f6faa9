//! `job_read`: what a job printed, page by page or by lines that match.

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_types::{Handle, JobId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::job::reach_guest;
use super::job_page::{JobOutput, JobPage, OutputSelection};
use crate::dispatch::{Effect, Operation, SharedFields};
use crate::schema::result_schema;

/// Read stored output of a job, or of an `exec` whose output was cut: a page from `offset` or `line` on, or with `pattern`
/// the lines that match. `next_offset` is where to go on.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JobRead {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub(crate) container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    pub(crate) job_id: JobId,
    /// Byte of the output to begin at; negative counts from its end. `job_wait` looks at what comes from now on unless it
    /// is given.
    #[schemars(extend("default" = 0))]
    pub(crate) offset: Option<i64>,
    #[serde(flatten)]
    pub(crate) selection: OutputSelection,
}

impl Operation for JobRead {
    const NAME: &'static str = "job_read";
    const EFFECT: Effect = Effect::ReadOnly;
    const SHARED: SharedFields = SharedFields::for_type::<OutputSelection>();
    const RESULT: fn() -> Value = result_schema::<JobOutput>;
    type Response = JobOutput;

    async fn run(self, cx: &Context) -> Result<JobOutput, Failure> {
        let page = self.page();
        page.check()?;
        let guided = reach_guest(cx, &self.container, false).await?;
        let redactor = guided.redactor(cx).await?;
        match page.read(cx, &guided.link, &redactor).await {
            Err(failure) => Err(guided.with_known_jobs(failure).await),
            read => read,
        }
    }
}

impl JobRead {
    pub(super) fn page(&self) -> JobPage<'_> {
        JobPage { job_id: &self.job_id, offset: self.offset, selection: &self.selection }
    }
}
