//! Start of a job.

use coracle_client::Link;
use coracle_protocol::ErrorCode;
use coracle_types::{Error as Runtime, Exec, JobId};

use crate::{Error, Result};

/// A started job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartedJob {
    /// Its id, unique in the container.
    pub id: JobId,
    /// Its process id in the container.
    pub pid: u32,
    /// Start, in milliseconds since 1970.
    pub began_ms: u64,
}

/// Starts a command and does not wait for it. Its limits apply as for a foreground command.
///
/// # Errors
/// [`Error::TooMany`] when `max_running` jobs run; errors of [`Link::start`].
pub async fn start(link: &Link, exec: Exec, max_running: u32) -> Result<StartedJob> {
    let begun = link.start(exec, Some(max_running)).await.map_err(|err| refused(err, max_running))?;
    // The link has compared it with the id that it sent.
    let id = JobId::parse(&begun.job).map_err(|err| Error::Invalid(err.to_string()))?;
    Ok(StartedJob { id, pid: begun.pid, began_ms: begun.at_ms })
}

fn refused(err: Runtime, limit: u32) -> Error {
    match err {
        Runtime::Refused(fault) if fault.code == ErrorCode::TooMany => {
            let current = fault.about.get("current").and_then(|it| it.parse().ok());
            Error::TooMany { limit, current: current.unwrap_or(limit) }
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use coracle_protocol::RpcError;

    use super::*;

    #[test]
    fn too_many_reports_the_number_of_running_jobs() {
        let mut fault = RpcError::new(ErrorCode::TooMany, "no");
        let message = |fault: &RpcError| refused(Runtime::Refused(fault.clone()), 32).to_string();
        assert_eq!(message(&fault), "32 jobs run in the container, and the limit is 32");
        fault.about.insert("current".into(), "33".into());
        assert_eq!(message(&fault), "33 jobs run in the container, and the limit is 32");
    }
}
