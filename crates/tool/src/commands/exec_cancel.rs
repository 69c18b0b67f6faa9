//! `exec_cancel`: the end of a job.

use std::time::Duration;

use coracle_jobs::{Cancelled, State};
use coracle_runtime::{Handle, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{guided, signal};
use crate::arg_types::{Name, Seconds};
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::warning::Warning;

/// End a job with everything that it started, and wait until it is gone. One that has ended already is a success too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecCancel {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    job_id: JobId,
    /// Seconds between the request to end (TERM) and the end by force (KILL), at most 60.
    #[schemars(extend("default" = 2))]
    grace: Option<Seconds>,
}

/// The answer (containers.md 10.5).
#[derive(Debug, Serialize)]
pub(crate) struct Ended {
    job_id: JobId,
    cancelled: bool,
    state: State,
    exit_code: Option<u8>,
    signal: Option<String>,
    tree_ended: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

const MAX_GRACE: Duration = Duration::from_secs(60);

impl Operation for ExecCancel {
    const NAME: &'static str = "exec_cancel";
    type Answer = Ended;

    async fn run(self, cx: &Context) -> Result<Ended, Failure> {
        let grace = self.grace.unwrap_or(cx.config.exec.grace).0;
        if self.grace.is_some() && grace > MAX_GRACE {
            return Err(Failure::invalid("grace", "at most 60 s").hint("leave it out for the configured time"));
        }
        let guided = guided(cx, &self.container, false).await?;
        let Cancelled { cancelled, job } = {
            let asked = coracle_jobs::cancel(&guided.link, &self.job_id, grace).await;
            guided.or_lost(&self.job_id, asked, |job| Cancelled { cancelled: false, job }).await?
        };
        Ok(Ended {
            cancelled,
            state: job.state,
            exit_code: job.exit_code,
            signal: signal(&job),
            tree_ended: job.tree_ended,
            job_id: job.id,
            warnings: guided.warnings,
        })
    }
}
