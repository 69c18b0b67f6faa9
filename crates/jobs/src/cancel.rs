//! A job is ended.

use std::time::Duration;

use coracle_client::Link;
use coracle_types::JobId;

use crate::{Job, Result};

/// The result of a cancellation.
#[derive(Clone, Debug)]
pub struct CancelReport {
    /// It ran, or had left something running, and this request ended it.
    pub cancelled: bool,
    /// Its state now.
    pub job: Job,
}

/// Ends a job with its tree: TERM, `grace`, KILL. Answers when it is gone.
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); those of the link.
pub async fn cancel(link: &Link, id: &JobId, grace: Duration) -> Result<CancelReport> {
    let (cancelled, told) = link.cancel(id, grace).await?;
    Ok(CancelReport { cancelled, job: Job::from_info(id.clone(), told) })
}
