//! `jobs`: the commands that guests remember.

use std::sync::Arc;
use std::time::Duration;

use coracle_context::arg_types::Name;
use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText, sanitize};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::{ago, bytes};
use coracle_context::warning::Warning;
use coracle_jobs::{Job, JobState};
use coracle_lifecycle::ContainerEntry;
use coracle_types::{ContainerName, Handle, JobId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::job::{outcome, reach_guest, time};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// List jobs and running commands: of one container, or of all that this session may see.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Jobs {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Option<Name>")]
    pub container: Option<Handle>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct JobsResponse {
    pub jobs: Vec<JobRow>,
    count: usize,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct JobRow {
    #[schemars(with = "String")]
    pub job_id: JobId,
    #[schemars(with = "String")]
    container: ContainerName,
    pub command: String,
    #[schemars(with = "String")]
    pub state: JobState,
    pub running: bool,
    pub(crate) exit_code: Option<u8>,
    pub started_at: Option<String>,
    ended_at: Option<String>,
    pub total_bytes: u64,
    as_root: bool,
    foreground: bool,
}

/// Containers that are read concurrently.
const AT_ONCE: usize = 16;

/// One container that is slow to answer must not hold up the list of all.
const PATIENCE: Duration = Duration::from_secs(10);

impl Operation for Jobs {
    const NAME: &'static str = "jobs";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<JobsResponse>;
    type Response = JobsResponse;

    async fn run(self, cx: &Context) -> Result<JobsResponse, Failure> {
        let jobs = match &self.container {
            Some(container) => Box::pin(of_one(cx, container)).await?,
            None => cx.unless_cancelled(Box::pin(of_all(cx))).await?,
        };
        Ok(JobsResponse { count: jobs.len(), jobs })
    }
}

async fn of_one(cx: &Context, container: &Handle) -> Result<Vec<JobRow>, Failure> {
    let guided = reach_guest(cx, container, false).await?;
    let mut jobs = guided.lost_jobs().await?;
    jobs.extend(coracle_jobs::list(&guided.link).await?);
    Ok(jobs.into_iter().map(|it| row(&guided.record.name, it)).collect())
}

/// Those that run and have a guest; a stopped one is not started for a list.
async fn of_all(cx: &Context) -> Result<Vec<JobRow>, Failure> {
    let listing = coracle_lifecycle::list(cx.engines(), &cx.store()?).await?;
    let all = cx.cross_session() != CrossSession::None;
    let is_listed = |it: &ContainerEntry| {
        let seen = all || it.record.session == cx.call.session.as_str();
        seen && it.record.guest.is_some() && it.container.as_ref().is_some_and(|it| it.running())
    };
    let (places, mut asking) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for (at, it) in listing.containers.into_iter().filter(is_listed).enumerate() {
        let (cx, places, name) = (cx.with_own_warnings(), places.clone(), it.record.name.clone());
        asking.spawn(async move {
            let _place = places.acquire().await;
            let answer = tokio::time::timeout(PATIENCE, Box::pin(of_one(&cx, &Handle::Name(name.clone())))).await;
            let late = |_| Err(Failure::new(Code::EngineTimeout, "it did not answer in time"));
            (at, name, answer.unwrap_or_else(late), cx.take_warnings())
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|it| it.0);
    let mut jobs = Vec::new();
    for (_, name, answer, warnings) in answers {
        match answer {
            Ok(some) => {
                jobs.extend(some);
                cx.warn(warnings);
            }
            // It ended or was removed while others were read.
            Err(failure) if [Code::NotFound, Code::NotRunning].contains(&failure.code) => {}
            Err(failure) => {
                let message = format!("the jobs of `{name}` are not known: {}", failure.message);
                cx.warn([Warning::new("guest_lost", message)]);
            }
        }
    }
    Ok(jobs)
}

fn row(container: &ContainerName, job: Job) -> JobRow {
    JobRow {
        running: job.running(),
        container: container.clone(),
        state: job.state,
        exit_code: job.exit_code,
        started_at: time(job.began_ms),
        ended_at: job.ended_ms.and_then(time),
        total_bytes: job.total_bytes,
        as_root: job.as_root,
        foreground: job.foreground,
        job_id: job.id,
        command: job.command,
    }
}

const COLUMNS: [Column; 6] = [
    Column::fixed("JOB"),
    Column::flexible("CONTAINER"),
    Column::fixed("STATE"),
    Column::fixed("STARTED").or_left_out(1),
    Column::fixed("OUTPUT").or_left_out(2),
    Column::flexible("COMMAND"),
];

/// Characters of a command in a table.
const COMMAND_CHARS: usize = 60;

impl Render for JobsResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &JobRow| {
            let started = ago(it.started_at.as_deref().unwrap_or_default(), now);
            let state = outcome(it.state, it.exit_code, None);
            let [id, container] = [it.job_id.to_string(), it.container.to_string()];
            [id, container, state, started, bytes(it.total_bytes), one_line(&it.command)].map(StyledText::from).into()
        };
        Document::rows(&COLUMNS, &self.jobs, row, "no jobs; `coracle exec-background` starts one")
    }
}

/// The beginning of a command, on one line.
fn one_line(command: &str) -> String {
    let line = sanitize(command).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMMAND_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_a_table() {
        let row = |id: &str, state, exit_code, command: &str| JobRow {
            job_id: JobId::parse(id).unwrap(),
            container: ContainerName::parse("web").unwrap(),
            command: command.into(),
            state,
            running: false,
            exit_code,
            started_at: Some("2026-11-21T10:00:00.000Z".into()),
            ended_at: None,
            total_bytes: 1536,
            as_root: false,
            foreground: false,
        };
        let jobs = vec![
            row("0123abcd", JobState::Running, None, "make\nserve"),
            row("4567abcd", JobState::Exited, Some(3), &"x".repeat(70)),
            row("89ababcd", JobState::TimedOut, Some(124), "sleep 9"),
        ];
        let listed = JobsResponse { jobs, count: 3 };
        insta::assert_snapshot!(coracle_context::document::rendered(&listed, "2026-11-21T12:30:00Z"), @r"
        JOB       CONTAINER  STATE      STARTED  OUTPUT   COMMAND
        0123abcd  web        running    2 h ago  1.5 KiB  make serve
        4567abcd  web        exited 3   2 h ago  1.5 KiB  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        89ababcd  web        timed out  2 h ago  1.5 KiB  sleep 9
        ");
        let none = JobsResponse { jobs: Vec::new(), count: 0 };
        let text = coracle_context::document::rendered(&none, "2026-11-21T12:30:00Z");
        assert_eq!(text, "no jobs; `coracle exec-background` starts one");
    }
}
