//! `shell_output`: the output that was cut from a tool result.

use coracle_client::Link;
use coracle_protocol::patterns::line_pattern;
use coracle_protocol::{Position, ReadRequest, SearchRequest, StreamSelector};
use coracle_types::{Error, JobId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output_cache::OutputCache;
use super::tool_output::ToolOutput;

/// Maximum size of a page, in bytes.
const PAGE: u64 = 32 << 10;
const MAX_PAGE: u64 = 1 << 20;

/// Maximum size of a pattern, in bytes.
const MAX_PATTERN: usize = 1 << 10;

/// Read all that a command printed or another tool answered, when its answer was cut: a page from `offset` or `line` on, or
/// with `pattern` the lines that match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellOutput {
    /// The `output_id` of the answer that was cut.
    output_id: String,
    /// `all` (in order of arrival), `stdout` or `stderr`. Offsets count the bytes of this stream.
    #[schemars(with = "Option<String>", extend("default" = "all"))]
    stream: Option<StreamSelector>,
    /// Byte of the output to begin at; negative counts from its end.
    #[schemars(extend("default" = 0))]
    offset: Option<i64>,
    /// Line to begin at, from 1, in place of `offset`.
    line: Option<u64>,
    /// Bytes of a page, at most 1048576.
    #[schemars(extend("default" = 32768))]
    limit: Option<u64>,
    /// Regular expression that a line has to match, at most 1 KiB.
    pattern: Option<String>,
    /// Letters match in either case.
    #[schemars(extend("default" = false))]
    ignore_case: Option<bool>,
    /// Lines before and after each match, at most 20.
    #[schemars(extend("default" = 2))]
    context: Option<u32>,
    /// Matches in one answer, at most 1000.
    #[schemars(extend("default" = 50))]
    max_matches: Option<u32>,
}

impl ShellOutput {
    pub(crate) const NAME: &'static str = "shell_output";

    pub(crate) async fn run(&self, cache: &OutputCache, link: &Link) -> ToolOutput {
        if self.pattern.as_ref().is_some_and(|it| it.is_empty() || it.len() > MAX_PATTERN) {
            return ("`pattern` has from 1 byte to 1 KiB.".into(), true);
        }
        if let Some(text) = cache.find(&self.output_id) {
            return self.of_text(text);
        }
        if JobId::parse(&self.output_id).is_err() {
            return expired();
        }
        let result = match &self.pattern {
            Some(pattern) => self.search(pattern, link).await,
            None => self.read(link).await,
        };
        match result {
            Ok(text) => (text, false),
            Err(Error::NoSuchJob(_)) => expired(),
            Err(err) => (format!("The output cannot be read: {err}."), true),
        }
    }

    fn limit(&self) -> u64 {
        self.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE)
    }

    fn context(&self) -> u32 {
        self.context.unwrap_or(2).min(20)
    }

    fn max_matches(&self) -> u32 {
        self.max_matches.unwrap_or(50).clamp(1, 1000)
    }

    fn from(&self) -> Position {
        match self.line.filter(|it| *it > 0) {
            Some(line) => Position::Line(line),
            None => Position::Offset(self.offset.unwrap_or(0)),
        }
    }

    async fn read(&self, link: &Link) -> coracle_types::Result<String> {
        let (job, part, limit) = (self.output_id.clone(), self.stream.unwrap_or(StreamSelector::All), self.limit());
        let (page, bytes) = link.read(ReadRequest { job, part, from: self.from(), limit }).await?;
        let next = page.offset.saturating_add(bytes.len() as u64);
        Ok(page_text(&String::from_utf8_lossy(&bytes), (page.offset, next, page.total)))
    }

    async fn search(&self, pattern: &str, link: &Link) -> coracle_types::Result<String> {
        let search = SearchRequest {
            job: self.output_id.clone(),
            part: self.stream.unwrap_or(StreamSelector::All),
            from: self.from(),
            pattern: pattern.to_owned(),
            ignore_case: self.ignore_case.unwrap_or(false),
            context: self.context(),
            most: self.max_matches(),
        };
        let found = link.search(search).await?;
        let lines = found.matches.iter().flat_map(|it| {
            let matched = format!("{}: {}", it.line, it.text);
            it.before.iter().cloned().chain([matched]).chain(it.after.iter().cloned()).chain([String::new()])
        });
        let mut text = lines.collect::<Vec<_>>().join("\n");
        if found.more {
            text.push_str(&format!("[more from offset {}]", found.next));
        }
        Ok(if text.is_empty() { "No line matches.".into() } else { text })
    }

    /// Searches cached text, with results in the format of [`search`](Self::search).
    fn search_text(&self, pattern: &str, text: &str) -> ToolOutput {
        let pattern = match line_pattern(pattern, self.ignore_case.unwrap_or(false)) {
            Ok(pattern) => pattern,
            Err(fault) => return (format!("{}.", fault.message), true),
        };
        let (most, context) = (self.max_matches() as usize, self.context() as usize);
        let lines: Vec<&str> = text.lines().collect();
        let start = text[..self.start(text)].lines().count();
        let mut matches = (start..lines.len()).filter(|at| pattern.is_match(lines[*at].as_bytes()));
        let shown: Vec<String> = matches.by_ref().take(most).map(|at| around(&lines, at, context)).collect();
        let more = matches.next().map(|at| format!("\n[more from line {}]", at + 1)).unwrap_or_default();
        (if shown.is_empty() { "No line matches.".into() } else { shown.join("\n") + &more }, false)
    }

    /// Reads or searches cached text.
    fn of_text(&self, text: &str) -> ToolOutput {
        if let Some(pattern) = &self.pattern {
            return self.search_text(pattern, text);
        }
        let start = self.start(text);
        let limit = usize::try_from(self.limit()).unwrap_or(usize::MAX);
        let end = text.floor_char_boundary(start.saturating_add(limit).min(text.len()));
        (page_text(&text[start..end], (start as u64, end as u64, text.len() as u64)), false)
    }

    /// The offset in a text at which a page begins.
    fn start(&self, text: &str) -> usize {
        let start = match self.from() {
            Position::Line(line) => {
                let skipped = usize::try_from(line - 1).unwrap_or(usize::MAX);
                text.split_inclusive('\n').take(skipped).map(str::len).sum()
            }
            Position::Offset(it) if it < 0 => {
                text.len().saturating_sub(usize::try_from(it.unsigned_abs()).unwrap_or(usize::MAX))
            }
            Position::Offset(it) => usize::try_from(it).unwrap_or(usize::MAX).min(text.len()),
        };
        text.floor_char_boundary(start)
    }
}

/// A matching line with its number and its context lines.
fn around(lines: &[&str], at: usize, context: usize) -> String {
    let shown = at.saturating_sub(context)..(at + context + 1).min(lines.len());
    let line = |it: usize| if it == at { format!("{}: {}", at + 1, lines[it]) } else { lines[it].to_owned() };
    shown.map(line).chain([String::new()]).collect::<Vec<_>>().join("\n")
}

fn page_text(text: &str, (from, next, total): (u64, u64, u64)) -> String {
    let more = if next < total { format!("; continue from offset {next}") } else { String::new() };
    format!("{text}\n[bytes {from} to {next} of {total}{more}]")
}

fn expired() -> ToolOutput {
    ("That output is no longer available. Run the command again, with less output or into a file.".into(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo error\nthree\nan Error 17\nfive\n";

    fn shell_output(fields: &serde_json::Value) -> ShellOutput {
        let mut all = serde_json::json!({ "output_id": "x" });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn found(fields: &serde_json::Value) -> (String, bool) {
        shell_output(fields).of_text(TEXT)
    }

    #[test]
    fn a_pattern_is_a_regular_expression_for_cached_text_too() {
        let plain = serde_json::json!({ "pattern": "^an [Ee]rror \\d+$", "context": 0 });
        assert_eq!(found(&plain), ("4: an Error 17\n".into(), false));
        let both = serde_json::json!({ "pattern": "ERROR( |$)", "ignore_case": true, "context": 1 });
        assert_eq!(found(&both), ("one\n2: two error\nthree\n\nthree\n4: an Error 17\nfive\n".into(), false));
        assert_eq!(found(&serde_json::json!({ "pattern": "a.*z" })), ("No line matches.".into(), false));
    }

    #[test]
    fn matches_are_limited_and_begin_at_the_requested_line() {
        let one = serde_json::json!({ "pattern": "o", "max_matches": 1, "context": 0 });
        assert_eq!(found(&one), ("1: one\n\n[more from line 2]".into(), false));
        let later = serde_json::json!({ "pattern": "o", "line": 3, "context": 0 });
        assert_eq!(found(&later), ("4: an Error 17\n".into(), false));
    }

    #[test]
    fn an_invalid_or_too_large_pattern_is_an_error_of_the_call() {
        for bad in ["(", "(?:(?:a{1000}){1000}){1000}"] {
            let (text, failed) = found(&serde_json::json!({ "pattern": bad }));
            assert!(failed && text.contains("pattern"), "{bad}: {text}");
        }
    }
}
