//! `rm`: removes a file or a tree.

use coracle_runtime::link::wire::space::{Act, Done};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Missing, failure, unexpected};
use crate::answer::Result;
use crate::count::count;
use crate::paths::{Path, shown};
use crate::{Answer, Code, Effect, Failure, Tool, Workspace};

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
    const EFFECT: Effect = Effect::Changes;
    type Value = DeleteEntry;

    async fn run(self, workspace: &Workspace) -> Answer<DeleteEntry> {
        self.remove(workspace).await.unwrap_or_else(|failure| Answer::failed(*failure))
    }

    fn render(answer: &Answer<DeleteEntry>) -> String {
        answer.value.as_ref().map(|it| format!("Removed entries under {}", it.path)).unwrap_or_default()
    }
}

impl Rm {
    async fn remove(self, workspace: &Workspace) -> Result<Answer<DeleteEntry>> {
        let charset = workspace.settings.path_charset;
        if self.path.trim().is_empty() {
            return Failure::boxed(Code::PathEmpty, "path must not be empty.");
        }
        let path = Path::directory(Some(&self.path), charset)?;
        if path.is_root() {
            return Failure::boxed(Code::RootRefused, "Cannot delete root directory.");
        }
        let act = Act::Remove { path: path.as_str().to_owned(), within_ms: WITHIN_MS, tool: Self::NAME.to_owned() };
        let there = workspace.space(act, &[]).await?;
        let answer = match there.done {
            Done::Removed { files, directories, complete } => {
                let value =
                    DeleteEntry { path: shown(path.as_str()), deleted_files: files, deleted_directories: directories };
                let message = format!("Deleted {} under {path}.", count(files.max(1), "entry"));
                let done = Answer::done(message, value);
                if complete { done } else { incomplete(done) }
            }
            Done::Not(trouble) => Answer::failed(failure(&trouble, &path.to_string(), Missing::Removed)),
            other => Answer::failed(unexpected(&other)),
        };
        Ok(answer.at(&there.session))
    }
}

fn incomplete(done: Answer<DeleteEntry>) -> Answer<DeleteEntry> {
    let failed = Answer::failed(Failure::new(Code::RmIncomplete, "Removal is incomplete."));
    Answer { value: done.value, ..failed }
}
