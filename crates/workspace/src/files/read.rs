//! `read_file`: lines of a text, or bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_protocol::workspace::{LineEnding, TextRange, WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::{Path, shown};
use crate::response::{Result, fail};
use crate::{Alias, Code, Effect, Response, Tool, Workspace};

/// Read a file of the workspace: numbered lines of a text, or with `encoding="base64"` its bytes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The file.
    #[serde(alias = "file_path")]
    pub path: String,
    /// Lines (base64: bytes) to leave out at the start.
    #[serde(default)]
    #[schemars(with = "Option<u64>", extend("default" = 0))]
    pub offset: Option<i64>,
    /// Lines to read, at most 2000 (base64: bytes, at most 1048576).
    #[schemars(with = "Option<u64>", extend("default" = 2000))]
    pub limit: Option<i64>,
    /// `utf-8` or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "utf-8", "enum" = ["utf-8", "base64"]))]
    pub encoding: Option<Encoding>,
}

/// How content is written in a call and in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// Text.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Bytes.
    #[serde(rename = "base64")]
    Base64,
}

impl Encoding {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Base64 => "base64",
        }
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReadFileResult {
    /// The file.
    pub path: String,
    /// Numbered lines, or base64.
    pub content: String,
    /// Lines (base64: bytes) before it.
    pub offset: u64,
    /// Lines (base64: bytes) in it.
    pub limit: u64,
    /// Lines of the file; unknown for base64.
    pub total_lines: Option<u64>,
    /// There is more.
    pub truncated: bool,
    /// Where it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// `utf-8` or `base64`.
    #[schemars(with = "String")]
    pub encoding: Encoding,
    /// `lf`, `crlf`, `mixed` or `none`.
    #[schemars(with = "String")]
    pub line_ending: LineEnding,
    /// Its last line has an end.
    pub final_newline: bool,
}

/// Lines of one call.
const MAX_LINES: u64 = 2000;

/// Bytes of lines in one call.
const MAX_TEXT: u32 = 256 << 10;

/// Bytes of one call, by default and at most.
const BYTES: (u64, u64) = (256 << 10, 1 << 20);

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const ALIASES: &'static [Alias] = &[Alias { name: "file_path", of: "path" }];
    const EFFECT: Effect = Effect::ReadOnly;
    type Value = ReadFileResult;

    async fn call(self, workspace: &Workspace) -> Result<Response<ReadFileResult>> {
        let path = Path::file(&self.path, &workspace.settings.paths)?;
        let (offset, limit) = self.range()?;
        let place = path.as_str().to_owned();
        let act = match self.encoding.unwrap_or_default() {
            Encoding::Utf8 => {
                let limit = limit.unwrap_or(MAX_LINES).min(MAX_LINES);
                WorkspaceOp::Lines { path: place, offset, limit, most: MAX_TEXT }
            }
            Encoding::Base64 => {
                let limit = limit.unwrap_or(BYTES.0).min(BYTES.1);
                WorkspaceOp::Bytes { path: place, offset, limit: u32::try_from(limit).unwrap_or(u32::MAX) }
            }
        };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::File, |reply| match reply {
            WorkspaceReply::Text(text) => lines(&path, &text),
            WorkspaceReply::Bytes { content, offset, size } => bytes(&path, &content, offset, size),
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<ReadFileResult>) -> String {
        let Some(read) = &answer.value else { return String::new() };
        let content = if read.content.is_empty() { "<empty>" } else { &read.content };
        match read.total_lines {
            Some(total) => {
                let (first, last) = (read.offset + u64::from(read.limit > 0), read.offset + read.limit);
                format!("{} - lines {first}-{last} of {total}\n\n{content}", read.path)
            }
            None => format!("{} - {} bytes from {}\n\n{content}", read.path, read.limit, read.offset),
        }
    }
}

impl ReadFile {
    fn range(&self) -> Result<(u64, Option<u64>)> {
        let Ok(offset) = u64::try_from(self.offset.unwrap_or(0)) else {
            return fail(Code::InvalidRange, "offset must be non-negative.");
        };
        match self.limit {
            None => Ok((offset, None)),
            Some(limit) if limit > 0 => Ok((offset, Some(limit.unsigned_abs()))),
            Some(_) => fail(Code::InvalidRange, "limit must be a positive integer."),
        }
    }
}

fn lines(path: &Path, text: &TextRange) -> Response<ReadFileResult> {
    let number = |index: usize| text.offset + index as u64 + 1;
    let mut shown_lines: Vec<String> =
        text.lines.iter().enumerate().map(|(index, line)| format!("{:>4} | {line}", number(index))).collect();
    if let Some(first) = shown_lines.first_mut().filter(|_| text.cut > 0) {
        first.push_str(&format!(" … [line cut: {} bytes]", text.cut));
    }
    let next = text.offset + text.lines.len() as u64;
    let truncated = next < text.total || text.cut > 0;
    let message = match text.lines.len() {
        0 => format!("Read file {path} (no lines returned)."),
        _ => format!("Read file {path} (lines {}-{next}).", text.offset + 1),
    };
    let value = ReadFileResult {
        path: shown(path.as_str()),
        content: shown_lines.join("\n"),
        offset: text.offset,
        limit: text.lines.len() as u64,
        total_lines: Some(text.total),
        truncated,
        next_offset: (next < text.total).then_some(next),
        size_bytes: text.size,
        encoding: Encoding::Utf8,
        line_ending: text.ending,
        final_newline: text.final_newline,
    };
    Response::done(message, value)
}

fn bytes(path: &Path, content: &[u8], offset: u64, size: u64) -> Response<ReadFileResult> {
    let length = content.len() as u64;
    let next = offset + length;
    let value = ReadFileResult {
        path: shown(path.as_str()),
        content: STANDARD.encode(content),
        offset,
        limit: length,
        total_lines: None,
        truncated: next < size,
        next_offset: (next < size).then_some(next),
        size_bytes: size,
        encoding: Encoding::Base64,
        line_ending: LineEnding::None,
        final_newline: false,
    };
    Response::done(format!("Read file {path} ({length} bytes from {offset})."), value)
}
