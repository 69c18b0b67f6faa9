//! A page of kept output, or the lines of it that match: what `job_read` and `shell_output` share.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_jobs::{Format, Found, LineMatch, MAX_PAGE, Page, Position, Read, Search, StreamSelector};
use coracle_runtime::{ByteSize, JobId, Link, Redactor};
use serde::Serialize;

use super::job::Encoding;
use crate::context::Context;
use crate::failure::Failure;
use crate::redaction;
use crate::warning::Warning;

/// What is asked of kept output, as the caller gave it.
#[derive(Clone, Debug)]
pub(crate) struct JobPage {
    pub(crate) job_id: JobId,
    pub(crate) stream: Option<StreamSelector>,
    pub(crate) offset: Option<i64>,
    pub(crate) line: Option<u64>,
    pub(crate) limit: Option<ByteSize>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) pattern: Option<String>,
    pub(crate) ignore_case: Option<bool>,
    pub(crate) context: Option<u32>,
    pub(crate) max_matches: Option<u32>,
}

/// The answer (containers.md 10.6): either a page or matches.
#[derive(Debug, Serialize)]
pub(crate) struct Output {
    job_id: JobId,
    stream: StreamSelector,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<LineMatch>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    next_offset: u64,
    first_offset: u64,
    total_bytes: u64,
    eof: bool,
    running: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<Warning>,
}

/// Bytes of a page whose caller names no limit.
const PAGE: ByteSize = ByteSize(32 << 10);

/// Bytes of a pattern.
const MAX_PATTERN: usize = 1 << 10;

/// What is asked for, every default decided.
#[derive(Debug)]
enum Ask {
    Page(Read),
    Matches(Search),
}

impl JobPage {
    /// Reads it over the link of its container.
    ///
    /// # Errors
    /// What is asked for makes no sense, or nobody has that job.
    pub(crate) async fn read(&self, cx: &Context, link: &Link, redactor: &Redactor) -> Result<Output, Failure> {
        match self.resolve()? {
            Ask::Page(read) => {
                let encoding = self.encoding.unwrap_or_default();
                let of = (&self.job_id, self.part());
                let read = async { redaction::page(redactor, link, of, coracle_jobs::read(link, read).await?).await };
                let read = cx.unless_cancelled(read).await?;
                Ok(page(self, &read, encoding))
            }
            Ask::Matches(search) => {
                let found = cx.unless_cancelled(async { Ok(coracle_jobs::search(link, search).await?) }).await;
                let mut found = found.map_err(|failure| failure.detail("field", "pattern"))?;
                for it in &mut found.matches {
                    let lines = it.before.iter_mut().chain(&mut it.after).chain([&mut it.text]);
                    lines.for_each(|line| *line = redaction::clean_text(redactor, line.as_bytes()));
                }
                Ok(matches(self, found))
            }
        }
    }

    /// Whether it makes sense.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.resolve().map(drop)
    }

    fn resolve(&self) -> Result<Ask, Failure> {
        let (job, part) = (self.job_id.clone(), self.part());
        let from = self.from()?;
        let limit = self.limit.unwrap_or(PAGE).0;
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Failure::invalid("limit", "from 1 byte to 1m").hint("go on at `next_offset` for more"));
        }
        let context = self.context.unwrap_or(2);
        if context > 20 {
            return Err(Failure::invalid("context", "at most 20").hint("read a page from the match's `offset` on"));
        }
        let max_matches = self.max_matches.unwrap_or(50);
        if !(1..=1000).contains(&max_matches) {
            return Err(Failure::invalid("max_matches", "from 1 to 1000").hint("go on at `next_offset` for more"));
        }
        let Some(pattern) = self.pattern.clone() else {
            let format = match self.encoding.unwrap_or_default() {
                Encoding::Text => Format::Text,
                Encoding::Base64 => Format::Bytes,
            };
            return Ok(Ask::Page(Read { job, part, from, limit, format }));
        };
        check_pattern(&pattern)?;
        let ignore_case = self.ignore_case.unwrap_or(false);
        Ok(Ask::Matches(Search { job, part, from, pattern, ignore_case, context, max_matches }))
    }

    fn part(&self) -> StreamSelector {
        self.stream.unwrap_or(StreamSelector::All)
    }

    fn from(&self) -> Result<Position, Failure> {
        match (self.offset.unwrap_or(0), self.line) {
            (_, Some(0)) => Err(Failure::invalid("line", "lines count from 1").hint("leave it out for the start")),
            // A model that fills in the default says nothing with it.
            (0, Some(line)) => Ok(Position::Line(line)),
            (_, Some(_)) => Err(Failure::conflicting(&["offset", "line"], "output is read from one place")),
            (offset, None) => Ok(Position::Offset(offset)),
        }
    }
}

/// A pattern that is worth sending.
pub(super) fn check_pattern(pattern: &str) -> Result<(), Failure> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(Failure::invalid("pattern", "from 1 byte to 1 KiB").hint("look for a shorter part of the line"));
    }
    Ok(())
}

fn page(ask: &JobPage, page: &Page, encoding: Encoding) -> Output {
    let data = match encoding {
        Encoding::Text => String::from_utf8_lossy(&page.bytes).into_owned(),
        Encoding::Base64 => STANDARD.encode(&page.bytes),
    };
    Output {
        job_id: ask.job_id.clone(),
        stream: ask.part(),
        data: Some(data),
        encoding: Some(encoding),
        offset: Some(page.offset),
        matches: None,
        match_count: None,
        truncated: None,
        next_offset: page.next,
        first_offset: page.first,
        total_bytes: page.total,
        eof: page.eof(),
        running: page.running,
        warnings: Vec::new(),
    }
}

fn matches(ask: &JobPage, found: Found) -> Output {
    Output {
        job_id: ask.job_id.clone(),
        stream: ask.part(),
        data: None,
        encoding: None,
        offset: None,
        match_count: Some(found.matches.len()),
        truncated: Some(found.truncated),
        next_offset: found.next,
        first_offset: found.first,
        total_bytes: found.total,
        eof: found.eof(),
        running: found.running,
        matches: Some(found.matches),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use coracle_jobs::Position;
    use serde_json::{Value, json};

    use super::Ask;

    fn check(more: Value) -> Result<Ask, String> {
        let mut call = json!({ "container": "web", "job_id": "0123abcd" });
        let Value::Object(more) = more else { panic!("no object") };
        call.as_object_mut().unwrap().extend(more);
        let ask: crate::commands::JobRead = serde_json::from_value(call).unwrap();
        ask.page().resolve().map_err(|failure| format!("{}: {}", failure.code.word(), failure.message))
    }

    fn from(more: Value) -> Position {
        match check(more).unwrap() {
            Ask::Page(it) => it.from,
            Ask::Matches(it) => it.from,
        }
    }

    #[test]
    fn a_place_is_an_offset_or_a_line() {
        assert_eq!(from(json!({})), Position::Offset(0));
        assert_eq!(from(json!({ "offset": -10 })), Position::Offset(-10));
        assert_eq!(from(json!({ "line": 3 })), Position::Line(3));
        assert_eq!(from(json!({ "line": 3, "offset": 0 })), Position::Line(3));
        let both = check(json!({ "line": 3, "offset": 1 })).unwrap_err();
        assert_eq!(both, "conflicting_fields: output is read from one place");
    }

    #[test]
    fn a_pattern_makes_it_a_search() {
        assert!(
            matches!(check(json!({ "pattern": "x" })), Ok(Ask::Matches(it)) if it.context == 2 && it.max_matches == 50)
        );
        assert!(matches!(check(json!({ "context": 2 })), Ok(Ask::Page(it)) if it.limit == 32768));
    }

    #[test]
    fn limits_are_kept() {
        for bad in [
            json!({ "limit": 0 }),
            json!({ "limit": "2m" }),
            json!({ "line": 0 }),
            json!({ "context": 21, "pattern": "x" }),
            json!({ "max_matches": 0, "pattern": "x" }),
            json!({ "pattern": "x".repeat(1025) }),
        ] {
            assert!(check(bad.clone()).is_err_and(|it| it.starts_with("invalid_input")), "{bad}");
        }
    }
}
