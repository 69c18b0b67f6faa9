//! The last lines of a job.

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_protocol::LastLines;
use coracle_types::JobId;

use crate::read::Page;
use crate::{Format, Job, Result};

/// Lines of a tail, at most.
pub const MAX_LINES: u32 = 1000;

/// Bytes of a tail, at most.
const MAX_BYTES: u64 = 32 << 10;

/// The last lines of both streams, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The lines, at most 32 KiB.
    pub bytes: Vec<u8>,
    /// Offset of the output after them.
    pub next: u64,
    /// Bytes of both streams so far.
    pub total: u64,
}

/// A job and its last lines.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Its state now.
    pub job: Job,
    /// Its last lines. They may be newer than the state, never older.
    pub tail: Tail,
}

/// The status of a job.
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); those of the link.
pub async fn poll(link: &Link, id: &JobId, lines: u32) -> Result<JobStatus> {
    // The job first, so that the lines of an ended job are complete.
    let job = Job::from_info(id.clone(), link.job(id).await?);
    Ok(JobStatus { tail: tail(link, id, lines).await?, job })
}

pub(crate) async fn tail(link: &Link, id: &JobId, lines: u32) -> Result<Tail> {
    let LastLines { lines, limit } = last_lines(lines);
    let (told, bytes) = link.tail(id, lines, limit).await?;
    Ok(Tail::new(told, bytes))
}

/// The request for a tail of so many lines.
pub(crate) fn last_lines(lines: u32) -> LastLines {
    LastLines { lines: u64::from(lines.min(MAX_LINES)), limit: MAX_BYTES }
}

impl Tail {
    pub(crate) fn new(told: protocol::OutputPage, bytes: Vec<u8>) -> Self {
        let page = Page::new(told, bytes, MAX_BYTES, Format::Text).without_rest();
        Self { bytes: page.bytes, next: page.next, total: page.total }
    }
}
