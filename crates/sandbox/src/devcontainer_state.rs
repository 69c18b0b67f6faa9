//! What is recorded of the file that decides what a sandbox is.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use coracle_devcontainer::file::{Devcontainer, LifecycleStage, MAX_BYTES, Variables, read};
use coracle_devcontainer::hooks::CommandRan;
use coracle_host::state_file;
use coracle_types::{Ids, ImageRef, SandboxWarning, WorkflowId};
use serde::{Deserialize, Serialize};

use crate::{AGENT, Failure, Result, SandboxDir, SandboxKey};

/// A file as it was found, and the decisions that it led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevcontainerRecord {
    /// The repository.
    pub source: String,
    /// The repository is a directory of this host.
    pub local: bool,
    /// Its name.
    pub name: String,
    /// The commit of the file, and of all that the image was built of.
    pub commit: String,
    /// Its path in the repository.
    pub path: String,
    /// Its text.
    pub text: String,
    /// The workflow that it was read for.
    pub workflow: WorkflowId,
    /// The image.
    pub image: ImageRef,
    /// It was built here.
    pub built: bool,
    /// Digests of features from a registry.
    #[serde(default)]
    pub features: BTreeMap<String, String>,
    /// Its environment.
    pub image_env: BTreeMap<String, String>,
    /// The user that runs commands.
    pub agent: DevcontainerUser,
    /// Files of the repository that were excluded from the build.
    pub kept_out: Vec<String>,
    /// Warnings about it.
    pub warnings: Vec<SandboxWarning>,
}

/// The user that runs commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevcontainerUser {
    /// The name.
    pub name: String,
    /// The ids.
    pub ids: Ids,
    /// The home directory.
    pub home: String,
}

impl Default for DevcontainerUser {
    fn default() -> Self {
        Self { name: "agent".into(), ids: AGENT, home: "/home/agent".into() }
    }
}

/// Which commands ran. A new start of a container, or a new container, invalidates it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HookProgress {
    /// The engine's id of the container.
    pub(crate) container: String,
    /// Its links exist.
    pub(crate) linked: bool,
    /// Commands that run once for each container.
    pub(crate) stages: Vec<LifecycleStage>,
    /// The run of the guest for which the commands of a start ran.
    pub(crate) started: Option<String>,
    /// The command that failed: none follows it.
    pub(crate) failed: Option<CommandRan>,
}

/// The file of a sandbox, read.
#[derive(Clone, Debug)]
pub struct DevcontainerState {
    /// The sandbox.
    pub key: SandboxKey,
    /// The image if the file names none.
    pub default_image: Option<ImageRef>,
    /// What is recorded of it.
    pub record: DevcontainerRecord,
    /// What it asks for.
    pub file: Devcontainer,
    /// Why it cannot be read any more: it may use variables of the host that are no longer there.
    pub unread: Option<Failure>,
}

impl DevcontainerState {
    /// The file that a sandbox was made with, if there is one. `local_env` has the variables of this host that it may use.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn load(
        dir: &SandboxDir,
        local_env: BTreeMap<String, String>,
        default_image: Option<ImageRef>,
    ) -> Result<Option<Self>> {
        let Some(record) = state_file::read::<DevcontainerRecord>(&record_file(dir))? else { return Ok(None) };
        let (file, unread) = match read(record.text.as_bytes(), &record.variables(dir.key(), local_env)) {
            Ok(file) => (file, None),
            // Enough to save what is inside.
            Err(err) => (Devcontainer { image: Some(record.image.clone()), ..Devcontainer::default() }, Some(err)),
        };
        Ok(Some(Self { key: dir.key().clone(), default_image, record, file, unread }))
    }

    /// The environment of commands.
    #[must_use]
    pub fn env(&self) -> BTreeMap<String, String> {
        self.file.env(&self.record.image_env)
    }

    /// The image that it needs.
    #[must_use]
    pub fn image(&self) -> &ImageRef {
        &self.record.image
    }

    /// Its image was built here, of allowed parts.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.record.built
    }
}

impl DevcontainerRecord {
    /// The values of `${…}` in the file.
    #[must_use]
    pub fn variables(&self, key: &SandboxKey, local_env: BTreeMap<String, String>) -> Variables {
        let folder = self.local.then_some(self.source.as_str());
        let (local_name, id) = (self.name.clone(), key.to_string());
        Variables { local_name, id, local_env, ..Variables::in_worktree(&self.workflow, folder) }
    }

    /// Whether a sandbox has one.
    #[must_use]
    pub fn exists(dir: &SandboxDir) -> bool {
        record_file(dir).exists()
    }

    /// Records it.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn save(&self, dir: &SandboxDir) -> Result<()> {
        debug_assert!(self.text.len() <= MAX_BYTES);
        state_file::write(&record_file(dir), self)
    }
}

impl HookProgress {
    pub(crate) fn load(dir: &SandboxDir) -> Result<Self> {
        Ok(state_file::read(&progress_file(dir))?.unwrap_or_default())
    }

    pub(crate) fn save(&self, dir: &SandboxDir) -> Result<()> {
        state_file::write(&progress_file(dir), self)
    }
}

fn record_file(dir: &SandboxDir) -> PathBuf {
    dir.root().join("devcontainer.json")
}

fn progress_file(dir: &SandboxDir) -> PathBuf {
    dir.root().join("devcontainer-ran.json")
}

/// Forgets the file: the next sandbox with that key is created from scratch.
///
/// # Errors
/// Whatever the file system says.
pub fn forget(dir: &SandboxDir) -> Result<()> {
    [record_file(dir), progress_file(dir)].iter().try_for_each(|it| coracle_host::state_file::remove(it))
}

/// Locks a file against all processes, and waits for it.
///
/// # Errors
/// Whatever the file system says.
pub async fn lock_file(path: PathBuf) -> Result<File> {
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock().map(|()| file)
    });
    locked.await.map_err(Failure::internal)?.map_err(Failure::internal)
}
