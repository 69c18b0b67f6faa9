//! `snapshot_export` and `snapshot_import`: snapshots to other machines and engines, and from them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::{Code, Failure};
use coracle_context::git_programs;
use coracle_context::humanize::bytes;
use coracle_context::progress::Amount;
use coracle_images::snapshot::ArchivedSnapshot;
use coracle_lifecycle::{HostFile, HostFileRules};
use coracle_prepare::image_build::not_for_snippets;
use coracle_prepare::resolve::{copyable, host_path};
use coracle_types::SnapshotName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::snapshot::snapshots;
use crate::target::may_use_snapshot;

/// How often an archive tells how much of it there is.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Write a snapshot to an OCI archive on the host.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SnapshotExport {
    /// Name of the snapshot.
    #[schemars(with = "Name")]
    snapshot: SnapshotName,
    /// Path on the host: absolute, `~/…`, or relative to the working directory. It lies beneath a directory that the
    /// user allows.
    host_path: String,
    /// Replace what has that name.
    #[schemars(extend("default" = false))]
    replace: Option<bool>,
}

/// Make a snapshot from an OCI archive of the host.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SnapshotImport {
    /// Path on the host: absolute, `~/…`, or relative to the working directory. It lies beneath a directory that the
    /// user allows.
    host_path: String,
    /// Name of the snapshot.
    #[schemars(with = "Option<Name>")]
    snapshot: Option<SnapshotName>,
    /// Replace what has that name.
    #[schemars(extend("default" = false))]
    replace: Option<bool>,
}

/// The answer of `snapshot_export`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ExportedSnapshot {
    #[schemars(with = "String")]
    snapshot: SnapshotName,
    #[schemars(with = "String")]
    host_path: PathBuf,
    size_bytes: u64,
    detail: String,
}

/// The answer of `snapshot_import`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ImportedSnapshot {
    #[schemars(with = "String")]
    snapshot: SnapshotName,
    /// The container that it was made of, as the archive says.
    container: String,
    image: String,
    image_id: String,
    size_bytes: u64,
    detail: String,
}

impl Operation for SnapshotExport {
    const NAME: &'static str = "snapshot_export";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<ExportedSnapshot>;
    type Response = ExportedSnapshot;

    async fn run(self, cx: &Context) -> Result<ExportedSnapshot, Failure> {
        let runtime = cx.runtime().await?;
        let snapshots = snapshots(cx, &cx.store()?)?;
        let snapshot = snapshots.find(&*runtime, &self.snapshot).await?;
        may_use_snapshot(cx, &snapshot)?;
        let file = new_file(cx, &self.host_path, self.replace.unwrap_or(false)).await?;
        let spool = spool(cx)?;
        // The archive of the engine, and then Coracle's.
        let whole = Amount { done_what: "written", done: 0, total: Some(snapshot.image.size_bytes * 2) };
        cx.call.progress.message(format!("writing snapshot {}", snapshot.name)).await;
        let watched = [duplicate(&spool)?, file.open()?];
        let into = file.open()?;
        let export = snapshots.export(&*runtime, &snapshot, spool, into);
        grows(cx, &watched, whole, export).await?;
        let size_bytes = watched[1].metadata().map_err(|err| failed(&self.host_path, &err))?.len();
        let host_path = file.finish().map_err(free_path)?;
        let detail = format!("`{}` is in `{}`", snapshot.name, host_path.display());
        Ok(ExportedSnapshot { snapshot: snapshot.name, host_path, size_bytes, detail })
    }
}

impl Operation for SnapshotImport {
    const NAME: &'static str = "snapshot_import";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<ImportedSnapshot>;
    type Response = ImportedSnapshot;

    async fn run(self, cx: &Context) -> Result<ImportedSnapshot, Failure> {
        let host = copyable(&host_path(&self.host_path, cx), cx)?;
        let file = host.file().map_err(|err| failed(&self.host_path, &err))?;
        let total = file.metadata().map_err(|err| failed(&self.host_path, &err))?.len();
        let archived = ArchivedSnapshot::open(file, cx.call.session.to_string()).await.map_err(refused)?;
        let runtime = cx.runtime().await?;
        let snapshots = snapshots(cx, &cx.store()?)?;
        let name = self.snapshot.unwrap_or_else(|| archived.name.clone());
        not_for_snippets(cx, &snapshots.reference(&name))?;
        let progress = cx.call.progress.clone();
        let note = move |text: &str| progress.note(text);
        let place = snapshots.place(&*runtime, name, self.replace.unwrap_or(false), &note).await?;
        let spool = spool(cx)?;
        cx.call.progress.message(format!("reading snapshot {}", archived.name)).await;
        let watched = [duplicate(&spool)?];
        let whole = Amount { done_what: "read", done: 0, total: Some(total) };
        let import = place.import(&*runtime, archived, spool, Timestamp::now());
        let snapshot = grows(cx, &watched, whole, import).await.map_err(refused)?;
        Ok(ImportedSnapshot {
            detail: format!("`{}` has the files of `{}`", snapshot.name, snapshot.of.container),
            container: snapshot.of.container,
            image: snapshot.reference.to_string(),
            image_id: snapshot.image.id.to_string(),
            size_bytes: snapshot.image.size_bytes,
            snapshot: snapshot.name,
        })
    }
}

/// A file of the host in a directory that the user allows.
async fn new_file(cx: &Context, text: &str, replace: bool) -> Result<HostFile, Failure> {
    let path = host_path(text, cx);
    let name = path.file_name().and_then(|it| it.to_str()).filter(|_| !text.ends_with('/'));
    let name = name.ok_or_else(|| Failure::invalid("host_path", "it names no file"))?;
    let dir = copyable(path.parent().unwrap_or(Path::new("/")), cx)?;
    if !dir.is_dir() {
        return Err(Failure::invalid("host_path", "its parent is no directory"));
    }
    let notes = cx.store()?.unfinished_copies();
    let protected = git_programs::protected(cx, [dir.real()]).await;
    let rules = HostFileRules { protected: &protected, notes: &notes };
    HostFile::create(&dir, name, replace, &rules).map_err(free_path)
}

/// A nameless file, which disappears after the call.
fn spool(cx: &Context) -> Result<File, Failure> {
    let scratch = cx.state()?.scratch();
    tempfile::tempfile_in(&scratch).map_err(|err| failed(&scratch.display().to_string(), &err))
}

fn duplicate(file: &File) -> Result<File, Failure> {
    file.try_clone().map_err(Failure::internal)
}

/// Reports how much of `whole` is done, from the length of these files.
async fn grows<T>(cx: &Context, files: &[File], whole: Amount, work: impl Future<Output = T>) -> T {
    let Amount { done_what, total, .. } = whole;
    let mut work = std::pin::pin!(work);
    let mut ticks = interval_at(Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => {
                let done = files.iter().filter_map(|it| Some(it.metadata().ok()?.len())).sum();
                cx.call.progress.amount(Amount { done_what, done, total: total.filter(|it| *it >= done) });
            }
        }
    }
}

/// What has the name can be replaced.
fn free_path(err: coracle_lifecycle::Error) -> Failure {
    let is_replaceable = matches!(err, coracle_lifecycle::Error::PathExists { .. });
    let failure = Failure::from(err);
    match failure.code {
        Code::PathExists if is_replaceable => failure.hint("choose another path, or say `replace: true`"),
        _ => failure,
    }
}

/// An archive is the caller's: its faults are those of the field that named it.
fn refused(err: coracle_images::snapshot::Error) -> Failure {
    use coracle_archive::oci::ImageError;
    use coracle_images::snapshot::Error;

    match &err {
        Error::Archive(ImageError::Io(_)) => err.into(),
        Error::Archive(_) | Error::NoSnapshot(_) => Failure::invalid("host_path", err.to_string())
            .hint("name an archive that `snapshot_export` wrote: an uncompressed tar"),
        _ => err.into(),
    }
}

fn failed(path: &str, err: &std::io::Error) -> Failure {
    Failure::new(Code::CopyFailed, format!("cannot use `{path}`: {err}")).detail("path", path)
}

impl Render for ExportedSnapshot {
    fn render(&self, _: Timestamp) -> Document {
        let Self { snapshot, host_path, size_bytes, .. } = self;
        let text = format!(" is in {}, {}", host_path.display(), bytes(*size_bytes));
        Document::line(StyledText::new().name(snapshot).plain(text)).timed()
    }
}

impl Render for ImportedSnapshot {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(StyledText::new().name(&self.snapshot).plain(format!(" has the files of {}", self.container)))
            .facts([
                ("image", self.image.as_str().into()),
                ("size", bytes(self.size_bytes).into()),
                ("next", format!("coracle restore {}", self.snapshot).into()),
            ])
            .timed()
    }
}
