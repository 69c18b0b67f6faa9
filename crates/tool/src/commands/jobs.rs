//! `jobs`: the commands that guests remember.

use std::sync::Arc;
use std::time::Duration;

use coracle_jobs::{Job, State};
use coracle_lifecycle::ContainerEntry;
use coracle_runtime::{ContainerName, Handle, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::job::{guided, time};
use crate::arg_types::Name;
use crate::config::CrossSession;
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::{Code, Failure};
use crate::warning::Warning;

/// List jobs and running commands: of one container, or of all that this session may see.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jobs {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// The answer (containers.md 10.8).
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    jobs: Vec<Row>,
    count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Row {
    job_id: JobId,
    container: ContainerName,
    command: String,
    state: State,
    running: bool,
    exit_code: Option<u8>,
    started_at: Option<String>,
    ended_at: Option<String>,
    total_bytes: u64,
    as_root: bool,
    foreground: bool,
}

/// Containers that are asked at once.
const AT_ONCE: usize = 16;

/// One container that is slow to answer must not hold up the list of all.
const PATIENCE: Duration = Duration::from_secs(10);

impl Operation for Jobs {
    const NAME: &'static str = "jobs";
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, cx: &Context) -> Result<Listing, Failure> {
        let (jobs, warnings) = match &self.container {
            Some(container) => Box::pin(of_one(cx, container)).await?,
            None => cx.unless_cancelled(Box::pin(of_all(cx))).await?,
        };
        Ok(Listing { count: jobs.len(), jobs, warnings })
    }
}

async fn of_one(cx: &Context, container: &Handle) -> Result<(Vec<Row>, Vec<Warning>), Failure> {
    let guided = guided(cx, container, false).await?;
    let mut jobs = guided.lost_jobs().await?;
    jobs.extend(coracle_jobs::list(&guided.link).await?);
    Ok((jobs.into_iter().map(|it| row(&guided.record.name, it)).collect(), guided.warnings))
}

/// Those that run and have a guest; a stopped one is not started for a list.
async fn of_all(cx: &Context) -> Result<(Vec<Row>, Vec<Warning>), Failure> {
    let listing = coracle_lifecycle::list(cx.engines(), &cx.store()?).await?;
    let all = cx.cross_session() != CrossSession::None;
    let asked = |it: &ContainerEntry| {
        let seen = all || it.record.session == cx.call.session.as_str();
        seen && it.record.guest.is_some() && it.container.as_ref().is_some_and(|it| it.running())
    };
    let (places, mut asking) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for (at, it) in listing.containers.into_iter().filter(asked).enumerate() {
        let (cx, places, name) = (cx.clone(), places.clone(), it.record.name.clone());
        asking.spawn(async move {
            let _place = places.acquire().await;
            let answer = tokio::time::timeout(PATIENCE, Box::pin(of_one(&cx, &Handle::Name(name.clone())))).await;
            (at, name, answer.unwrap_or_else(|_| Err(Failure::new(Code::EngineTimeout, "it did not answer in time"))))
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|it| it.0);
    let (mut jobs, mut warnings) = (Vec::new(), Vec::new());
    for (_, name, answer) in answers {
        match answer {
            Ok((some, told)) => {
                jobs.extend(some);
                warnings.extend(told);
            }
            // It ended or was removed while others were asked.
            Err(failure) if [Code::NotFound, Code::NotRunning].contains(&failure.code) => {}
            Err(failure) => {
                let message = format!("the jobs of `{name}` are not known: {}", failure.message);
                warnings.push(Warning::new("guest_lost", message));
            }
        }
    }
    Ok((jobs, warnings))
}

fn row(container: &ContainerName, job: Job) -> Row {
    Row {
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
