//! `ls`: what is in a directory.

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileInfo;
use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::Path;
use crate::plural::plural;
use crate::response::Result;
use crate::{Effect, Response, Tool, Workspace};

/// List a directory of the workspace, one level deep.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ls {
    /// Directory; without it the root of the workspace.
    pub path: Option<String>,
}

/// Limit of entries.
const MAX_ENTRIES: u32 = 2000;

impl Tool for Ls {
    const NAME: &'static str = "ls";
    const EFFECT: Effect = Effect::ReadOnly;
    type Value = Vec<FileInfo>;

    async fn call(self, workspace: &Workspace) -> Result<Response<Vec<FileInfo>>> {
        let rules = &workspace.settings.paths;
        let path = Path::directory(self.path.as_deref(), rules)?;
        let outcome = workspace.space(WorkspaceOp::List { path: path.as_str().to_owned(), most: MAX_ENTRIES }).await?;
        Ok(outcome.respond(&path, NotFoundContext::Directory, |reply| match reply {
            WorkspaceReply::Listed { entries, omitted, directories, files } => {
                let value = entries.iter().map(|it| FileInfo::from_entry(it, rules.charset)).collect();
                let (directories, files) = (plural(directories, "subdir"), plural(files, "file"));
                Response::done(format!("Listed directory {path} ({directories}, {files})."), value).cut(omitted, true)
            }
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<Vec<FileInfo>>) -> String {
        let lines: Vec<String> = answer.value.iter().flatten().map(FileInfo::line).collect();
        lines.join("\n")
    }
}
