//! Worktrees of workflows.

use coracle_types::{ProfileName, WorkflowId};
use jiff::Timestamp;
use serde_json::Value;

use super::{DIM, NAME, facts, list_of, plain, text};
use coracle_context::humanize::ago;

/// The commits of a workflow, one per line.
pub(super) fn log(answer: &Value, now: Timestamp) -> String {
    let commits = list_of(answer, "commits");
    if commits.is_empty() {
        return format!("{} has no commit of its own yet", text(answer, "branch"));
    }
    let line = |it: &Value| {
        let (commit, when) = (text(it, "commit"), it["at"].as_i64().and_then(|at| Timestamp::from_second(at).ok()));
        let when = when.map(|at| ago(&at.to_string(), now)).unwrap_or_default();
        let by = format!("{DIM}{}, {when}{DIM:#}", plain(&text(it, "author")));
        format!("{NAME}{}{NAME:#} {} {by}", commit.get(..12).unwrap_or(&commit), plain(&text(it, "subject")))
    };
    commits.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The location of a worktree, and the commands to enter it.
pub(super) fn opened(answer: &Value) -> String {
    let (profile, id) = (ProfileName::parse(text(answer, "profile")), WorkflowId::parse(text(answer, "workflow")));
    let arguments = profile.and_then(|it| Ok(it.workflow_arguments(&id?))).unwrap_or_default();
    let container: String = text(answer, "container").chars().take(12).collect();
    facts(&[
        ("branch", text(answer, "branch")),
        ("inside", text(answer, "path")),
        ("here", text(answer, "host_path")),
        ("container", format!("{container} ({})", text(answer, "engine"))),
        ("shell", format!("coracle worktree shell {arguments}")),
        ("command", format!("coracle worktree exec {arguments} -- git status")),
        ("commits", format!("coracle worktree log {arguments}")),
        ("changes", format!("coracle worktree diff {arguments}")),
    ])
    .join("\n")
}
