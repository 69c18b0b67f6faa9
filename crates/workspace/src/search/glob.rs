//! `glob`: files whose path matches.

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::{bounds, pattern};
use crate::file_errors::{NotFoundContext, unexpected};
use crate::files::{shown_time, versioned};
use crate::paths::{Path, shown};
use crate::plural::plural;
use crate::response::Result;
use crate::{Effect, Response, Tool, Workspace};

/// Find files by a pattern: `*` and `?` stay within a directory, `**` crosses them (`**/*.py`, `src/**`).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Glob {
    /// The pattern, against paths from `path` on.
    pub pattern: String,
    /// Directory to look in.
    #[schemars(extend("default" = "/"))]
    pub path: Option<String>,
    /// Leave out what git would ignore.
    #[schemars(extend("default" = false))]
    pub respect_gitignore: Option<bool>,
}

/// A file that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GlobMatch {
    /// The file.
    pub path: String,
    /// Bytes.
    pub size_bytes: u64,
    /// How often it was seen to change.
    pub version: u64,
    /// When its content changed last.
    pub updated_at: String,
}

/// Limit of files.
const MAX_FILES: u32 = 2000;

impl Tool for Glob {
    const NAME: &'static str = "glob";
    const EFFECT: Effect = Effect::ReadOnly;
    type Value = Vec<GlobMatch>;

    async fn call(self, workspace: &Workspace) -> Result<Response<Vec<GlobMatch>>> {
        let rules = &workspace.settings.paths;
        let path = Path::directory(self.path.as_deref(), rules)?;
        let act = WorkspaceOp::Glob {
            path: path.as_str().to_owned(),
            pattern: pattern(&self.pattern, rules.charset)?,
            gitignore: self.respect_gitignore.unwrap_or(false),
            bounds: bounds(MAX_FILES),
        };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::Directory, |reply| match reply {
            WorkspaceReply::Globbed { entries, omitted, complete } => {
                let value: Vec<_> = entries
                    .into_iter()
                    .map(|it| GlobMatch {
                        path: shown(&it.path),
                        size_bytes: it.size,
                        version: it.version,
                        updated_at: shown_time(it.changed_ms),
                    })
                    .collect();
                let found = plural(value.len() as u64 + omitted, "match");
                Response::done(format!("Found {found} under {path} for pattern '{}'.", self.pattern), value)
                    .cut(omitted, complete)
            }
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<Vec<GlobMatch>>) -> String {
        let line = |it: &GlobMatch| format!("{} - {}", it.path, versioned(it.size_bytes, it.version, &it.updated_at));
        let lines: Vec<String> = answer.value.iter().flatten().map(line).collect();
        lines.join("\n")
    }
}
