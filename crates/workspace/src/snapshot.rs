//! Files that were touched.

use coracle_protocol::workspace::{TrackedFile, WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file_errors::{NotFoundContext, unexpected};
use crate::files::{shown_time, versioned};
use crate::paths::{Path, shown};
use crate::plural::plural;
use crate::response::Result;
use crate::{Effect, Response, Tool, Workspace};

/// A file that a tool or a command touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TouchedFile {
    /// The file.
    pub path: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Of its content; none for a large file.
    pub sha256: Option<String>,
    /// One more whenever its content was found changed.
    pub version: u64,
    /// First seen.
    pub created_at: String,
    /// Last found changed.
    pub updated_at: String,
    /// The tool that touched it last.
    pub last_tool: String,
    /// It is gone.
    pub deleted: bool,
}

impl From<&TrackedFile> for TouchedFile {
    fn from(it: &TrackedFile) -> Self {
        Self {
            path: shown(&it.path),
            size_bytes: it.size,
            sha256: it.sha256.clone(),
            version: it.version,
            created_at: shown_time(it.created_ms),
            updated_at: shown_time(it.updated_ms),
            last_tool: it.last_tool.clone(),
            deleted: it.deleted,
        }
    }
}

/// List the files of the workspace that were touched, with their versions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {}

impl Tool for Snapshot {
    const NAME: &'static str = "snapshot";
    const EFFECT: Effect = Effect::ReadOnly;
    type Value = Vec<TouchedFile>;

    async fn call(self, workspace: &Workspace) -> Result<Response<Vec<TouchedFile>>> {
        let outcome = workspace.space(WorkspaceOp::Touched).await?;
        Ok(outcome.respond(&Path::root(), NotFoundContext::Path, |reply| match reply {
            WorkspaceReply::Touched(all) => {
                workspace.remember(&all);
                let value: Vec<_> = all.iter().map(TouchedFile::from).collect();
                Response::done(format!("{} touched.", plural(value.len() as u64, "file")), value)
            }
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<Vec<TouchedFile>>) -> String {
        let lines: Vec<String> = answer.value.iter().flatten().map(TouchedFile::line).collect();
        lines.join("\n")
    }
}

impl TouchedFile {
    fn line(&self) -> String {
        let gone = if self.deleted { ", deleted" } else { "" };
        let version = versioned(self.size_bytes, self.version, &self.updated_at);
        format!("{} - {version}, by {}{gone}", self.path, self.last_tool)
    }
}
