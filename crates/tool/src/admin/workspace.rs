//! `workspace`: the containers of the session and the files in them, as the person sees them.

use coracle_context::context::Context;
use coracle_context::document::{Document, ProgramOutput, Render, StyledText, word};
use coracle_context::failure::Failure;
use coracle_context::humanize::count;
use coracle_workspace::{FileDiff, SkippedFile};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dispatch::{Effect, Operation};
use crate::session_tools::{self, ApplyResponse, DiffResponse, ExportResponse};

/// Show the containers of the session.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ShowSession {}

/// Facts of a session, which a person reads as JSON.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct SessionFacts(Map<String, Value>);

impl Operation for ShowSession {
    const NAME: &'static str = "workspace show";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    type Response = SessionFacts;

    async fn run(self, cx: &Context) -> Result<SessionFacts, Failure> {
        session_tools::show(cx).map(SessionFacts)
    }
}

impl Render for SessionFacts {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(serde_json::to_string_pretty(&self.0).unwrap_or_default())
    }
}

/// Print what to tell a model of its workspace.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ShowPrompt {}

#[derive(Debug, Serialize)]
pub(super) struct ShowPromptResponse {
    prompt: String,
}

impl Operation for ShowPrompt {
    const NAME: &'static str = "workspace prompt";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    type Response = ShowPromptResponse;

    async fn run(self, cx: &Context) -> Result<ShowPromptResponse, Failure> {
        Ok(ShowPromptResponse { prompt: Box::pin(session_tools::prompt(cx)).await })
    }
}

impl Render for ShowPromptResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(self.prompt.trim_end())
    }
}

/// Remove the containers of the session; changed files are saved.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EndSession {
    /// Give up changed files: for those that cannot be saved.
    #[serde(default)]
    discard: bool,
}

impl Operation for EndSession {
    const NAME: &'static str = "workspace end";
    const EFFECT: Effect = Effect::Irreversible;
    const DIAGNOSES: bool = true;
    type Response = SessionFacts;

    async fn run(self, cx: &Context) -> Result<SessionFacts, Failure> {
        cx.call.progress.message("saving and removing the containers of the session").await;
        let ended = match self.discard {
            true => Box::pin(session_tools::end_without_saving(cx)).await,
            false => Box::pin(session_tools::end(cx)).await,
        };
        ended.map(SessionFacts)
    }
}

/// Show what is not as it was copied in from the host.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DiffWorkspace {}

impl Operation for DiffWorkspace {
    const NAME: &'static str = "workspace diff";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = DiffResponse;

    async fn run(self, cx: &Context) -> Result<DiffResponse, Failure> {
        cx.call.progress.message("comparing the workspace with what was copied in").await;
        cx.unless_cancelled(session_tools::diff(cx)).await
    }
}

impl Render for DiffResponse {
    fn render(&self, _: Timestamp) -> Document {
        let patch: String = self.files.iter().filter_map(|it| it.diff.as_deref()).collect();
        let omitted = self.files.iter().filter_map(|FileDiff { path, change, note, .. }| {
            let (change, path) = (word(change), path.escape_debug());
            note.map(|note| format!("{change} `{path}`: no difference is shown: {note}").into())
        });
        let notes = omitted.chain(skipped(&self.passed_over)).collect();
        let output = ProgramOutput::Patch(patch.trim_end_matches('\n').to_owned());
        Document { notes, ..Document::of_output(output) }
    }
}

/// Pack all files of the workspace into an archive.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ExportWorkspace {
    /// The archive; there is no file of that name yet.
    file: String,
}

impl Operation for ExportWorkspace {
    const NAME: &'static str = "workspace export";
    const EFFECT: Effect = Effect::Mutating;
    type Response = ExportResponse;

    async fn run(self, cx: &Context) -> Result<ExportResponse, Failure> {
        cx.call.progress.message("packing the workspace").await;
        cx.unless_cancelled(session_tools::export(cx, &self.file)).await
    }
}

impl Render for ExportResponse {
    fn render(&self, _: Timestamp) -> Document {
        let (files, bytes) = (count(self.files, "file", "files"), count(self.bytes, "byte", "bytes"));
        let document = Document::line(format!("{files}, {bytes} in {}", self.path));
        Document { notes: skipped(&self.passed_over).collect(), ..document }
    }
}

/// Write what changed to the directories of the host that were copied in.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ApplyWorkspace {
    /// Also files of protected names, such as those in `.git`.
    #[serde(default)]
    protected: bool,
}

impl Operation for ApplyWorkspace {
    const NAME: &'static str = "workspace apply";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = ApplyResponse;

    async fn run(self, cx: &Context) -> Result<ApplyResponse, Failure> {
        cx.call.progress.message("writing the changes to this host").await;
        session_tools::apply(cx, self.protected).await
    }
}

impl Render for ApplyResponse {
    fn render(&self, _: Timestamp) -> Document {
        let lines = self.files.iter().map(|it| {
            let change = format!("{:<8}", word(it.change));
            StyledText::new().dim(change).plain(format!(" {}", it.path.escape_debug()))
        });
        let document = match self.files.len() as u64 {
            0 => Document::line("Nothing to bring back."),
            files => {
                Document::default().and_lines(lines).then(format!("Brought back {}.", count(files, "file", "files")))
            }
        };
        let protected = self.protected.iter().map(|it| {
            let rest = format!(" `{}`: a protected name; `--protected` takes it along", it.escape_debug());
            StyledText::new().doubtful("not brought back").plain(rest)
        });
        Document { notes: protected.chain(skipped(&self.passed_over)).collect(), ..document }
    }
}

fn skipped(files: &[SkippedFile]) -> impl Iterator<Item = StyledText> {
    files.iter().map(|SkippedFile { path, reason }| {
        StyledText::new().dim("passed over").plain(format!(" `{}`: {reason}", path.escape_debug()))
    })
}

#[cfg(test)]
mod tests {
    use coracle_workspace::{AppliedFile, ChangeKind};
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn applied_and_skipped_files_are_lines() {
        let file = |path: &str, change| AppliedFile { path: path.into(), change };
        let applied = ApplyResponse {
            files: vec![file("a.py", ChangeKind::Changed), file("b\n", ChangeKind::Deleted)],
            count: 2,
            protected: vec![".git/config".into()],
            passed_over: vec![SkippedFile { path: "l".into(), reason: "it is a link" }],
        };
        let document = applied.render(Timestamp::now());
        let notes = document.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_snapshot!(format!("{document}\n{notes}"), @r"
        changed  a.py
        deleted  b\n
        Brought back 2 files.
        not brought back `.git/config`: a protected name; `--protected` takes it along
        passed over `l`: it is a link
        ");
    }
}
