//! `snapshot`: saves the files of a container.

mod secrets;

use std::sync::Arc;
use std::time::Duration;

use coracle_client::ScanOptions;
use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::bytes;
use coracle_context::strict;
use coracle_context::warning::Warning;
use coracle_images::profile::Purpose;
use coracle_images::snapshot::{self, SnapshotOrigin, Snapshots};
use coracle_lifecycle::{Record, Role, Store};
use coracle_runtime::{Container, ContainerRuntime, ExecTarget, Image};
use coracle_types::{Capability, ContainerId, ContainerName, ContainerPath, Handle, SnapshotName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{Access, CommandTarget, check_session, reach_inside};

/// The beginning of names by which a layer of an image says that a file is removed.
const WHITEOUT: &str = ".wh.";

/// How long files are looked for that an image cannot hold.
const WITHIN: Duration = Duration::from_secs(2);

/// Names of such files in an answer.
const MAX_NAMES: usize = 20;

/// Save the files of a container as they are, to create others from with `restore`. What is mounted, what lies in memory
/// and what runs is not included. Refused while a file contains a secret of the user.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Snapshot {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a generated name.
    #[schemars(with = "Option<Name>")]
    name: Option<SnapshotName>,
    /// Name of the snapshot.
    #[schemars(with = "Option<Name>")]
    snapshot: Option<SnapshotName>,
    /// Replace what has that name.
    #[schemars(extend("default" = false))]
    replace: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct SnapshotResponse {
    #[schemars(with = "String")]
    pub(crate) snapshot: SnapshotName,
    #[schemars(with = "String")]
    container: ContainerName,
    image: String,
    image_id: String,
    pub(crate) size_bytes: u64,
    pub(crate) not_included: Vec<String>,
    detail: String,
    warnings: Vec<Warning>,
}

impl Operation for Snapshot {
    const NAME: &'static str = "snapshot";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<SnapshotResponse>;
    type Response = SnapshotResponse;

    async fn run(self, cx: &Context) -> Result<SnapshotResponse, Failure> {
        let name = named(self.name, self.snapshot)?;
        let source = SnapshotSource::reach(cx, &self.container).await?;
        let taken = source.keep(cx, (name, self.replace.unwrap_or(false))).await?;
        let TakenSnapshot { snapshot, not_included } = taken;
        Ok(SnapshotResponse {
            detail: format!("the files of `{}` are saved as `{}`", source.record.name, snapshot.name),
            snapshot: snapshot.name,
            container: source.record.name,
            image: snapshot.reference.to_string(),
            image_id: snapshot.image.id.to_string(),
            size_bytes: snapshot.image.size_bytes,
            not_included,
            warnings: cx.warnings(),
        })
    }
}

/// A snapshot's name may be given in either field.
pub(super) fn named(name: Option<SnapshotName>, snapshot: Option<SnapshotName>) -> Result<SnapshotName, Failure> {
    match (name, snapshot) {
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (Some(name), Some(snapshot)) if name == snapshot => Ok(name),
        (Some(_), Some(_)) => Err(Failure::conflicting(&["name", "snapshot"], "two names are given for one snapshot")),
        (None, None) => Err(Failure::new(Code::MissingField, "required: `name`")
            .detail("fields", ["name"])
            .hint("give the snapshot a `name`")),
    }
}

/// The snapshots of this person.
pub(super) fn snapshots(cx: &Context, store: &Store) -> Result<Snapshots, Failure> {
    Ok(Snapshots {
        signer: store.signer().clone(),
        locks: cx.state()?.root().join("locks"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// A container to take a snapshot of.
pub(crate) struct SnapshotSource {
    pub(super) runtime: Arc<dyn ContainerRuntime>,
    pub(super) record: Record,
    inside: ExecTarget,
    /// The checkpoint whose files are copied, instead of the current ones.
    checkpoint: Option<u64>,
}

/// A container that an engine copies without an image.
pub(super) struct CopySource {
    pub(super) container: ContainerId,
    /// What the container was made from.
    pub(super) image: Image,
    pub(super) checkpoint: Option<u64>,
    pub(super) not_included: Vec<String>,
}

/// The snapshot that was taken.
pub(super) struct TakenSnapshot {
    pub(super) snapshot: snapshot::SnapshotImage,
    pub(super) not_included: Vec<String>,
}

impl SnapshotSource {
    /// Finds it. It has to run: its guest knows which files hold a secret.
    pub(super) async fn reach(cx: &Context, handle: &Handle) -> Result<Self, Failure> {
        let CommandTarget { record, inside, .. } = reach_inside(cx, handle, false).await?;
        check_session(cx, &record.session, record.name.as_str(), Access::Snapshot)?;
        if record.role == Role::Service {
            let message = format!("`{}` is a service of a stack, and services have no snapshots", record.name);
            return Err(Failure::new(Code::Unsupported, message)
                .detail("capability", "snapshot")
                .hint("keep the container that the stack was made with, and copy out what the service holds"));
        }
        if record.volume.is_some() {
            return Err(strict::no_snapshot(&record));
        }
        let runtime = cx.runtime_for(record.engine, &record.endpoint)?;
        Ok(Self { runtime, record, inside, checkpoint: None })
    }

    /// Copies the files of a checkpoint instead of the current ones.
    pub(super) fn at_checkpoint(self, number: Option<u64>) -> Self {
        Self { checkpoint: number, ..self }
    }

    /// Whether its engine copies it without an image.
    pub(super) fn is_copied_by_engine(&self) -> bool {
        !Capability::lacked_by(self.runtime.kind()).contains(&Capability::Fork)
    }

    /// Makes sure that it may be copied.
    pub(super) async fn check_copy(&self, cx: &Context) -> Result<CopySource, Failure> {
        let checked = self.try_check_copy(cx).await;
        checked.map_err(|it| it.known("container", &self.record.name))
    }

    async fn try_check_copy(&self, cx: &Context) -> Result<CopySource, Failure> {
        let container = self.runtime.inspect(&self.id()?.into()).await?;
        let image = self.runtime.find_images(&[container.image.clone().into()]).await?.into_iter().next();
        let gone = || Failure::not_found("image", container.image.as_str(), &[]);
        self.search_secrets(cx).await?;
        let not_included = not_included(&container);
        let (checkpoint, container) = (self.checkpoint, container.id);
        Ok(CopySource { image: image.ok_or_else(gone)?, checkpoint, not_included, container })
    }

    pub(super) fn id(&self) -> Result<&ContainerId, Failure> {
        self.record.id.as_ref().ok_or_else(|| Failure::not_found("container", self.record.name.as_str(), &[]))
    }

    /// # Errors
    /// When there is one, and the configuration does not say to warn of it alone.
    async fn search_secrets(&self, cx: &Context) -> Result<(), Failure> {
        cx.call.progress.message("looking for secrets in files").await;
        cx.warn(secrets::search(cx, &self.record, &self.inside).await?);
        Ok(())
    }

    /// Searches its files for the secrets of another container, which had these files.
    ///
    /// # Errors
    /// Those of [`search_secrets`](Self::search_secrets).
    pub(super) async fn search_secrets_of(&self, cx: &Context, other: &Record) -> Result<(), Failure> {
        cx.warn(secrets::search(cx, other, &self.inside).await?);
        Ok(())
    }

    /// Keeps its files. Not to be abandoned half way: see [`snapshot::SnapshotReservation::take`].
    pub(super) async fn keep(&self, cx: &Context, name: (SnapshotName, bool)) -> Result<TakenSnapshot, Failure> {
        let taken = self.try_keep(cx, name).await;
        taken.map_err(|it| it.known("container", &self.record.name))
    }

    async fn try_keep(&self, cx: &Context, name: (SnapshotName, bool)) -> Result<TakenSnapshot, Failure> {
        let (store, runtime, record) = (cx.store()?, &*self.runtime, &self.record);
        let progress = cx.call.progress.clone();
        let snapshots = snapshots(cx, &store)?;
        coracle_prepare::image_build::not_for_snippets(cx, &snapshots.reference(&name.0))?;
        let place = snapshots.place(runtime, name.0, name.1, &move |text: &str| progress.note(text)).await?;
        let _alone = store.lock(&record.name).await?;
        let container = runtime.inspect(&self.id()?.into()).await?;
        self.search_secrets(cx).await?;
        cx.call.progress.message(format!("keeping the files of {}", record.name)).await;
        let of = SnapshotOrigin {
            container: record.name.to_string(),
            purpose: record.purpose.as_deref().and_then(|it| Purpose::parse(it).ok()),
            session: cx.call.session.to_string(),
            workdir: record.workdir.clone(),
            mount_cwd: record.mount_cwd,
        };
        let lost = lost_by_name(record, &self.inside).await?;
        let snapshot = place.take(runtime, &container, &of, jiff::Timestamp::now()).await?;
        let not_included = lost.into_iter().chain(not_included(&container)).collect();
        Ok(TakenSnapshot { snapshot, not_included })
    }
}

/// Files that were written since the container began whose names an image cannot hold: in a layer, each means that a file
/// is removed.
async fn lost_by_name(record: &Record, inside: &ExecTarget) -> Result<Vec<String>, Failure> {
    let ExecTarget::Guest(link) = inside else { return Ok(Vec::new()) };
    let options =
        ScanOptions { since: Some(record.created), within: WITHIN, ..ScanOptions::all(ContainerPath::root()) };
    let has_such_name = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with(WHITEOUT));
    let walked = link.walk(options, &[]).await?;
    let mut paths: Vec<_> = walked.entries.into_iter().map(|it| it.path).filter(|path| has_such_name(path)).collect();
    paths.sort();
    let more = paths.len().saturating_sub(MAX_NAMES);
    paths.truncate(MAX_NAMES);
    let mut all: Vec<_> =
        paths.into_iter().map(|path| format!("{path} (no image can hold names with `{WHITEOUT}`)")).collect();
    all.extend((more > 0).then(|| format!("{more} more files with such names")));
    Ok(all)
}

/// What a user would look for and not find. Where it is mounted, and not from where: that is not this call's to tell.
fn not_included(container: &Container) -> Vec<String> {
    let mounted = mounted(container).into_iter().map(|it| format!("{it} (mounted)"));
    let more = ["memory file systems, such as /.coracle/run", "variables and keys of commands", "running processes"];
    mounted.chain(more.map(str::to_owned)).collect()
}

/// Where something is mounted in a container.
pub(super) fn mounted(container: &Container) -> Vec<String> {
    let ours = |it: &str| it == "/.coracle" || it.starts_with("/.coracle/");
    let mut targets: Vec<&str> = container.mounts.iter().map(|it| it.target.as_str()).filter(|it| !ours(it)).collect();
    targets.sort_unstable();
    let beneath = |it: &str, above: &str| it != above && it.starts_with(above) && it[above.len()..].starts_with('/');
    let all = targets.clone();
    targets.retain(|it| !all.iter().any(|above| beneath(it, above)));
    targets.into_iter().map(str::to_owned).collect()
}

impl Render for SnapshotResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(StyledText::new().name(&self.snapshot).plain(format!(" has the files of {}", self.container)))
            .facts([
                ("image", self.image.as_str().into()),
                ("size", bytes(self.size_bytes).into()),
                ("next", format!("coracle restore {}", self.snapshot).into()),
            ])
            .and_lines(without(&self.not_included))
            .timed()
    }
}

/// What a snapshot or a fork does not include.
pub(super) fn without(not_included: &[String]) -> impl Iterator<Item = StyledText> {
    not_included.iter().map(|it| StyledText::from("  ").dim("without").plain(format!(" {it}")))
}

#[cfg(test)]
mod tests {
    use coracle_types::{ContainerName, SnapshotName};

    use super::{SnapshotResponse, named};

    #[test]
    fn a_name_is_given_once() {
        let name = |it: &str| Some(SnapshotName::parse(it).unwrap());
        assert_eq!(named(name("a"), None).unwrap().as_str(), "a");
        assert_eq!(named(None, name("a")).unwrap().as_str(), "a");
        assert_eq!(named(name("a"), name("a")).unwrap().as_str(), "a");
        assert_eq!(named(name("a"), name("b")).unwrap_err().code.word(), "conflicting_fields");
        assert_eq!(named(None, None).unwrap_err().code.word(), "missing_field");
    }

    #[test]
    fn a_snapshot_says_what_it_includes_and_what_not() {
        let response = SnapshotResponse {
            snapshot: SnapshotName::parse("base").unwrap(),
            container: ContainerName::parse("web").unwrap(),
            image: "coracle-snapshot:base".into(),
            image_id: String::new(),
            size_bytes: 1_048_576,
            not_included: vec!["/workspace (mounted)".into(), "running processes".into()],
            detail: String::new(),
            warnings: Vec::new(),
        };
        insta::assert_snapshot!(coracle_context::document::rendered(&response, "2026-11-21T12:30:00Z"), @r"
        base has the files of web
          image  coracle-snapshot:base
          size   1 MiB
          next   coracle restore base
          without /workspace (mounted)
          without running processes
        ");
    }
}
