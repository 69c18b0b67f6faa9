//! A page of stored output, or the lines of it that match: what `job_read` and `shell_output` share.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_client::Link;
use coracle_context::arg_types::Size;
use coracle_context::context::Context;
use coracle_context::document::{Document, ProgramOutput, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::humanize::bytes;
use coracle_context::redaction;
use coracle_jobs::{
    Format, LineMatch, MAX_PAGE, Page, PageRequest, Position, SearchRequest, SearchResult, StreamSelector,
};
use coracle_types::{ByteSize, JobId, Redactor};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::Encoding;
use crate::shapes::MatchShape;

/// Which part of the stored output a call reads, apart from its start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct OutputSelection {
    /// `all` (in order of arrival), `stdout` or `stderr`. Offsets count the bytes of this stream.
    #[schemars(with = "Option<String>", extend("default" = "all", "enum" = ["all", "stdout", "stderr"]))]
    pub(crate) stream: Option<StreamSelector>,
    /// Line to begin at, from 1, in place of `offset`.
    pub(crate) line: Option<u64>,
    /// Bytes of a page, 1 to 1m.
    #[schemars(with = "Option<Size>", extend("default" = 32768))]
    pub(crate) limit: Option<ByteSize>,
    /// `text` (what is not UTF-8 becomes U+FFFD) or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "text", "enum" = ["text", "base64"]))]
    pub(crate) encoding: Option<Encoding>,
    /// Regular expression that a line has to match, at most 1 KiB.
    pub(crate) pattern: Option<String>,
    /// Letters match in either case.
    #[schemars(extend("default" = false))]
    pub(crate) ignore_case: Option<bool>,
    /// Lines before and after each match, at most 20.
    #[schemars(extend("default" = 2))]
    pub(crate) context: Option<u32>,
    /// Matches in one answer, 1 to 1000.
    #[schemars(extend("default" = 50))]
    pub(crate) max_matches: Option<u32>,
}

/// A page of a job's output, or the lines of it that match.
#[derive(Debug)]
pub(crate) struct JobPage<'a> {
    pub(crate) job_id: &'a JobId,
    pub(crate) offset: Option<i64>,
    pub(crate) selection: &'a OutputSelection,
}

/// The answer: either a page or matches.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct JobOutput {
    #[schemars(with = "String")]
    job_id: JobId,
    #[schemars(with = "String")]
    stream: StreamSelector,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<MatchShape>>")]
    matches: Option<Vec<LineMatch>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    pub(crate) next_offset: u64,
    first_offset: u64,
    pub(crate) total_bytes: u64,
    pub(crate) eof: bool,
    pub(crate) running: bool,
}

/// Bytes of a page whose caller names no limit.
const PAGE: ByteSize = ByteSize(32 << 10);

/// Bytes of a pattern.
const MAX_PATTERN: usize = 1 << 10;

/// The request with every default decided.
#[derive(Debug)]
enum OutputQuery {
    Page(PageRequest),
    Matches(SearchRequest),
}

impl JobPage<'_> {
    /// Reads it over the link of its container.
    ///
    /// # Errors
    /// If the request is invalid, or the job does not exist.
    pub(crate) async fn read(&self, cx: &Context, link: &Link, redactor: &Redactor) -> Result<JobOutput, Failure> {
        match self.resolve()? {
            OutputQuery::Page(read) => {
                let encoding = self.selection.encoding.unwrap_or_default();
                let of = redaction::JobStream { job: self.job_id, part: self.part() };
                let read = async { redaction::page(redactor, link, of, coracle_jobs::read(link, read).await?).await };
                let read = cx.unless_cancelled(read).await?;
                Ok(page(self, &read, encoding))
            }
            OutputQuery::Matches(search) => {
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

    fn resolve(&self) -> Result<OutputQuery, Failure> {
        let (job, part) = (self.job_id.clone(), self.part());
        let from = self.from()?;
        let limit = self.selection.limit.unwrap_or(PAGE).0;
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Failure::invalid("limit", "from 1 byte to 1m").hint("go on at `next_offset` for more"));
        }
        let context = self.selection.context.unwrap_or(2);
        if context > 20 {
            return Err(Failure::invalid("context", "at most 20").hint("read a page from the match's `offset` on"));
        }
        let max_matches = self.selection.max_matches.unwrap_or(50);
        if !(1..=1000).contains(&max_matches) {
            return Err(Failure::invalid("max_matches", "from 1 to 1000").hint("go on at `next_offset` for more"));
        }
        let Some(pattern) = self.selection.pattern.clone() else {
            let format = match self.selection.encoding.unwrap_or_default() {
                Encoding::Text => Format::Text,
                Encoding::Base64 => Format::Bytes,
            };
            return Ok(OutputQuery::Page(PageRequest { job, part, from, limit, format }));
        };
        check_pattern(&pattern)?;
        let ignore_case = self.selection.ignore_case.unwrap_or(false);
        let job = job.to_string();
        Ok(OutputQuery::Matches(SearchRequest { job, part, from, pattern, ignore_case, context, most: max_matches }))
    }

    fn part(&self) -> StreamSelector {
        self.selection.stream.unwrap_or(StreamSelector::All)
    }

    fn from(&self) -> Result<Position, Failure> {
        match (self.offset.unwrap_or(0), self.selection.line) {
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

fn page(request: &JobPage<'_>, page: &Page, encoding: Encoding) -> JobOutput {
    let data = match encoding {
        Encoding::Text => String::from_utf8_lossy(&page.bytes).into_owned(),
        Encoding::Base64 => STANDARD.encode(&page.bytes),
    };
    JobOutput {
        job_id: request.job_id.clone(),
        stream: request.part(),
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
    }
}

fn matches(request: &JobPage<'_>, found: SearchResult) -> JobOutput {
    JobOutput {
        job_id: request.job_id.clone(),
        stream: request.part(),
        data: None,
        encoding: None,
        offset: None,
        match_count: Some(found.matches.len()),
        truncated: Some(found.more),
        next_offset: found.next,
        first_offset: found.first,
        total_bytes: found.total,
        eof: !found.running && !found.more && found.next >= found.total,
        running: found.running,
        matches: Some(found.matches),
    }
}

impl Render for JobOutput {
    fn render(&self, _: Timestamp) -> Document {
        let Some(data) = &self.data else {
            let document = Document::default().and_lines(self.match_lines());
            return match self.truncated {
                Some(true) => document.note(StyledText::new().dim(format!("there are more; {}", self.continuation()))),
                _ => document,
            };
        };
        let bytes_of_page = match self.encoding {
            Some(Encoding::Base64) => STANDARD.decode(data).unwrap_or_default(),
            _ => data.clone().into_bytes(),
        };
        let document = Document::of_output(ProgramOutput::Job(bytes_of_page));
        match self.total_bytes.saturating_sub(self.next_offset) {
            0 => document,
            more => document.note(StyledText::new().dim(format!("{} more; {}", bytes(more), self.continuation()))),
        }
    }
}

impl JobOutput {
    /// How the rest is read. The tools for agents name the field in place of the option.
    fn continuation(&self) -> String {
        format!("go on with `--offset` {}", self.next_offset)
    }

    /// Lines that match, as `grep -n -C` shows them.
    fn match_lines(&self) -> Vec<StyledText> {
        let found = self.matches.as_deref().unwrap_or_default();
        if found.is_empty() {
            return vec!["no line matches".into()];
        }
        let context = |number: u64, line: &String| StyledText::new().dim(format!("{number}-")).plain(line);
        let mut lines = Vec::new();
        for (at, it) in found.iter().enumerate() {
            if at > 0 && !(it.before.is_empty() && it.after.is_empty()) {
                lines.push("--".into());
            }
            let first = it.line.saturating_sub(it.before.len() as u64);
            lines.extend(it.before.iter().zip(first..).map(|(line, number)| context(number, line)));
            lines.push(StyledText::new().dim(format!("{}:", it.line)).plain(&it.text));
            lines.extend(it.after.iter().zip(it.line.saturating_add(1)..).map(|(line, number)| context(number, line)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(more: Value) -> Result<OutputQuery, String> {
        let mut call = json!({ "container": "web", "job_id": "0123abcd" });
        let Value::Object(more) = more else { panic!("no object") };
        call.as_object_mut().unwrap().extend(more);
        let request: crate::commands::JobRead = serde_json::from_value(call).unwrap();
        request.page().resolve().map_err(|failure| format!("{}: {}", failure.code.word(), failure.message))
    }

    fn from(more: Value) -> Position {
        match check(more).unwrap() {
            OutputQuery::Page(it) => it.from,
            OutputQuery::Matches(it) => it.from,
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
            matches!(check(json!({ "pattern": "x" })), Ok(OutputQuery::Matches(it)) if it.context == 2 && it.most == 50)
        );
        assert!(matches!(check(json!({ "context": 2 })), Ok(OutputQuery::Page(it)) if it.limit == 32768));
    }

    #[test]
    fn limits_are_enforced() {
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

    fn output(matches: Vec<LineMatch>) -> JobOutput {
        JobOutput {
            job_id: JobId::parse("0123abcd").unwrap(),
            stream: StreamSelector::All,
            data: None,
            encoding: None,
            offset: None,
            match_count: Some(matches.len()),
            truncated: Some(true),
            matches: Some(matches),
            next_offset: 99,
            first_offset: 0,
            total_bytes: 101,
            eof: false,
            running: false,
        }
    }

    #[test]
    fn matches_look_as_those_of_grep_and_cannot_steer_a_terminal() {
        let (text, before, after) = ("boom\u{1b}[2J".to_owned(), vec!["a".into(), "b".into()], vec!["c".into()]);
        let found = output(vec![LineMatch { offset: 0, line: 7, text, before, after }]);
        insta::assert_snapshot!(coracle_context::document::rendered(&found, "2026-11-21T12:30:00Z"), @r"
        5-a
        6-b
        7:boom�[2J
        8-c
        ");
        let document = found.render(Timestamp::UNIX_EPOCH);
        assert_eq!(document.notes[0].to_string(), "there are more; go on with `--offset` 99");
        assert_eq!(coracle_context::document::rendered(&output(vec![]), "2026-11-21T12:30:00Z"), "no line matches");
    }

    #[test]
    fn a_page_is_bytes_and_the_rest_is_noted() {
        let page = JobOutput { data: Some("aGk=".into()), encoding: Some(Encoding::Base64), ..output(vec![]) };
        let document = page.render(Timestamp::UNIX_EPOCH);
        assert_eq!(document.output, Some(ProgramOutput::Job(b"hi".to_vec())));
        assert_eq!(document.notes[0].to_string(), "2 bytes more; go on with `--offset` 99");
        let whole = JobOutput { next_offset: 101, ..page };
        assert_eq!(whole.render(Timestamp::UNIX_EPOCH).notes, []);
    }
}
