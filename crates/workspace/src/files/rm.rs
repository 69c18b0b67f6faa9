//! `rm`: removes a file or a tree.

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::{Path, shown};
use crate::plural::plural;
use crate::response::{Result, fail};
use crate::{Code, Effect, Failure, Response, Tool, Workspace};

/// Remove a file, a link (not what it leads to) or a directory with all that is in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rm {
    /// What is removed.
    pub path: String,
}

/// Something that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeleteEntry {
    /// What was removed.
    pub path: String,
    /// Files and links.
    pub deleted_files: u64,
    /// Directories.
    pub deleted_directories: u64,
}

/// A removal that takes longer is given up.
const WITHIN_MS: u64 = 60_000;

impl Tool for Rm {
    const NAME: &'static str = "rm";
    const EFFECT: Effect = Effect::Mutating;
    type Value = DeleteEntry;

    async fn call(self, workspace: &Workspace) -> Result<Response<DeleteEntry>> {
        let rules = &workspace.settings.paths;
        if self.path.trim().is_empty() {
            return fail(Code::PathEmpty, "The path must not be empty.");
        }
        let path = Path::directory(Some(&self.path), rules)?;
        if path.is_root() {
            return fail(Code::RootRefused, "Cannot delete root directory.");
        }
        let act =
            WorkspaceOp::Remove { path: path.as_str().to_owned(), within_ms: WITHIN_MS, tool: Self::NAME.to_owned() };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::Removed, |reply| match reply {
            WorkspaceReply::Removed { files, directories, complete } => {
                let value =
                    DeleteEntry { path: shown(path.as_str()), deleted_files: files, deleted_directories: directories };
                let message = format!("Deleted {} under {path}.", plural(files.max(1), "entry"));
                let done = Response::done(message, value);
                if complete { done } else { incomplete(done) }
            }
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<DeleteEntry>) -> String {
        answer.value.as_ref().map(|it| format!("Removed entries under {}", it.path)).unwrap_or_default()
    }
}

fn incomplete(done: Response<DeleteEntry>) -> Response<DeleteEntry> {
    let failed = Response::failed(Failure::new(Code::RmIncomplete, "Removal is incomplete."));
    Response { value: done.value, ..failed }
}
