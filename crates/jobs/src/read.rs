//! Pages of a job's output.

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_types::JobId;

use crate::text::{LONGEST, rest_of_a_character, shown};
use crate::{Format, Position, Result, StreamSelector};

/// Maximum size of a page, in bytes.
pub const MAX_PAGE: u64 = 1 << 20;

/// A request for a page.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The job.
    pub job: JobId,
    /// The stream.
    pub part: StreamSelector,
    /// The position of the page's first byte.
    pub from: Position,
    /// The size limit in bytes, from 1 to [`MAX_PAGE`]; a page has at least one character.
    pub limit: u64,
    /// The format: a text page ends with a complete character.
    pub format: Format,
}

/// A page. Offsets count the bytes of the stream from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The output.
    pub bytes: Vec<u8>,
    /// Offset of the first byte: later than requested if older bytes were evicted.
    pub offset: u64,
    /// Offset of the next page.
    pub next: u64,
    /// Offset of the oldest retained byte.
    pub first: u64,
    /// Total number of bytes so far.
    pub total: u64,
    /// Whether the job runs.
    pub running: bool,
}

impl Page {
    /// Whether the page is the last one.
    #[must_use]
    pub fn eof(&self) -> bool {
        !self.running && self.next >= self.total
    }

    /// Cuts a piece of output to a page.
    pub(crate) fn new(page: protocol::OutputPage, bytes: Vec<u8>, limit: u64, format: Format) -> Self {
        let protocol::OutputPage { offset, first, total, running, .. } = page;
        let end = offset.saturating_add(bytes.len() as u64);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let count = shown(&bytes, limit, format, running || end < total);
        let mut page = Self { bytes, offset, next: offset.saturating_add(count as u64), first, total, running };
        page.bytes.truncate(count);
        page
    }

    /// Removes the bytes of a character that began before the page.
    pub(crate) fn without_rest(mut self) -> Self {
        let rest = rest_of_a_character(&self.bytes);
        self.bytes.drain(..rest);
        self.offset = self.offset.saturating_add(rest as u64);
        self
    }
}

/// Reads a page of retained output. If bytes were evicted, the page starts later; see [`Page::offset`].
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); errors of the link.
pub async fn read(link: &Link, request: PageRequest) -> Result<Page> {
    let PageRequest { job, part, from, limit, format } = request;
    let limit = limit.clamp(1, MAX_PAGE);
    let piece = if format == Format::Text { limit.max(LONGEST as u64) } else { limit };
    let (page, bytes) = link.read(protocol::ReadRequest { job: job.to_string(), part, from, limit: piece }).await?;
    let page = Page::new(page, bytes, limit, format);
    // A byte that the request named is returned even if it is within a character.
    let named = matches!(from, Position::Offset(it) if u64::try_from(it) == Ok(page.offset));
    Ok(if format == Format::Text && !named { page.without_rest() } else { page })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(offset: u64, total: u64, running: bool) -> protocol::OutputPage {
        // `Page::new` must not trust the guest's value for the end of the page.
        protocol::OutputPage { offset, next: u64::MAX, first: 0, total, running }
    }

    fn check(page: protocol::OutputPage, bytes: &[u8], limit: u64) -> (u64, bool) {
        let page = Page::new(page, bytes.to_vec(), limit, Format::Text);
        (page.next, page.eof())
    }

    #[test]
    fn the_end_is_reached_when_the_job_ended_and_all_bytes_are_read() {
        assert_eq!(check(page(0, 3, false), b"abc", 10), (3, true));
        assert_eq!(check(page(0, 3, true), b"abc", 10), (3, false));
        assert_eq!(check(page(0, 4, false), b"abc", 3), (3, false));
        assert_eq!(check(page(0, 3, false), b"abc\n", 2), (2, false));
    }

    #[test]
    fn a_page_ends_at_a_characters_end() {
        assert_eq!(check(page(0, 9, false), "aß".as_bytes(), 2), (1, false));
        assert_eq!(check(page(0, 2, true), b"a\xc3", 10), (1, false));
        assert_eq!(check(page(0, 2, false), b"a\xc3", 10), (2, true));
    }

    #[test]
    fn a_page_begins_with_a_complete_character_unless_the_request_named_a_byte() {
        let page = Page::new(page(5, 9, false), "ßx".as_bytes()[1..].to_vec(), 9, Format::Text).without_rest();
        assert_eq!((page.offset, page.next, page.bytes.as_slice()), (6, 7, &b"x"[..]));
    }

    #[test]
    fn no_offset_of_a_guest_overflows() {
        assert_eq!(check(page(u64::MAX, u64::MAX, false), b"abc", 10), (u64::MAX, true));
    }
}
