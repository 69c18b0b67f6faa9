//! `edit_file`: replaces a text in a file.

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::Deserialize;

use super::WrittenFile;
use super::read::Encoding;
use super::write::MAX_CONTENT;
use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::Path;
use crate::plural::plural;
use crate::response::{Result, fail};
use crate::{Alias, Code, Effect, Response, Tool, Workspace};

/// Replace a text in a file of the workspace that was read before. `old_string` has to be there exactly once, unless
/// `replace_all`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    /// The file.
    #[serde(alias = "file_path")]
    pub path: String,
    /// The text as it stands in the file, without line numbers.
    pub old_string: String,
    /// What stands there afterwards.
    pub new_string: String,
    /// Replace it wherever it is.
    #[schemars(extend("default" = false))]
    pub replace_all: Option<bool>,
}

impl Tool for EditFile {
    const NAME: &'static str = "edit_file";
    const ALIASES: &'static [Alias] = &[Alias { name: "file_path", of: "path" }];
    const EFFECT: Effect = Effect::Mutating;
    type Value = WrittenFile;

    async fn call(self, workspace: &Workspace) -> Result<Response<WrittenFile>> {
        let path = Path::file(&self.path, &workspace.settings.paths)?;
        if self.old_string.is_empty() {
            return fail(Code::OldStringEmpty, "old_string must not be empty.");
        }
        if self.old_string.len().max(self.new_string.len()) > MAX_CONTENT {
            return fail(Code::ContentTooLarge, "Replacement strings must be 32MB or fewer.");
        }
        let act = WorkspaceOp::Edit {
            path: path.as_str().to_owned(),
            old: self.old_string.into(),
            new: self.new_string.into(),
            all: self.replace_all.unwrap_or(false),
            seen: workspace.settings.read_before_write,
            tool: Self::NAME.to_owned(),
        };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::File, |reply| match &reply {
            WorkspaceReply::Written(written) => {
                let message = format!("Replaced {} in {path}.", plural(written.replaced, "occurrence"));
                Response::done(message, WrittenFile::from_report(written, "edit", Encoding::Utf8))
            }
            other => Response::failed(unexpected(other)),
        }))
    }

    fn render(answer: &Response<WrittenFile>) -> String {
        answer.value.as_ref().map(WrittenFile::line).unwrap_or_default()
    }
}
