//! Pages of what a job printed.

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_types::JobId;

use crate::text::{LONGEST, rest_of_a_character, shown};
use crate::{Format, Position, Result, StreamSelector};

/// Bytes of a page, at most.
pub const MAX_PAGE: u64 = 1 << 20;

/// A request for a page.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The job.
    pub job: JobId,
    /// The stream.
    pub part: StreamSelector,
    /// The position of the first byte.
    pub from: Position,
    /// At most so many bytes, from 1 to [`MAX_PAGE`]; one character is given in any case.
    pub limit: u64,
    /// The format: a text ends at a character's end.
    pub format: Format,
}

/// A page. Offsets count bytes of the part from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The output.
    pub bytes: Vec<u8>,
    /// Offset of the first byte: later than requested, if older bytes were evicted.
    pub offset: u64,
    /// Offset of the next page.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The job runs.
    pub running: bool,
}

impl Page {
    /// Nothing more will come.
    #[must_use]
    pub fn eof(&self) -> bool {
        !self.running && self.next >= self.total
    }

    /// Cuts a piece of output to a page.
    pub(crate) fn new(told: protocol::OutputPage, bytes: Vec<u8>, limit: u64, format: Format) -> Self {
        let protocol::OutputPage { offset, first, total, running, .. } = told;
        let end = offset.saturating_add(bytes.len() as u64);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let count = shown(&bytes, limit, format, running || end < total);
        let mut page = Self { bytes, offset, next: offset.saturating_add(count as u64), first, total, running };
        page.bytes.truncate(count);
        page
    }

    /// Without the rest of a character that began before it.
    pub(crate) fn without_rest(mut self) -> Self {
        let rest = rest_of_a_character(&self.bytes);
        self.bytes.drain(..rest);
        self.offset = self.offset.saturating_add(rest as u64);
        self
    }
}

/// Reads a page of retained output. Evicted bytes are left out: [`Page::offset`] has the offset of the first byte.
///
/// # Errors
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); those of the link.
pub async fn read(link: &Link, ask: PageRequest) -> Result<Page> {
    let PageRequest { job, part, from, limit, format } = ask;
    let limit = limit.clamp(1, MAX_PAGE);
    let piece = if format == Format::Text { limit.max(LONGEST as u64) } else { limit };
    let (told, bytes) = link.read(protocol::ReadRequest { job: job.to_string(), part, from, limit: piece }).await?;
    let page = Page::new(told, bytes, limit, format);
    // A named byte is returned even within a character.
    let named = matches!(from, Position::Offset(it) if u64::try_from(it) == Ok(page.offset));
    Ok(if format == Format::Text && !named { page.without_rest() } else { page })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(offset: u64, total: u64, running: bool) -> protocol::OutputPage {
        // A guest that lies about where the page ends is not believed.
        protocol::OutputPage { offset, next: u64::MAX, first: 0, total, running }
    }

    fn check(told: protocol::OutputPage, bytes: &[u8], limit: u64) -> (u64, bool) {
        let page = Page::new(told, bytes.to_vec(), limit, Format::Text);
        (page.next, page.eof())
    }

    #[test]
    fn the_end_is_reached_when_the_job_ended_and_nothing_is_left() {
        assert_eq!(check(told(0, 3, false), b"abc", 10), (3, true));
        assert_eq!(check(told(0, 3, true), b"abc", 10), (3, false));
        assert_eq!(check(told(0, 4, false), b"abc", 3), (3, false));
        assert_eq!(check(told(0, 3, false), b"abc\n", 2), (2, false));
    }

    #[test]
    fn a_page_ends_at_a_characters_end() {
        assert_eq!(check(told(0, 9, false), "aß".as_bytes(), 2), (1, false));
        assert_eq!(check(told(0, 2, true), b"a\xc3", 10), (1, false));
        assert_eq!(check(told(0, 2, false), b"a\xc3", 10), (2, true));
    }

    #[test]
    fn a_page_begins_at_a_characters_start_where_no_byte_was_named() {
        let page = Page::new(told(5, 9, false), "ßx".as_bytes()[1..].to_vec(), 9, Format::Text).without_rest();
        assert_eq!((page.offset, page.next, page.bytes.as_slice()), (6, 7, &b"x"[..]));
    }

    #[test]
    fn no_offset_of_a_guest_overflows() {
        assert_eq!(check(told(u64::MAX, u64::MAX, false), b"abc", 10), (u64::MAX, true));
    }
}
