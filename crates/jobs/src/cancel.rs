//! Cancellation of a job.

use std::time::Duration;

use coracle_client::Link;
use coracle_types::JobId;

use crate::{Job, Result};

/// The result of a cancellation.
#[derive(Clone, Debug)]
pub struct CancelReport {
    /// The job or processes it left were running, and this request ended them.
    pub cancelled: bool,
    /// The job's current state.
    pub job: Job,
}

/// Ends a job with its process tree: TERM, `grace`, KILL. Returns when the tree has ended.
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); errors of the link.
pub async fn cancel(link: &Link, id: &JobId, grace: Duration) -> Result<CancelReport> {
    let (cancelled, info) = link.cancel(id, grace).await?;
    Ok(CancelReport { cancelled, job: Job::from_info(id.clone(), info) })
}
