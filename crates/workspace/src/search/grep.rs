//! `grep`: lines that match.

use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::{bounds, pattern};
use crate::file_errors::{NotFoundContext, unexpected};
use crate::paths::{Path, shown};
use crate::plural::plural;
use crate::response::{Result, fail};
use crate::{Code, Effect, Response, Tool, Workspace};

/// Find lines by a regular expression (Rust's syntax), in a directory and all below it or in one file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    /// The regular expression, against each line.
    pub pattern: String,
    /// Directory or file to look in; without it the whole workspace.
    pub path: Option<String>,
    /// Only files that match: by name (`*.py`), or with a slash by path.
    pub glob: Option<String>,
    /// Letters match in either case.
    #[schemars(extend("default" = false))]
    pub case_insensitive: Option<bool>,
    /// Lines before and after each match, at most 5.
    #[schemars(extend("default" = 0))]
    pub context: Option<u32>,
    /// Leave out what git would ignore.
    #[schemars(extend("default" = false))]
    pub respect_gitignore: Option<bool>,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GrepMatch {
    /// The file.
    pub path: String,
    /// From 1.
    pub line_number: u64,
    /// The line, at most 2000 characters.
    pub line: String,
    /// It was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_truncated: Option<bool>,
    /// Lines before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<String>>,
    /// Lines after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
}

/// Limit of lines.
const MAX_LINES: u32 = 1000;

/// Lines around a match.
const MAX_CONTEXT: u32 = 5;

impl Tool for Grep {
    const NAME: &'static str = "grep";
    const EFFECT: Effect = Effect::ReadOnly;
    type Value = Vec<GrepMatch>;

    async fn call(self, workspace: &Workspace) -> Result<Response<Vec<GrepMatch>>> {
        let rules = &workspace.settings.paths;
        let path = Path::directory(self.path.as_deref(), rules)?;
        if self.pattern.is_empty() {
            return fail(Code::InvalidPattern, "Pattern must not be empty.");
        }
        let glob =
            self.glob.as_deref().filter(|it| !it.trim().is_empty()).map(|it| pattern(it, rules.charset)).transpose()?;
        let context = self.context.unwrap_or(0).min(MAX_CONTEXT);
        let act = WorkspaceOp::Grep {
            path: path.as_str().to_owned(),
            pattern: self.pattern.clone(),
            glob,
            ignore_case: self.case_insensitive.unwrap_or(false),
            context,
            gitignore: self.respect_gitignore.unwrap_or(false),
            bounds: bounds(MAX_LINES),
        };
        let outcome = workspace.space(act).await?;
        Ok(outcome.respond(&path, NotFoundContext::Path, |reply| match reply {
            WorkspaceReply::Grepped { matches, omitted, complete } => {
                let value: Vec<_> = matches
                    .into_iter()
                    .map(|it| GrepMatch {
                        path: shown(&it.path),
                        line_number: it.line,
                        line: it.text,
                        line_truncated: it.cut.then_some(true),
                        before: (context > 0).then_some(it.before),
                        after: (context > 0).then_some(it.after),
                    })
                    .collect();
                let found = plural(value.len() as u64 + omitted, "match");
                Response::done(format!("Found {found} for pattern '{}'.", self.pattern), value).cut(omitted, complete)
            }
            other => Response::failed(unexpected(&other)),
        }))
    }

    fn render(answer: &Response<Vec<GrepMatch>>) -> String {
        let lines: Vec<String> = answer.value.iter().flatten().flat_map(GrepMatch::lines).collect();
        lines.join("\n")
    }
}

impl GrepMatch {
    /// The match as `path:12: line`, what stands around it as `path-11- line`.
    fn lines(&self) -> Vec<String> {
        let (path, number) = (&self.path, self.line_number);
        let around = |number: u64, line: &String| format!("{path}-{number}- {line}");
        let (before, after) = (self.before.as_deref().unwrap_or_default(), self.after.as_deref().unwrap_or_default());
        let first = number.saturating_sub(before.len() as u64);
        let mut lines: Vec<String> = (first..).zip(before).map(|(number, line)| around(number, line)).collect();
        lines.push(format!("{path}:{number}: {}", self.line));
        lines.extend((number + 1..).zip(after).map(|(number, line)| around(number, line)));
        lines
    }
}
