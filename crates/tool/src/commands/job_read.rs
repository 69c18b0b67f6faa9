//! `job_read`: what a job printed, page by page or by lines that match.

use coracle_jobs::StreamSelector;
use coracle_runtime::{ByteSize, Handle, JobId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::job::{Encoding, guided};
use super::job_page::{JobOutput, JobPage};
use crate::arg_types::{Name, Size};
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;

/// Read kept output of a job, or of an `exec` whose output was cut: a page from `offset` or `line` on, or with `pattern`
/// the lines that match. `next_offset` goes on where an answer ends.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JobRead {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    job_id: JobId,
    /// `all` (in order of arrival), `stdout` or `stderr`. Offsets count the bytes of this stream.
    #[schemars(with = "Option<String>", extend("default" = "all", "enum" = ["all", "stdout", "stderr"]))]
    stream: Option<StreamSelector>,
    /// Byte of the output to begin at; negative counts from its end. `job_wait` looks at what comes from now on unless it
    /// is given.
    #[schemars(extend("default" = 0))]
    offset: Option<i64>,
    /// Line to begin at, from 1, in place of `offset`.
    line: Option<u64>,
    /// Bytes of a page, 1 to 1m.
    #[schemars(with = "Option<Size>", extend("default" = 32768))]
    limit: Option<ByteSize>,
    /// `text` (what is not UTF-8 becomes U+FFFD) or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "text", "enum" = ["text", "base64"]))]
    encoding: Option<Encoding>,
    /// Regular expression that a line has to match, at most 1 KiB.
    pattern: Option<String>,
    /// Letters match in either case.
    #[schemars(extend("default" = false))]
    ignore_case: Option<bool>,
    /// Lines before and after each match, at most 20.
    #[schemars(extend("default" = 2))]
    context: Option<u32>,
    /// Matches in one answer, 1 to 1000.
    #[schemars(extend("default" = 50))]
    max_matches: Option<u32>,
}

impl Operation for JobRead {
    const NAME: &'static str = "job_read";
    const ACTS: bool = false;
    type Response = JobOutput;

    async fn run(self, cx: &Context) -> Result<JobOutput, Failure> {
        let page = self.page();
        page.check()?;
        let guided = guided(cx, &self.container, false).await?;
        let redactor = guided.redactor(cx).await?;
        let mut output = match page.read(cx, &guided.link, &redactor).await {
            Ok(output) => output,
            Err(failure) => return Err(guided.with_known_jobs(failure).await),
        };
        output.warnings = guided.warnings;
        Ok(output)
    }
}

impl JobRead {
    pub(super) fn page(&self) -> JobPage {
        JobPage {
            job_id: self.job_id.clone(),
            stream: self.stream,
            offset: self.offset,
            line: self.line,
            limit: self.limit,
            encoding: self.encoding,
            pattern: self.pattern.clone(),
            ignore_case: self.ignore_case,
            context: self.context,
            max_matches: self.max_matches,
        }
    }
}
