//! `write_file`: makes a file, replaces it or adds to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_protocol::workspace::{self, OpenMode, WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::Encoding;
use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::Path;
use crate::response::{Result, fail};
use crate::{Alias, Code, Effect, Response, Tool, Workspace};

/// Bytes of content and of each text of an edit, at most.
pub(super) const MAX_CONTENT: usize = 32 << 20;

/// Write a file of the workspace. Directories above it are made. `create` fails if it is there; `overwrite` and `append` need
/// a file that is there to have been read before.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The file.
    #[serde(alias = "file_path")]
    pub path: String,
    /// What is written, as it stands: at most 32 MiB. A message over MCP has at most 8 MiB, so a larger file is sent in parts:
    /// the first with `create`, the others with `append`.
    pub content: String,
    /// `create`, `overwrite` or `append`.
    #[schemars(with = "Option<String>", extend("default" = "create", "enum" = ["create", "overwrite", "append"]))]
    pub mode: Option<OpenMode>,
    /// Encoding of `content`: `utf-8` or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "utf-8", "enum" = ["utf-8", "base64"]))]
    pub encoding: Option<Encoding>,
    /// The file can be run as a program.
    pub executable: Option<bool>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Written")]
pub struct WrittenFile {
    /// The file.
    pub path: String,
    /// Its new content, up to 32 KiB. An agent's front end leaves it out: the agent sent it, or has read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `create`, `overwrite`, `append` or `edit`.
    pub mode: &'static str,
    /// `utf-8` or `base64`.
    #[schemars(with = "String")]
    pub encoding: Encoding,
    /// Bytes.
    pub size_bytes: u64,
    /// How often it was seen to change.
    pub version: u64,
    /// Its content is another one.
    pub changed: bool,
    /// `content` is not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_truncated: Option<bool>,
    /// The texts of an edit were taken with the file's line ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_ending_adapted: Option<bool>,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const ALIASES: &'static [Alias] = &[Alias { name: "file_path", of: "path" }];
    const EFFECT: Effect = Effect::Mutating;
    type Value = WrittenFile;

    async fn call(self, workspace: &Workspace) -> Result<Response<WrittenFile>> {
        let path = Path::file(&self.path, &workspace.settings.paths)?;
        let (mode, encoding) = (self.mode.unwrap_or(OpenMode::Create), self.encoding.unwrap_or_default());
        let content = self.bytes(encoding)?;
        let length = content.len();
        let act = WorkspaceOp::Write {
            path: path.as_str().to_owned(),
            content: content.into(),
            how: mode,
            executable: self.executable,
            seen: workspace.settings.read_before_write,
            tool: Self::NAME.to_owned(),
        };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::File, |reply| match &reply {
            WorkspaceReply::Written(written) => {
                let message = match (mode, written.created) {
                    (OpenMode::Append, _) => format!("Appended to {path} ({length} bytes)."),
                    (_, true) => format!("Created {path} ({length} bytes)."),
                    (_, false) => format!("Updated {path} ({length} bytes)."),
                };
                Response::done(message, WrittenFile::from_report(written, mode_name(mode), encoding))
            }
            other => Response::failed(unexpected(other)),
        }))
    }

    fn render(answer: &Response<WrittenFile>) -> String {
        answer.value.as_ref().map(WrittenFile::line).unwrap_or_default()
    }
}

impl WriteFile {
    fn bytes(&self, encoding: Encoding) -> Result<Vec<u8>> {
        let content = match encoding {
            Encoding::Utf8 => self.content.clone().into_bytes(),
            Encoding::Base64 => match STANDARD.decode(self.content.trim()) {
                Ok(bytes) => bytes,
                Err(err) => return fail(Code::InvalidBase64, format!("content is no base64: {err}.")),
            },
        };
        if content.len() > MAX_CONTENT {
            return fail(Code::ContentTooLarge, "Content exceeds maximum length of 32MB.");
        }
        Ok(content)
    }
}

fn mode_name(mode: OpenMode) -> &'static str {
    match mode {
        OpenMode::Create => "create",
        OpenMode::Overwrite => "overwrite",
        OpenMode::Append => "append",
    }
}

impl WrittenFile {
    pub(super) fn from_report(written: &workspace::WriteReport, mode: &'static str, encoding: Encoding) -> Self {
        let content = match encoding {
            Encoding::Utf8 => written.begin.clone(),
            // The caller has it; as text it would be another one.
            Encoding::Base64 => String::new(),
        };
        let truncated = written.more || encoding == Encoding::Base64;
        Self {
            path: crate::paths::shown(&written.file.path),
            content: Some(content),
            mode,
            encoding,
            size_bytes: written.file.size,
            version: written.file.version,
            changed: written.changed,
            content_truncated: truncated.then_some(true),
            line_ending_adapted: written.adapted.then_some(true),
        }
    }

    pub(super) fn line(&self) -> String {
        format!("{} - mode {}, {} bytes ({})", self.path, self.mode, self.size_bytes, self.encoding.word())
    }
}
