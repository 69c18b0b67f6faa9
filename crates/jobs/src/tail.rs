//! The last lines of a job.

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_protocol::LastLines;
use coracle_types::JobId;

use crate::read::Page;
use crate::{Format, Job, Result};

/// Maximum number of lines of a tail.
pub const MAX_LINES: u32 = 1000;

/// Maximum size of a tail, in bytes.
const MAX_BYTES: u64 = 32 << 10;

/// The last lines of both streams, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tail {
    /// The lines, at most 32 KiB.
    pub bytes: Vec<u8>,
    /// Offset of the output after the lines.
    pub next: u64,
    /// Bytes of both streams so far.
    pub total: u64,
}

/// A job and its last lines.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Its current state.
    pub job: Job,
    /// Its last lines. They may be newer than the state, but not older.
    pub tail: Tail,
}

/// Returns the status of a job.
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); errors of the link.
pub async fn poll(link: &Link, id: &JobId, lines: u32) -> Result<JobStatus> {
    // The state is read first, so that the lines of an ended job are complete.
    let job = Job::from_info(id.clone(), link.job(id).await?);
    Ok(JobStatus { tail: tail(link, id, lines).await?, job })
}

pub(crate) async fn tail(link: &Link, id: &JobId, lines: u32) -> Result<Tail> {
    let LastLines { lines, limit } = last_lines(lines);
    let (page, bytes) = link.tail(id, lines, limit).await?;
    Ok(Tail::new(page, bytes))
}

/// The request for a tail of `lines` lines.
pub(crate) fn last_lines(lines: u32) -> LastLines {
    LastLines { lines: u64::from(lines.min(MAX_LINES)), limit: MAX_BYTES }
}

impl Tail {
    pub(crate) fn new(page: protocol::OutputPage, bytes: Vec<u8>) -> Self {
        let page = Page::new(page, bytes, MAX_BYTES, Format::Text).without_rest();
        Self { bytes: page.bytes, next: page.next, total: page.total }
    }
}
