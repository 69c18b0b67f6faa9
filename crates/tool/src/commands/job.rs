//! What the operations on jobs share.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::document::{StyledText, word};
use coracle_context::failure::{Code, Failure};
use coracle_context::{redaction, suggest};
use coracle_jobs::{Job, JobState};
use coracle_lifecycle::{ExecContext, Record, RecordedJob};
use coracle_types::{Handle, JobId, Redactor};
use serde::{Deserialize, Serialize};

use crate::target::{CommandTarget, reach_inside};

/// A container whose guest remembers jobs.
pub(super) struct GuestTarget {
    pub(super) record: Record,
    pub(super) link: Link,
    /// Who runs commands there, where and with which environment.
    pub(super) session: ExecContext,
}

/// Finds a container for jobs.
pub(super) async fn reach_guest(cx: &Context, handle: &Handle, as_root: bool) -> Result<GuestTarget, Failure> {
    let CommandTarget { record, inside, session } = reach_inside(cx, handle, as_root).await?;
    let link = inside.link().map_err(|_| Failure::without_guest(record.name.as_str()))?.clone();
    Ok(GuestTarget { record, link, session })
}

/// How long a guest has to list its jobs.
const SOON: Duration = Duration::from_millis(500);

/// Background jobs that run; none where no guest answers at once.
pub(crate) async fn running(cx: &Context, record: &Record) -> usize {
    let Ok(store) = cx.store() else { return 0 };
    let probe = async {
        let link = cx.links().direct_link(&store, record).await?;
        coracle_jobs::list(&link).await.ok()
    };
    let jobs = tokio::time::timeout(SOON, probe).await.ok().flatten().unwrap_or_default();
    // The main program of a container is no job of a caller.
    jobs.iter().filter(|it| it.running() && !it.foreground && it.id != JobId::main()).count()
}

impl GuestTarget {
    /// What is taken out of the output of its jobs.
    pub(super) async fn redactor(&self, cx: &Context) -> Result<Redactor, Failure> {
        Box::pin(redaction::of_link(cx, &self.record, &self.link, &BTreeMap::new())).await
    }

    /// What became of a job, or that it is lost: the record knows it from an earlier run of the guest.
    pub(super) async fn or_lost<T>(
        &self,
        id: &JobId,
        answer: Result<T, coracle_jobs::Error>,
        lost: impl FnOnce(Job) -> T,
    ) -> Result<T, Failure> {
        match answer {
            Err(coracle_jobs::Error::NoSuchJob(_)) => {
                let job = self.lost_jobs().await?.into_iter().find(|it| it.id == *id);
                match job {
                    Some(job) => Ok(lost(job)),
                    None => Err(self.with_known_jobs(coracle_jobs::Error::NoSuchJob(id.clone()).into()).await),
                }
            }
            answer => Ok(answer?),
        }
    }

    /// Adds the existing jobs to a failure about an unknown job. Returns other failures unchanged.
    pub(super) async fn with_known_jobs(&self, failure: Failure) -> Failure {
        if failure.code != Code::JobNotFound {
            return failure;
        }
        let requested =
            failure.details.get("job_id").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        let jobs = coracle_jobs::list(&self.link).await.unwrap_or_default();
        let known: Vec<String> = jobs.iter().filter(|it| !it.foreground).map(|it| it.id.to_string()).collect();
        let otherwise = failure.hint.clone().unwrap_or_default();
        let hint = suggest::hint(&requested, &known, &otherwise);
        failure.detail("near", known).hint(hint)
    }

    /// The jobs of earlier runs of the guest.
    pub(super) async fn lost_jobs(&self) -> Result<Vec<Job>, Failure> {
        if self.record.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let run = self.link.run_id().await?;
        let lost = self.record.jobs.iter().filter(|it| it.run != run);
        Ok(lost.map(|it| Job::lost(it.job.clone(), it.began_ms)).collect())
    }
}

/// Puts a job into its container's record, so that it can be reported as lost after a restart.
pub(super) async fn remember(cx: &Context, record: &Record, link: &Link, job: &JobId) {
    let remembered = async {
        let began_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let job = RecordedJob { job: job.clone(), run: link.run_id().await?, began_ms };
        Ok::<_, Failure>(cx.store()?.remember_job(record, job).await?)
    };
    if let Err(failure) = remembered.await {
        // The job runs; only after a restart it is unknown.
        tracing::warn!(container = %record.name, "the job is not in the record: {}", failure.message);
    }
}

/// How bytes are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    #[default]
    Text,
    Base64,
}

/// A time of a guest's clock; none for what is no time.
pub(super) fn time(ms: u64) -> Option<String> {
    let time = i64::try_from(ms).ok().and_then(|it| jiff::Timestamp::from_millisecond(it).ok())?;
    Some(format!("{time:.3}"))
}

/// The name of the signal that ended it.
pub(super) fn signal(job: &Job) -> Option<String> {
    job.signal.map(coracle_jobs::signal_name)
}

pub(super) fn timed_out(job: &Job) -> bool {
    job.state == JobState::TimedOut
}

/// `running`, `exited 3`, `ended by SEGV`, `timed out`.
pub(super) fn outcome(state: JobState, exit_code: Option<u8>, signal: Option<&str>) -> String {
    match (state, exit_code, signal) {
        (JobState::Exited, _, Some(signal)) => format!("ended by {signal}"),
        (JobState::Exited, Some(code), _) => format!("exited {code}"),
        _ => word(state).replace('_', " "),
    }
}

/// The state of a job, after its output.
pub(super) fn state_line(id: &JobId, state: JobState, exit_code: Option<u8>, signal: Option<&str>) -> StyledText {
    let (line, outcome) = (StyledText::new().name(id).plain(" "), outcome(state, exit_code, signal));
    match (state, exit_code) {
        (JobState::Running, _) | (JobState::Exited, Some(0)) => line.good(outcome),
        (JobState::Exited, _) => line.bad(outcome),
        _ => line.doubtful(outcome),
    }
}

#[cfg(test)]
mod tests {
    use coracle_jobs::JobState;
    use coracle_types::JobId;

    use super::{state_line, time};

    #[test]
    fn a_job_stands_in_one_line() {
        let line = |state, exit_code, signal| {
            state_line(&JobId::parse("0123abcd").unwrap(), state, exit_code, signal).to_string()
        };
        assert_eq!(line(JobState::Running, None, None), "0123abcd running");
        assert_eq!(line(JobState::Exited, Some(139), Some("SEGV")), "0123abcd ended by SEGV");
        assert_eq!(line(JobState::TimedOut, Some(124), None), "0123abcd timed out");
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(time(0).unwrap(), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_795_305_600_070).unwrap(), "2026-11-22T00:00:00.070Z");
        assert_eq!(time(u64::MAX), None);
    }
}
