//! Shows, exports or applies the changes in a workspace.

use coracle_archive::transfer::Limits;
use coracle_context::context::Context;
use coracle_context::document::{Document, ProgramOutput, Render, StyledText, word};
use coracle_context::failure::{Code, Failure, slot_failure};
use coracle_context::git_programs;
use coracle_context::humanize::count;
use coracle_context::new_file::NewFile;
use coracle_context::workspace_mounts::ROOT;
use coracle_lifecycle::SessionContainers;
use coracle_protocol::workspace::FileDigest;
use coracle_runtime::Baseline;
use coracle_types::ContainerPath;
use coracle_workspace::{
    AppliedChanges, AppliedFile, ApplyOptions, FileDiff, GuestFs, SessionHandle, SkippedFile, SlotRole,
};
use jiff::Timestamp;
use serde::Serialize;

use super::provider::Provider;

/// The changes in a workspace.
#[derive(Debug, Serialize)]
pub struct DiffResponse {
    pub files: Vec<FileDiff>,
    pub count: usize,
    pub passed_over: Vec<SkippedFile>,
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

/// An archive of a workspace.
#[derive(Debug, Serialize)]
pub struct ExportResponse {
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    pub passed_over: Vec<SkippedFile>,
}

impl Render for ExportResponse {
    fn render(&self, _: Timestamp) -> Document {
        let (files, bytes) = (count(self.files, "file", "files"), count(self.bytes, "byte", "bytes"));
        let document = Document::line(format!("{files}, {bytes} in {}", self.path));
        Document { notes: skipped(&self.passed_over).collect(), ..document }
    }
}

/// The changes that were written to the host.
#[derive(Debug, Serialize)]
pub struct ApplyResponse {
    pub files: Vec<AppliedFile>,
    pub count: usize,
    pub protected: Vec<String>,
    pub passed_over: Vec<SkippedFile>,
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

/// A workspace with its import and the digests of its files.
struct WorkspaceState {
    slots: SessionContainers,
    files: GuestFs,
    baseline: Baseline,
    digests: Vec<FileDigest>,
    /// Marks the container as in use.
    _session: SessionHandle,
}

impl WorkspaceState {
    /// Opens the session's container, which is created again if necessary; its volume has to exist.
    async fn new(cx: &Context) -> Result<Self, Failure> {
        cx.configured()?;
        let slots = cx.session_containers()?;
        let all = slots.all().map_err(slot_failure)?;
        if !all.iter().any(|it| it.session == cx.call.session && it.role == SlotRole::Workspace) {
            return Err(Failure::new(Code::NotFound, format!("the session `{}` has no workspace", cx.call.session))
                .detail("kind", "workspace")
                .detail("name", &cx.call.session)
                .hint("the first call of a tool creates it; choose another session with `--session`"));
        }
        let session =
            Provider::new(cx)?.sessions()?.ensure(SlotRole::Workspace).await.map_err(|it| Failure::from(*it))?;
        let files = GuestFs::new(session.link.clone(), session.user, ContainerPath::parse(ROOT)?);
        let baseline = slots.baseline(&cx.call.session).map_err(coracle_lifecycle::Error::from)?.unwrap_or_default();
        let digests = coracle_workspace::digests(&files).await.map_err(coracle_lifecycle::Error::from)?;
        Ok(Self { slots, files, baseline, digests, _session: session })
    }

    fn keep(&self, cx: &Context, baseline: &Baseline) -> Result<(), Failure> {
        Ok(self.slots.keep_baseline(&cx.call.session, baseline).map_err(coracle_lifecycle::Error::from)?)
    }
}

/// Lists the changes since the files were copied in.
///
/// # Errors
/// `not_found` if the session has no workspace, and errors of reaching it.
pub async fn diff(cx: &Context) -> Result<DiffResponse, Failure> {
    let state = WorkspaceState::new(cx).await?;
    let changes = coracle_workspace::changes(&state.baseline, &state.digests);
    let files = coracle_workspace::diff(&state.files, &state.baseline, &changes).await;
    let files = files.map_err(coracle_lifecycle::Error::from)?;
    Ok(DiffResponse { count: files.len(), files, passed_over: changes.passed })
}

/// Packs all files into a new archive on the host.
///
/// # Errors
/// Those of [`diff`]; `path_exists` if a file of that name exists.
pub async fn export(cx: &Context, file: &str) -> Result<ExportResponse, Failure> {
    let archive = NewFile::create(cx, file)?;
    let mut state = WorkspaceState::new(cx).await?;
    let exported = coracle_workspace::export(&state.files, &state.digests, archive.open()?, limits(cx)).await;
    let exported = exported.map_err(coracle_lifecycle::Error::from)?;
    let path = archive.finish()?;
    let packed = state.digests.iter().filter(|it| !exported.passed.iter().any(|passed| passed.path == it.path));
    let packed = packed.filter_map(|it| Some((it.path.clone(), it.sha256.clone()?)));
    state.baseline.exported = packed.collect();
    state.keep(cx, &state.baseline)?;
    let moved = exported.moved;
    Ok(ExportResponse { path, files: moved.files, bytes: moved.bytes, passed_over: exported.passed })
}

/// Writes the changes to the directories that were copied in.
///
/// # Errors
/// Those of [`diff`]; `apply_conflict` and `apply_failed`, after which no file is changed.
pub async fn apply(cx: &Context, protected: bool) -> Result<ApplyResponse, Failure> {
    let state = WorkspaceState::new(cx).await?;
    if state.baseline.mounts.is_empty() {
        return Err(Failure::new(Code::NotFound, "no directory of the host was copied into this workspace")
            .hint("`workspace.mounts` names directories; `coracle workspace export FILE.tar` packs the files"));
    }
    still_allowed(cx, &state.baseline)?;
    let changes = coracle_workspace::changes(&state.baseline, &state.digests);
    let mounts = state.baseline.mounts.iter().map(|it| it.host.as_path());
    let options = ApplyOptions {
        protected: git_programs::protected(cx, mounts).await,
        also_protected: protected,
        scratch: cx.state()?.scratch(),
        limits: limits(cx),
    };
    let applied = coracle_workspace::apply(&state.files, &state.baseline, &changes, &options).await?;
    state.keep(cx, &applied.baseline)?;
    let AppliedChanges { files, protected, passed: passed_over, .. } = applied;
    Ok(ApplyResponse { count: files.len(), files, protected, passed_over })
}

/// Fails if a directory was removed from the allowed ones since it was copied.
fn still_allowed(cx: &Context, baseline: &Baseline) -> Result<(), Failure> {
    let policy = cx.policy()?;
    let problems: Vec<_> = baseline.mounts.iter().filter_map(|it| policy.host_path_problem("copy", &it.host)).collect();
    if problems.is_empty() { Ok(()) } else { Err(coracle_runtime::PolicyRefusal { problems }.into()) }
}

fn limits(cx: &Context) -> Limits {
    Limits { max_bytes: cx.config.copy.max_bytes.0, max_entries: cx.config.copy.max_entries }
}

#[cfg(test)]
mod tests {
    use coracle_workspace::ChangeKind;
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
