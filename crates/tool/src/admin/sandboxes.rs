//! `sandbox`: the sandboxes of all workflows.

use coracle_context::document::{Column, Document, Render, joined, optional, word};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::{ago, count};
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::{self, SandboxRow, Sandboxes};
use coracle_sandbox::SandboxKey;
use coracle_sandbox::provider::TeardownReport;
use coracle_types::{ProfileName, SandboxWarning, WorkflowId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};

/// A shorter beginning of a key is taken for a mistake.
const SHORTEST: usize = 4;

/// List sandboxes, with their workflows.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListSandboxes {}

#[derive(Debug, Serialize)]
pub(super) struct ListSandboxesResponse {
    count: usize,
    sandboxes: Vec<SandboxRow>,
}

impl Operation<Process> for ListSandboxes {
    const NAME: &'static str = "sandbox list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ListSandboxesResponse;

    async fn run(self, process: &Process) -> Result<ListSandboxesResponse, Failure> {
        let sandboxes = sandbox::overview(&process.context).await?;
        Ok(ListSandboxesResponse { count: sandboxes.len(), sandboxes })
    }
}

const COLUMNS: [Column; 5] = [
    Column::fixed("KEY"),
    Column::flexible("PROFILE").or_left_out(2),
    Column::flexible("WORKFLOWS"),
    Column::fixed("STATE"),
    Column::fixed("USED").or_left_out(1),
];

impl Render for ListSandboxesResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &SandboxRow| {
            let workflows = joined(&it.workflows);
            let of = it.domain.as_ref().map_or_else(|| workflows.clone(), |domain| format!("{domain}: {workflows}"));
            let used = ago(&optional(it.used_at), now);
            [it.key.to_string(), it.profile.to_string(), of, word(it.state), used].map(Into::into).to_vec()
        };
        Document::rows(&COLUMNS, &self.sandboxes, row, "no sandboxes; `coracle worktree create` makes one")
    }
}

/// Remove sandboxes with all that is in them; what only they have is saved first.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RemoveSandboxes {
    /// Their keys, or how those begin, as `list` shows them.
    #[serde(default)]
    keys: Vec<String>,
    /// All of them, also such as only the engine still knows.
    #[serde(default)]
    all: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct RemoveSandboxesResponse {
    removed: Vec<String>,
    saved: Vec<String>,
    errors: Vec<SandboxWarning>,
}

impl Operation<Process> for RemoveSandboxes {
    const NAME: &'static str = "sandbox remove";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = RemoveSandboxesResponse;

    async fn run(self, process: &Process) -> Result<RemoveSandboxesResponse, Failure> {
        let all = process.sandboxes();
        let report = match self.keys.as_slice() {
            [] if !self.all => Err(Failure::new(Code::MissingField, "required: `keys`")),
            [] => Box::pin(sandbox::teardown_all(all)).await,
            keys => Box::pin(remove_named(all, keys)).await,
        };
        let TeardownReport { mut removed, saved, errors } = report?;
        removed.sort();
        Ok(RemoveSandboxesResponse { removed, saved, errors })
    }
}

async fn remove_named(sandboxes: Sandboxes<'_>, keys: &[String]) -> Result<TeardownReport, Failure> {
    let all = sandbox::known(sandboxes.cx).await?;
    let mut chosen = Vec::new();
    for key in keys {
        let found: Vec<_> = all.iter().filter(|it| it.key.as_str().starts_with(key.as_str())).collect();
        match &found[..] {
            // A removed sandbox is no failure. A text that is not a key is an error.
            [] if SandboxKey::parse(key).is_some() => {}
            [it] if key.len() >= SHORTEST => chosen.push((*it).clone()),
            [] | [_] => {
                let failure = Failure::not_found("sandbox", key, &[]);
                return Err(failure.hint("`coracle sandbox list` shows the keys that there are"));
            }
            _ => return Err(Failure::invalid("keys", format!("several keys begin with `{key}`"))),
        }
    }
    chosen.sort_by(|a, b| a.key.cmp(&b.key));
    chosen.dedup_by(|a, b| a.key == b.key);
    sandbox::complete(sandbox::teardown(sandboxes, chosen).await)
}

impl Render for RemoveSandboxesResponse {
    fn render(&self, _: Timestamp) -> Document {
        let removed = count(self.removed.len() as u64, "sandbox", "sandboxes");
        let saved = self.saved.iter().map(|it| format!("  saved {it}").into());
        Document::line(format!("{removed} removed")).and_lines(saved)
    }
}

/// Show changes in shared files that your own git would act on.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReviewSandbox {
    /// Its id.
    workflow: String,
    /// The kind of sandbox [default: the one that has the workflow].
    profile: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReviewSandboxResponse {
    workflow: WorkflowId,
    directory: Option<String>,
    differences: Vec<SandboxWarning>,
}

impl Operation<Process> for ReviewSandbox {
    const NAME: &'static str = "sandbox review";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ReviewSandboxResponse;

    async fn run(self, process: &Process) -> Result<ReviewSandboxResponse, Failure> {
        let profile = self.profile.map(ProfileName::parse).transpose()?;
        let workflow = WorkflowId::parse(self.workflow)?;
        let sandbox = process.sandboxes().with_workflow(profile, &workflow).await?;
        let open = Box::pin(sandbox::opened(&process.context, &sandbox, &workflow)).await?;
        let differences = sandbox.worktrees.review(&open.inside).await?;
        Ok(ReviewSandboxResponse { workflow, directory: sandbox.shared_at(), differences })
    }
}

impl Render for ReviewSandboxResponse {
    /// Differences make the exit code 1, for a script: `coracle sandbox review … && git …`.
    fn render(&self, _: Timestamp) -> Document {
        let document = match (&self.directory, self.differences.as_slice()) {
            (None, _) => Document::line("its files are in its container, where your git does not go"),
            (Some(dir), []) => Document::line(format!("{dir} is as it was written, where git acts on it")),
            (Some(dir), found) => {
                Document::line(format!("in {dir}")).and_lines(found.iter().map(|it| format!("  {}", it.message).into()))
            }
        };
        Document { exit_code: u8::from(!self.differences.is_empty()), ..document }
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;

    use super::*;

    #[test]
    fn removed_sandboxes_and_saves_are_lines() {
        let (removed, saved) = (vec!["k".to_owned()], vec!["/state/saved/x".to_owned()]);
        let response = RemoveSandboxesResponse { removed, saved, errors: Vec::new() };
        assert_eq!(rendered(&response, "2026-01-02T00:00:00Z"), "1 sandbox removed\n  saved /state/saved/x");
    }

    #[test]
    fn a_review_names_the_directory_and_fails_with_differences() {
        let of = |directory: Option<&str>, found: &[&str]| ReviewSandboxResponse {
            workflow: WorkflowId::parse("issue-1").unwrap(),
            directory: directory.map(str::to_owned),
            differences: found
                .iter()
                .map(|it| SandboxWarning { code: "review".into(), message: (*it).into() })
                .collect(),
        };
        let text = |it: &ReviewSandboxResponse| rendered(it, "2026-01-02T00:00:00Z");
        assert!(text(&of(None, &[])).starts_with("its files are in its container"));
        assert_eq!(text(&of(Some("/a/k"), &[])), "/a/k is as it was written, where git acts on it");
        let found = of(Some("/a/k"), &["`x` was not there"]);
        assert_eq!(text(&found), "in /a/k\n  `x` was not there");
        assert_eq!(found.render(Timestamp::now()).exit_code, 1);
    }
}
