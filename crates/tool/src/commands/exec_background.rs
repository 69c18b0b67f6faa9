//! `exec_background`: a command that outlives the call.

use std::time::Duration;

use coracle_context::arg_types::Seconds;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::Failure;
use coracle_jobs::StartedJob;
use coracle_types::{Command, ContainerName, ExecLimits, Input, JobId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command_request::CommandRequest;
use super::job::{GuestTarget, reach_guest, remember, time};
use crate::dispatch::{Effect, Operation, SharedFields};
use crate::schema::result_schema;

/// Start a command in a container as a job and answer at once with its `job_id`: `job_wait`, `exec_poll` and `job_read`
/// follow it, `exec_cancel` ends it. Without `timeout` it runs as long as its container.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExecBackground {
    #[serde(flatten)]
    pub(crate) request: CommandRequest,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 0))]
    pub(crate) timeout: Option<Seconds>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ExecBackgroundResponse {
    #[schemars(with = "String")]
    pub(crate) job_id: JobId,
    pid: String,
    #[schemars(with = "String")]
    container: ContainerName,
    /// Its first 200 characters, as in `jobs`.
    command: String,
    started_at: Option<String>,
}

impl Operation for ExecBackground {
    const NAME: &'static str = "exec_background";
    const EFFECT: Effect = Effect::Mutating;
    const SHARED: SharedFields = SharedFields::for_type::<CommandRequest>();
    const RESULT: fn() -> Value = result_schema::<ExecBackgroundResponse>;
    type Response = ExecBackgroundResponse;

    async fn run(self, cx: &Context) -> Result<ExecBackgroundResponse, Failure> {
        let limits = self.limits(cx)?;
        let (env, stdin) = (self.request.env()?, self.request.stdin()?);
        let GuestTarget { record, link, session } =
            reach_guest(cx, &self.request.container, self.request.as_root()).await?;
        let mut exec = self.request.exec(&session, env)?;
        exec.stdin = stdin.map(Input::Bytes);
        exec.limits = limits;
        // Input may take a while to go in. Who withdraws until then wants no job.
        exec.cancel = cx.call.cancel.clone();
        let started = coracle_jobs::start(&link, exec, cx.config.jobs.max_running).await;
        let StartedJob { id, pid, began_ms, .. } =
            started.map_err(|err| Failure::from(err).known("container", &record.name))?;
        remember(cx, &record, &link, &id).await;
        Ok(ExecBackgroundResponse {
            job_id: id,
            pid: pid.to_string(),
            container: record.name,
            command: shown(&self.request.command.0),
            started_at: time(began_ms),
        })
    }
}

impl ExecBackground {
    fn limits(&self, cx: &Context) -> Result<ExecLimits, Failure> {
        let least = Duration::from_millis(100);
        let total = self.timeout.and_then(Seconds::unless_zero);
        if total.is_some_and(|it| it < least) {
            return Err(Failure::invalid("timeout", "0, or at least 0.1 s").hint("leave it out for no limit"));
        }
        let silence = self.request.silence_timeout.and_then(Seconds::unless_zero);
        Ok(ExecLimits { total, silence, grace: cx.config.exec.grace.0 })
    }
}

/// A command as lists show it.
fn shown(command: &Command) -> String {
    let text = match command {
        Command::Shell(text) => text.clone(),
        Command::Argv(words) => words.join(" "),
    };
    text.chars().take(200).collect()
}

impl Render for ExecBackgroundResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(self.job_id.to_string())
    }

    fn render_for_model(&self) -> String {
        format!("[job {} started]", self.job_id)
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::Command;

    use super::shown;

    #[test]
    fn a_command_is_shown_shortened() {
        assert_eq!(shown(&Command::Argv(vec!["make".into(), "test".into()])), "make test");
        assert_eq!(shown(&Command::Shell("ä".repeat(300))), "ä".repeat(200));
    }
}
