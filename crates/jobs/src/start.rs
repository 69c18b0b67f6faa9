//! A job begins.

use coracle_client::Link;
use coracle_protocol::ErrorCode;
use coracle_types::{Error as Runtime, Exec, JobId};

use crate::{Error, Result};

/// A job that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedJob {
    /// Its id, unique in the container.
    pub id: JobId,
    /// Its process id inside.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub began_ms: u64,
}

/// Starts a command and does not wait for it. Its limits end it as they would in the foreground.
///
/// # Errors
/// [`Error::TooMany`] when `max_running` jobs run; those of [`Link::start`].
pub async fn start(link: &Link, exec: Exec, max_running: u32) -> Result<StartedJob> {
    let begun = link.start(exec, Some(max_running)).await.map_err(|err| refused(err, max_running))?;
    // The link holds it against the id that it sent.
    let id = JobId::parse(&begun.job).map_err(|err| Error::Invalid(err.to_string()))?;
    Ok(StartedJob { id, pid: begun.pid, began_ms: begun.at_ms })
}

fn refused(err: Runtime, limit: u32) -> Error {
    match err {
        Runtime::Refused(fault) if fault.code == ErrorCode::TooMany => {
            let told = fault.about.get("current").and_then(|it| it.parse().ok());
            Error::TooMany { limit, current: told.unwrap_or(limit) }
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use coracle_protocol::RpcError;

    use super::*;

    #[test]
    fn too_many_says_how_many_run() {
        let mut fault = RpcError::new(ErrorCode::TooMany, "no");
        let said = |fault: &RpcError| refused(Runtime::Refused(fault.clone()), 32).to_string();
        assert_eq!(said(&fault), "32 jobs run in the container, and the limit is 32");
        fault.about.insert("current".into(), "33".into());
        assert_eq!(said(&fault), "33 jobs run in the container, and the limit is 32");
    }
}
