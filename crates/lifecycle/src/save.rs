//! Saves the work that exists only in a container, before that is removed.
//!
//! In a running container the guest finds the files, and git inside packs commits. Without a guest, or if the container
//! is stopped, the engine copies whole trees. A caller with other means, such as a worktree manager, writes its saves
//! with [`SaveWriter`] as well.
//!
//! **Invariant:** everything that comes from a container is data: names are checked, lengths and time are bounded, no
//! program of the host reads a repository.
//! **Invariant:** a directory without a manifest is not a save.

mod error;
mod git;
mod guest_git;
mod inert;
mod limits;
mod manifest;
mod repo_status;
mod restore;
mod roots;
mod saves;
mod via_engine;
mod via_guest;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use coracle_client::Link;
use coracle_runtime::{Baseline, Container, ContainerRuntime};
use coracle_types::{Capability, ContainerName, ContainerPath, Error as Engine, Handle};
use serde::Serialize;
use tokio::time::Instant;

use self::error::PathError;
pub use self::error::SaveError;
pub use self::guest_git::{GitPlace, OutputReceiver, stream_stdout};
use self::limits::PRUNED;
pub use self::limits::{SAVE_TIME, SaveLimits};
pub use self::manifest::{
    Bundle, NameList, Omission, Omissions, PartKind, SaveManifest, SavedItem, SavedKind, SavedPart,
};
pub use self::repo_status::{RepoStatus, is_object_id};
pub use self::restore::{Commits, RestoreTarget, RestoredItem, SAVED_REFS};
pub use self::saves::{Save, SaveDestination};
use self::via_engine::EngineSave;
use self::via_guest::GuestSave;
pub(crate) use self::via_guest::end_commands;
pub use self::writer::{ArchiveWriter, STAGING_PREFIX, SaveWriter};
use crate::record::{Record, Role};
use crate::{Error, Links, Result, SaveObstacle, Store, volume};

/// What was saved of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SaveReport {
    /// The place inside.
    pub path: ContainerPath,
    /// What it is.
    pub kind: SavedKind,
    /// Files in its archive.
    pub files: u64,
    /// Bytes that were saved of it.
    pub bytes: u64,
    /// Directory of the save on the host.
    pub location: PathBuf,
    /// How much was left out; the manifest names it.
    pub left_out: u64,
}

/// What is saved, and how.
#[derive(Debug)]
pub(crate) struct SaveContext<'a> {
    pub(crate) runtime: &'a dyn ContainerRuntime,
    pub(crate) store: &'a Store,
    pub(crate) links: &'a Links,
    pub(crate) limits: SaveLimits,
    /// Between TERM and KILL of what still runs.
    pub(crate) grace: Duration,
}

impl SaveContext<'_> {
    /// Saves what exists only in this container. The caller holds its lock.
    ///
    /// # Errors
    /// [`Error::SaveFailed`]: nothing was saved, and the container is stopped.
    pub(crate) async fn save(&self, record: &Record) -> Result<Vec<SaveReport>> {
        let begun = Instant::now();
        self.store.clear_unfinished_of(&record.name)?;
        let saved = Box::pin(self.try_save(record)).await;
        tracing::debug!(container = %record.name, took = ?begun.elapsed(), "looked for unsaved work");
        // A stop would lose what could not be saved, where the container cannot be started again.
        let keeps_files = !self.loses_files();
        if let (true, Err(Error::SaveFailed { .. }), Some(id)) = (keeps_files, &saved, &record.id)
            && let Err(err) = self.runtime.stop(id, self.grace).await
        {
            tracing::warn!(container = %record.name, %err, "it cannot be stopped");
        }
        saved
    }

    async fn try_save(&self, record: &Record) -> Result<Vec<SaveReport>> {
        let until = Instant::now() + self.limits.time;
        if let Some(link) = self.link(record).await? {
            match self.by_link(&link, record, until).await {
                Err(PathError { error: SaveError::Inside(err), .. }) => {
                    tracing::warn!(container = %record.name, %err, "its guest cannot save, so the engine has to");
                }
                saved => return saved.map_err(|err| self.failure(err)),
            }
        }
        if self.container(record).await?.is_some_and(|it| it.running() || !self.loses_files()) {
            return self.by_engine(record, until).await;
        }
        match &record.volume {
            Some(own) if volume::is_there(self.runtime, self.store, &own.name).await? => {
                self.by_volume(record, until).await
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The files of a container end with its program.
    fn loses_files(&self) -> bool {
        Capability::lacked_by(self.runtime.kind()).contains(&Capability::Restart)
    }

    async fn by_engine(&self, record: &Record, until: Instant) -> Result<Vec<SaveReport>> {
        let mut out = self.save_writer(record);
        let outside = EngineSave { runtime: self.runtime, store: self.store, record, until, limits: self.limits };
        let done = outside.save(&mut out).await;
        finish(out, done, record).map_err(|err| self.failure(err))
    }

    /// Saves the volume of a container that is gone.
    async fn by_volume(&self, record: &Record, until: Instant) -> Result<Vec<SaveReport>> {
        let reader = volume::reader(self.runtime, self.store, record).await.map_err(|err| match err {
            Error::Runtime(err) => self.failure(PathError { path: record.workdir.to_string(), error: err.into() }),
            other => other,
        })?;
        // The home was in memory.
        let seen = Record { id: Some(reader.clone()), home: None, ..record.clone() };
        let saved = self.by_engine(&seen, until).await;
        self.runtime.remove(&reader).await?;
        saved
    }

    /// The guest, if it answers.
    async fn link(&self, record: &Record) -> Result<Option<Link>> {
        if let Some(link) = self.links.direct_link(self.store, record).await {
            return Ok(Some(link));
        }
        match self.container(record).await?.filter(Container::running) {
            Some(container) => Ok(self.links.link_of(self.runtime, self.store, record, &container).await),
            None => Ok(None),
        }
    }

    async fn by_link(&self, link: &Link, record: &Record, until: Instant) -> Result<Vec<SaveReport>, PathError> {
        let mut out = self.save_writer(record);
        let baseline = self.baseline(record);
        let inside = GuestSave {
            link,
            record,
            until,
            is_tried_again: self.limits.time < SAVE_TIME,
            grace: self.grace,
            baseline: baseline.as_ref(),
        };
        let done = inside.save(&mut out).await;
        finish(out, done, record)
    }

    /// What a workspace was filled with.
    fn baseline(&self, record: &Record) -> Option<Baseline> {
        if record.role != Role::Workspace {
            return None;
        }
        let session = ContainerName::parse(&record.session).ok()?;
        let read = self.store.baseline(&session);
        read.inspect_err(|err| tracing::warn!(%session, %err, "what the workspace was filled with is not known"))
            .ok()?
    }

    fn save_writer(&self, record: &Record) -> SaveWriter {
        let mut destination = SaveDestination::new(self.store, record);
        destination.manifest.pruned = PRUNED.iter().map(|it| (*it).to_owned()).collect();
        SaveWriter::in_place(destination, self.limits.max_bytes)
    }

    async fn container(&self, record: &Record) -> Result<Option<Container>> {
        let Some(id) = &record.id else { return Ok(None) };
        match self.runtime.inspect(&Handle::from(id)).await {
            Ok(container) if container.id == *id => Ok(Some(container)),
            Ok(_) | Err(Engine::NoSuchContainer(_)) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }

    fn failure(&self, PathError { path, error }: PathError) -> Error {
        let (reason, obstacle) = match error {
            SaveError::TooLarge => (format!("it has more than {} bytes", self.limits.max_bytes), SaveObstacle::Size),
            SaveError::TooSlow => {
                (format!("it takes longer than {} s", self.limits.time.as_secs()), SaveObstacle::Time)
            }
            other @ SaveError::Disk(_) => (other.to_string(), SaveObstacle::Disk),
            other => (other.to_string(), SaveObstacle::Unreadable),
        };
        Error::SaveFailed { reason, obstacle, paths: vec![path] }
    }
}

/// Finishes a save, or removes what was written of it.
fn finish(out: SaveWriter, done: Result<(), PathError>, record: &Record) -> Result<Vec<SaveReport>, PathError> {
    if let Err(failed) = done {
        out.give_up();
        return Err(failed);
    }
    let save = out.finish().map_err(|error| PathError { path: record.workdir.to_string(), error })?;
    let Some(Save { location, manifest, .. }) = save else { return Ok(Vec::new()) };
    let saved = |it: SavedItem| SaveReport {
        path: it.path,
        kind: it.kind,
        files: it.files,
        bytes: it.bytes,
        location: location.clone(),
        left_out: it.left_out.count,
    };
    Ok(manifest.items.into_iter().map(saved).collect())
}
