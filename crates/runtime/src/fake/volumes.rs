//! Volumes of the fake engine that containers are given by name.
//!
//! The files of a container with write access contain the directory of its volume while the container exists; the
//! engine itself keeps unused volumes.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use coracle_types::{ContainerPath, Error, Result};
use tempfile::TempDir;

use super::files::ContainerFiles;
use super::{EngineState, FakeRuntime, Verb, now, refused};
use crate::{Access, CreateSpec, LabelFilter, Volume, VolumeCreate, VolumeMount, Volumes};

/// The files of a volume.
#[derive(Debug)]
pub(super) struct Content {
    dir: TempDir,
    /// The directory while a container uses the volume.
    lent: Option<PathBuf>,
}

impl Content {
    pub(super) fn new() -> std::io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("coracle-fake-volume-").tempdir()?;
        fs::create_dir(dir.path().join("files"))?;
        Ok(Self { dir, lent: None })
    }

    pub(super) fn home(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    pub(super) fn place(&self) -> PathBuf {
        self.lent.clone().unwrap_or_else(|| self.home())
    }
}

#[async_trait]
impl Volumes for FakeRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        self.enter(Verb::ListVolumes).await?;
        Ok(self.with(|state| state.volumes.iter().filter(|it| filter.admits(&it.labels)).cloned().collect()))
    }

    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        self.enter(Verb::CreateVolume).await?;
        self.with(|state| state.create_volume(volume))
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        self.enter(Verb::RemoveVolume).await?;
        self.with(|state| state.remove_volume(name))
    }
}

impl EngineState {
    fn create_volume(&mut self, new: &VolumeCreate) -> Result<Volume> {
        if let Some(volume) = self.volumes.iter().find(|it| it.name == new.name.as_str()) {
            return Ok(volume.clone());
        }
        self.contents.insert(new.name.to_string(), Content::new().map_err(host)?);
        let labels = new.labels.iter().cloned().collect();
        let volume = Volume { name: new.name.to_string(), labels, created: now() };
        self.volumes.push(volume.clone());
        Ok(volume)
    }

    fn remove_volume(&mut self, name: &str) -> Result<()> {
        if self.containers.values().any(|it| it.volumes.iter().any(|it| it.name.as_str() == name)) {
            return Err(refused(Verb::RemoveVolume, format!("{name} is in use")));
        }
        self.contents.remove(name);
        self.volumes.retain(|it| it.name != name);
        Ok(())
    }

    /// Whether all of them are there, and none that is written to is written to by another container.
    pub(super) fn check_volumes(&self, spec: &CreateSpec) -> Result<()> {
        for VolumeMount { name, access, .. } in &spec.volumes {
            let Some(content) = self.contents.get(name.as_str()) else {
                return Err(refused(Verb::Create, format!("no volume {name}")));
            };
            if *access == Access::ReadWrite && content.lent.is_some() {
                return Err(refused(Verb::Create, format!("another container writes to {name}")));
            }
        }
        Ok(())
    }

    /// Puts them among the files of a container that is being made.
    pub(super) fn lend(&mut self, files: &ContainerFiles, volumes: &[VolumeMount]) -> Result<()> {
        for VolumeMount { name, at, access } in volumes {
            let Some(content) = self.contents.get_mut(name.as_str()) else { continue };
            let there = below(files, at);
            match access {
                Access::ReadOnly => std::os::unix::fs::symlink(content.place(), &there),
                Access::ReadWrite => {
                    content.lent = Some(there.clone());
                    fs::rename(content.home(), &there)
                }
            }
            .map_err(host)?;
        }
        Ok(())
    }

    /// Returns the volumes of a container that is removed.
    pub(super) fn take_back(&mut self, files: &ContainerFiles, volumes: &[VolumeMount]) {
        for VolumeMount { name, at, access } in volumes {
            let Some(content) = self.contents.get_mut(name.as_str()) else { continue };
            if *access == Access::ReadWrite {
                content.lent = None;
                // What cannot be had back is lost, as a disk may lose it.
                let _ = fs::rename(below(files, at), content.home());
            }
        }
    }
}

fn below(files: &ContainerFiles, at: &ContainerPath) -> PathBuf {
    files.root().join(Path::new(at.as_str().trim_start_matches('/')))
}

fn host(source: std::io::Error) -> Error {
    Error::Host { what: "cannot keep the files of a volume".into(), source }
}
