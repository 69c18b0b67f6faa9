//! `worktree_export`: the work of a workflow as a file of this host.

use std::path::PathBuf;

use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::bytes;
use coracle_host::fs::sync_entry;
use coracle_host::temporary;
use coracle_host::tree_sweep::sweep_path;
use coracle_prepare::process::Process;
use coracle_worktrees::changes::{ExportReport, PatchFormat};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Profile, Workflow, open};
use crate::dispatch::{Effect, Operation};

/// Write what a workflow did to a file of this host.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Export {
    /// The workflow's id.
    workflow: Workflow,
    /// The file, which must not be there yet.
    file: PathBuf,
    /// `diff`: all that changed, committed or not, for `git apply`. `mbox`: the commits, for `git am`. `bundle`: the commits,
    /// for `git fetch`.
    #[schemars(with = "Option<String>", extend("default" = "diff", "enum" = ["diff", "mbox", "bundle"]))]
    format: Option<PatchFormat>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorktreeExportResponse {
    file: PathBuf,
    #[serde(flatten)]
    exported: ExportReport,
}

impl Operation<Process> for Export {
    const NAME: &'static str = "worktree_export";
    const EFFECT: Effect = Effect::Mutating;
    type Response = WorktreeExportResponse;

    async fn run(self, process: &Process) -> Result<WorktreeExportResponse, Failure> {
        let cx = &process.context;
        let (sandbox, open) = open(process, self.profile, &self.workflow).await?;
        let path = cx.host.path(&self.file);
        let dir = path.parent().unwrap_or(&path).to_owned();
        let failed = |err: std::io::Error| {
            let code =
                if err.kind() == std::io::ErrorKind::AlreadyExists { Code::PathExists } else { Code::PathNotFound };
            Failure::new(code, format!("cannot write `{}`: {err}", path.display()))
                .hint("name a file that is not there")
        };
        // Written to a temporary file and renamed, so that no reader sees an incomplete file.
        sweep_path(&dir);
        let mut file = temporary::file_in(&dir).map_err(failed)?;
        let mut to = tokio::fs::File::from_std(file.as_file_mut().try_clone().map_err(failed)?);
        let format = self.format.unwrap_or(PatchFormat::Diff);
        let exported = sandbox.worktrees.export_patch(&open.inside, &self.workflow.0, format, &mut to).await?;
        to.sync_all().await.map_err(failed)?;
        file.persist_noclobber(&path).map_err(|err| failed(err.error))?;
        sync_entry(&path).map_err(failed)?;
        Ok(WorktreeExportResponse { file: path, exported })
    }
}

impl Render for WorktreeExportResponse {
    fn render(&self, _: Timestamp) -> Document {
        let size = bytes(self.exported.bytes);
        Document::line(StyledText::new().name(self.file.display()).plain(format!(" has {size}"))).timed()
    }
}
