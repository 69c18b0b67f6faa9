//! Unsaved work: what only a container has is kept on the host before it is removed (containers.md 14.6).
//!
//! From a container that runs, its guest finds the files, and git inside packs what it knows; where there is no guest, or
//! the container stands still, whole trees come out through the engine.
//!
//! **Invariant:** everything that comes from a container is data: names are checked, lengths and time are bounded, no
//! program of the host reads a repository.
//! **Invariant:** a save without a manifest was never finished, and is nothing.

mod error;
mod git;
mod limits;
mod manifest;
mod restore;
mod roots;
mod via_engine;
mod via_guest;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::link::Link;
use coracle_runtime::{Baseline, Container, ContainerName, ContainerPath, ContainerRuntime, Error as Engine, Handle};
use serde::Serialize;
use tokio::time::Instant;

use self::error::{Failed, SaveError};
use self::limits::PRUNED;
pub use self::limits::{SAVE_TIME, SaveLimits};
pub use self::manifest::{
    Bundle, NameList, Omission, Omissions, PartKind, SaveManifest, SavedItem, SavedKind, SavedPart,
};
pub use self::restore::{Commits, Restored, SAVED_REFS, Target};
use self::via_engine::EngineSave;
use self::via_guest::GuestSave;
pub(crate) use self::via_guest::end_commands;
pub use self::writer::Save;
use self::writer::SaveWriter;
use crate::record::{Record, Role};
use crate::{Error, Links, Result, Store, volume};

/// What was saved of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// The place inside.
    pub path: ContainerPath,
    /// What it is.
    pub kind: SavedKind,
    /// Files in its archive.
    pub files: u64,
    /// Bytes of all that was kept of it.
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
    /// Saves what only this container has. The caller holds its lock.
    ///
    /// # Errors
    /// [`Error::SaveFailed`]: the container is stopped then, and nothing was kept.
    pub(crate) async fn save(&self, record: &Record) -> Result<Vec<Saved>> {
        let begun = Instant::now();
        self.store.clear_unfinished_of(&record.name)?;
        let saved = self.try_save(record).await;
        tracing::debug!(container = %record.name, took = ?begun.elapsed(), "looked for unsaved work");
        match saved {
            Ok(saved) => Ok(saved),
            Err(SaveFailure::Failed(failed)) => {
                if let Some(id) = &record.id
                    && let Err(err) = self.runtime.stop(id, self.grace).await
                {
                    tracing::warn!(container = %record.name, %err, "it cannot be stopped");
                }
                Err(Error::SaveFailed { reason: self.reason(&failed.trouble), paths: vec![failed.path] })
            }
            Err(SaveFailure::Other(err)) => Err(err),
        }
    }

    async fn try_save(&self, record: &Record) -> Result<Vec<Saved>, SaveFailure> {
        let until = Instant::now() + self.limits.time;
        if let Some(link) = self.link(record).await? {
            match self.by_link(&link, record, until).await {
                Err(Failed { trouble: SaveError::Inside(err), .. }) => {
                    tracing::warn!(container = %record.name, %err, "its guest cannot save, so the engine has to");
                }
                done => return Ok(done?),
            }
        }
        if self.container(record).await?.is_none() {
            return match &record.volume {
                Some(own) if volume::is_there(self.runtime, self.store, &own.name).await? => {
                    self.by_volume(record, until).await
                }
                _ => Ok(Vec::new()),
            };
        }
        Ok(self.by_engine(record, until).await?)
    }

    async fn by_engine(&self, record: &Record, until: Instant) -> Result<Vec<Saved>, Failed> {
        let mut out = self.save_writer(record);
        let outside = EngineSave { runtime: self.runtime, store: self.store, record, until, limits: self.limits };
        let done = outside.save(&mut out).await;
        kept(out, done, record)
    }

    /// Somebody removed the container, and its files are there without it.
    async fn by_volume(&self, record: &Record, until: Instant) -> Result<Vec<Saved>, SaveFailure> {
        let unread = |err| match err {
            Error::Runtime(err) => Failed { path: record.workdir.to_string(), trouble: SaveError::Inside(err) }.into(),
            other => SaveFailure::Other(other),
        };
        let reader = volume::reader(self.runtime, self.store, record).await.map_err(unread)?;
        // The home was in memory.
        let seen = Record { id: Some(reader.clone()), home: None, ..record.clone() };
        let saved = self.by_engine(&seen, until).await;
        self.runtime.remove(&reader).await.map_err(Error::from)?;
        Ok(saved?)
    }

    /// The guest, if it answers.
    async fn link(&self, record: &Record) -> Result<Option<Link>> {
        if let Some(link) = self.links.at_hand(self.store, record).await {
            return Ok(Some(link));
        }
        match self.container(record).await?.filter(Container::running) {
            Some(container) => Ok(self.links.link_of(self.runtime, self.store, record, &container).await),
            None => Ok(None),
        }
    }

    async fn by_link(&self, link: &Link, record: &Record, until: Instant) -> Result<Vec<Saved>, Failed> {
        let mut out = self.save_writer(record);
        let baseline = self.baseline(record);
        let inside = GuestSave { link, record, until, grace: self.grace, baseline: baseline.as_ref() };
        let done = inside.save(&mut out).await;
        kept(out, done, record)
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
        SaveWriter::new(self.store, record, self.limits.max_bytes, PRUNED)
    }

    async fn container(&self, record: &Record) -> Result<Option<Container>> {
        let Some(id) = &record.id else { return Ok(None) };
        match self.runtime.inspect(&Handle::from(id)).await {
            Ok(container) if container.id == *id => Ok(Some(container)),
            Ok(_) | Err(Engine::NoSuchContainer(_)) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }

    fn reason(&self, trouble: &SaveError) -> String {
        match trouble {
            SaveError::TooLarge => format!("it has more than {} bytes", self.limits.max_bytes),
            SaveError::TooSlow => format!("it takes longer than {} s", self.limits.time.as_secs()),
            SaveError::Disk(err) => format!("the state directory: {err}"),
            SaveError::Inside(err) => err.to_string(),
            SaveError::Odd(why) => (*why).to_owned(),
        }
    }
}

enum SaveFailure {
    Failed(Failed),
    Other(Error),
}

impl From<Failed> for SaveFailure {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<Error> for SaveFailure {
    fn from(err: Error) -> Self {
        Self::Other(err)
    }
}

/// Finishes what was saved, or takes it away.
fn kept(out: SaveWriter, done: Result<(), Failed>, record: &Record) -> Result<Vec<Saved>, Failed> {
    if let Err(failed) = done {
        out.give_up();
        return Err(failed);
    }
    let dir = out.dir().to_owned();
    match out.finish() {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(Save { location, manifest, .. })) => {
            let saved = |it: SavedItem| Saved {
                path: it.path,
                kind: it.kind,
                files: it.files,
                bytes: it.bytes,
                location: location.clone(),
                left_out: it.left_out.count,
            };
            Ok(manifest.items.into_iter().map(saved).collect())
        }
        Err(trouble) => {
            writer::clear(&dir);
            Err(Failed { path: record.workdir.to_string(), trouble })
        }
    }
}
