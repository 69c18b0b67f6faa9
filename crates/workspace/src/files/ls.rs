//! `ls`: what is in a directory.

use coracle_runtime::link::wire::space::{Act, Done};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FileInfo, Missing, failure, unexpected};
use crate::answer::Result;
use crate::count::count;
use crate::paths::Path;
use crate::{Answer, Effect, Tool, Workspace};

/// List a directory of the workspace, one level deep.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ls {
    /// Directory; without it the root of the workspace.
    pub path: Option<String>,
}

/// Entries that are told.
const MOST: u32 = 2000;

impl Tool for Ls {
    const NAME: &'static str = "ls";
    const EFFECT: Effect = Effect::Looks;
    type Value = Vec<FileInfo>;

    async fn run(self, workspace: &Workspace) -> Answer<Vec<FileInfo>> {
        self.list(workspace).await.unwrap_or_else(|failure| Answer::failed(*failure))
    }

    fn render(answer: &Answer<Vec<FileInfo>>) -> String {
        let lines: Vec<String> = answer.value.iter().flatten().map(FileInfo::line).collect();
        lines.join("\n")
    }
}

impl Ls {
    async fn list(self, workspace: &Workspace) -> Result<Answer<Vec<FileInfo>>> {
        let charset = workspace.settings.path_charset;
        let path = Path::directory(self.path.as_deref(), charset)?;
        let there = workspace.space(Act::List { path: path.as_str().to_owned(), most: MOST }, &[]).await?;
        let answer = match there.done {
            Done::Listed { entries, omitted, directories, files } => {
                let value = entries.iter().map(|it| FileInfo::of(it, charset)).collect();
                let (directories, files) = (count(directories, "subdir"), count(files, "file"));
                Answer::done(format!("Listed directory {path} ({directories}, {files})."), value).cut(omitted, true)
            }
            Done::Not(trouble) => Answer::failed(failure(&trouble, &path.to_string(), Missing::Directory)),
            other => Answer::failed(unexpected(&other)),
        };
        Ok(answer.at(&there.session))
    }
}
