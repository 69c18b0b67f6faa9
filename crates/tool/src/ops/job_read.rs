//! `job_read`: what a job printed, page by page or by lines that match.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_jobs::{Format, Found, From, MAX_PAGE, Match, Page, Part, Read, Search};
use coracle_runtime::{ByteSize, Handle, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{Encoding, Guided, guided};
use crate::args::{Name, Size};
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;
use crate::reach::Warning;

/// Read kept output of a job, or of an `exec` whose output was cut: a page from `offset` or `line` on, or with `pattern`
/// the lines that match. `next_offset` goes on where an answer ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRead {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// The job: 8 hex digits, from `exec_background`, `exec` or `jobs`.
    #[schemars(with = "Name")]
    job_id: JobId,
    /// `all` (in order of arrival), `stdout` or `stderr`. Offsets count the bytes of this stream.
    #[schemars(with = "Option<String>", extend("default" = "all"))]
    stream: Option<Part>,
    /// Byte of the output to begin at; negative counts from its end. `job_wait` looks at what comes from now on unless it
    /// is given.
    #[schemars(extend("default" = 0))]
    offset: Option<i64>,
    /// Line to begin at, from 1, in place of `offset`.
    line: Option<u64>,
    /// Bytes of a page, 1 to 1m.
    #[schemars(with = "Option<Size>", extend("default" = 32768))]
    limit: Option<ByteSize>,
    /// `text` (what is not UTF-8 becomes U+FFFD) or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "text"))]
    encoding: Option<Encoding>,
    /// Regular expression that a line has to match, at most 1 KiB.
    pattern: Option<String>,
    /// Letters match in either case.
    #[schemars(extend("default" = false))]
    ignore_case: Option<bool>,
    /// Lines before and after each match, at most 20.
    #[schemars(extend("default" = 2))]
    context: Option<u32>,
    /// Matches in one answer, 1 to 1000.
    #[schemars(extend("default" = 50))]
    max_matches: Option<u32>,
}

/// The answer (containers.md 10.6): either a page or matches.
#[derive(Debug, Serialize)]
pub(crate) struct Output {
    job_id: JobId,
    stream: Part,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<Match>>,
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
    warnings: Vec<Warning>,
}

/// Bytes of a page whose caller names no limit.
const PAGE: ByteSize = ByteSize(32 << 10);

/// Bytes of a pattern.
const MAX_PATTERN: usize = 1 << 10;

impl Operation for JobRead {
    const NAME: &'static str = "job_read";
    const ACTS: bool = false;
    type Answer = Output;

    async fn run(self, cx: &Context) -> Result<Output, Failure> {
        let ask = self.resolve()?;
        let Guided { link, warnings, .. } = guided(cx, &self.container, false).await?;
        let output = match ask {
            Ask::Page(read) => {
                let encoding = self.encoding.unwrap_or_default();
                let read = cx.unless_cancelled(async { Ok(coracle_jobs::read(&link, read).await?) }).await?;
                page(&self, &read, encoding)
            }
            Ask::Matches(search) => {
                let found = cx.unless_cancelled(async { Ok(coracle_jobs::search(&link, search).await?) }).await;
                matches(&self, found.map_err(|failure| failure.detail("field", "pattern"))?)
            }
        };
        Ok(Output { warnings, ..output })
    }
}

/// What is asked for, every default decided.
#[derive(Debug)]
enum Ask {
    Page(Read),
    Matches(Search),
}

impl JobRead {
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

    fn part(&self) -> Part {
        self.stream.unwrap_or(Part::All)
    }

    fn from(&self) -> Result<From, Failure> {
        match (self.offset.unwrap_or(0), self.line) {
            (_, Some(0)) => Err(Failure::invalid("line", "lines count from 1").hint("leave it out for the start")),
            // A model that fills in the default says nothing with it.
            (0, Some(line)) => Ok(From::Line(line)),
            (_, Some(_)) => Err(Failure::conflicting(&["offset", "line"], "output is read from one place")),
            (offset, None) => Ok(From::Offset(offset)),
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

fn page(ask: &JobRead, page: &Page, encoding: Encoding) -> Output {
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

fn matches(ask: &JobRead, found: Found) -> Output {
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
    use coracle_jobs::From;
    use serde_json::{Value, json};

    use super::{Ask, JobRead};

    fn check(more: Value) -> Result<Ask, String> {
        let mut call = json!({ "container": "web", "job_id": "0123abcd" });
        let Value::Object(more) = more else { panic!("no object") };
        call.as_object_mut().unwrap().extend(more);
        let ask: JobRead = serde_json::from_value(call).unwrap();
        ask.resolve().map_err(|failure| format!("{}: {}", failure.code.word(), failure.message))
    }

    fn from(more: Value) -> From {
        match check(more).unwrap() {
            Ask::Page(it) => it.from,
            Ask::Matches(it) => it.from,
        }
    }

    #[test]
    fn a_place_is_an_offset_or_a_line() {
        assert_eq!(from(json!({})), From::Offset(0));
        assert_eq!(from(json!({ "offset": -10 })), From::Offset(-10));
        assert_eq!(from(json!({ "line": 3 })), From::Line(3));
        assert_eq!(from(json!({ "line": 3, "offset": 0 })), From::Line(3));
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
