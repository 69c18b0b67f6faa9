//! Lines of kept output that match.

use coracle_runtime::link::protocol;
use coracle_runtime::{JobId, Link};

use crate::{LineMatch, Position, Result, StreamSelector};

/// Asks for lines.
#[derive(Clone, Debug)]
pub struct Search {
    /// Of which job.
    pub job: JobId,
    /// Which output.
    pub part: StreamSelector,
    /// From where.
    pub from: Position,
    /// A regular expression of at most 1 KiB, matched against each line.
    pub pattern: String,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match.
    pub context: u32,
    /// At most so many matches.
    pub max_matches: u32,
}

/// Lines that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In order.
    pub matches: Vec<LineMatch>,
    /// There are more.
    pub truncated: bool,
    /// Where to go on.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The job runs.
    pub running: bool,
}

impl Found {
    /// Nothing more will come.
    #[must_use]
    pub fn eof(&self) -> bool {
        !self.running && !self.truncated && self.next >= self.total
    }

    fn of(told: protocol::SearchResult, most: u32) -> Self {
        let protocol::SearchResult { mut matches, more, next, first, total, running } = told;
        let too_many = matches.len() > most as usize;
        matches.truncate(most as usize);
        Self { matches, truncated: more || too_many, next, first, total, running }
    }
}

/// Searches kept output.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for what is no pattern; [`Error::NoSuchJob`](crate::Error::NoSuchJob); those
/// of the link.
pub async fn search(link: &Link, ask: Search) -> Result<Found> {
    let Search { job, part, from, pattern, ignore_case, context, max_matches: most } = ask;
    let search = protocol::SearchRequest { job: job.to_string(), part, from, pattern, ignore_case, context, most };
    Ok(Found::of(link.search(search).await?, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_matches_than_were_asked_for_are_cut() {
        let one = LineMatch { offset: 0, line: 1, text: "x".into(), before: vec![], after: vec![] };
        let told = |more| protocol::SearchResult {
            matches: vec![one.clone(); 3],
            more,
            next: 9,
            first: 0,
            total: 9,
            running: false,
        };
        let found = Found::of(told(false), 2);
        assert_eq!((found.matches.len(), found.truncated, found.eof()), (2, true, false));
        assert!(Found::of(told(false), 3).eof());
        assert!(!Found::of(told(true), 3).eof());
    }
}
