//! `workspace`: the containers of the session and the files in them, as the user sees them.

use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::Failure;
use coracle_prepare::session_tools::{self, ApplyResponse, DiffResponse, ExportResponse};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dispatch::{Effect, Operation};

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
