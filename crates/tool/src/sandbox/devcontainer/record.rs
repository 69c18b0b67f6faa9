//! What is remembered of a file that decides what a sandbox is.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_runtime::host::fs::replace;
use coracle_runtime::{Ids, ImageRef};
use coracle_sandbox::devcontainer::{CommandRan, Devcontainer, MAX_BYTES, Stage, Variables, read};
use coracle_sandbox::{AGENT, SandboxDir, SandboxKey, Warning, WorkflowId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::{DevcontainerFile, SandboxProfile};
use crate::context::Context;
use crate::failure::Failure;

/// A file as it was found, and what was made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The repository.
    pub(super) source: String,
    /// That is a directory of this host.
    pub(super) local: bool,
    /// Its name.
    pub(super) name: String,
    /// The commit that the file is from, and all that the image was made of.
    pub(super) commit: String,
    /// Where it lies in the repository.
    pub(super) path: String,
    /// Its text.
    pub(super) text: String,
    /// The workflow that it was read for.
    pub(super) workflow: WorkflowId,
    /// The image.
    pub(super) image: ImageRef,
    /// It was made here.
    pub(super) built: bool,
    /// Features of a registry, and which they were.
    #[serde(default)]
    pub(super) features: BTreeMap<String, String>,
    /// Its environment.
    pub(super) image_env: BTreeMap<String, String>,
    /// Who runs commands.
    pub(crate) agent: Agent,
    /// Files of the repository that its build did not get to see.
    pub(super) kept_out: Vec<String>,
    /// What is to be said of it.
    pub(super) warnings: Vec<Warning>,
}

/// Who runs commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agent {
    pub(super) name: String,
    pub(crate) ids: Ids,
    pub(crate) home: String,
}

impl Default for Agent {
    fn default() -> Self {
        Self { name: "agent".into(), ids: AGENT, home: "/home/agent".into() }
    }
}

/// Which commands ran. What ends a container, or starts it again, makes another one of this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// The engine's id of the container.
    pub(super) container: String,
    /// Its links are made.
    pub(super) linked: bool,
    /// Once for each container.
    pub(super) stages: Vec<Stage>,
    /// The run of the guest for which those of its start ran.
    pub(super) started: Option<String>,
    /// One of them failed, so none follows.
    pub(super) failed: Option<CommandRan>,
}

/// The file of a sandbox, read.
#[derive(Clone, Debug)]
pub(crate) struct Worn {
    pub(super) key: SandboxKey,
    /// The image where the file names none.
    pub(super) usual: Option<ImageRef>,
    pub(crate) record: Record,
    pub(crate) file: Devcontainer,
    /// Why it cannot be read any more: it may take variables of the host that are no longer there.
    pub(crate) unread: Option<Failure>,
}

impl Worn {
    /// What commands find in their environment.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        self.file.env(&self.record.image_env)
    }

    /// The image that it needs.
    pub(crate) fn image(&self) -> &ImageRef {
        &self.record.image
    }

    /// That is made here, of what was granted.
    pub(crate) fn is_built(&self) -> bool {
        self.record.built
    }
}

impl Record {
    pub(super) fn variables(&self, cx: &Context, key: &SandboxKey) -> Variables {
        variables(cx, key, (&self.source, self.local, &self.name), &self.workflow)
    }
}

/// What `${…}` stands for.
pub(super) fn variables(
    cx: &Context,
    key: &SandboxKey,
    (source, local, name): (&str, bool, &str),
    workflow: &WorkflowId,
) -> Variables {
    let worktree = format!("/workspace/worktrees/{workflow}");
    let granted = cx.config.sandbox.local_env.iter();
    let value = |name: &String| String::from_utf8(cx.host.env.get(name)?.reveal().to_vec()).ok();
    Variables {
        local_folder: if local { source.to_owned() } else { worktree.clone() },
        local_name: name.to_owned(),
        container_folder: worktree,
        id: key.to_string(),
        local_env: granted.filter_map(|name| Some((name.clone(), value(name)?))).collect(),
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("devcontainer.json")
}

fn done_file(dir: &Path) -> PathBuf {
    dir.join("devcontainer-ran.json")
}

/// The file that a sandbox was made with, unless the person wants none.
pub(crate) fn worn(cx: &Context, dir: &SandboxDir, profile: &SandboxProfile) -> Result<Option<Arc<Worn>>, Failure> {
    if *setting(cx, profile) == DevcontainerFile::Off {
        return Ok(None);
    }
    let Some(record) = load::<Record>(&file(dir.root()))? else { return Ok(None) };
    let (file, unread) = match read(record.text.as_bytes(), &record.variables(cx, dir.key())) {
        Ok(file) => (file, None),
        // Enough to save what is inside.
        Err(err) => {
            let image = Some(record.image.clone());
            (Devcontainer { image, ..Devcontainer::default() }, Some(Failure::from(err)))
        }
    };
    Ok(Some(Arc::new(Worn { key: dir.key().clone(), usual: profile.image.clone(), record, file, unread })))
}

/// Which file counts for sandboxes of a profile.
pub(super) fn setting<'a>(cx: &'a Context, profile: &'a SandboxProfile) -> &'a DevcontainerFile {
    profile.devcontainer.as_ref().unwrap_or(&cx.config.sandbox.devcontainer)
}

pub(super) fn is_remembered(dir: &SandboxDir) -> bool {
    file(dir.root()).exists()
}

pub(super) fn remember(dir: &SandboxDir, record: &Record) -> Result<(), Failure> {
    debug_assert!(record.text.len() <= MAX_BYTES);
    save(&file(dir.root()), record)
}

/// Nothing is remembered any more: the next sandbox of that name is made anew.
pub(crate) fn forget(dir: &SandboxDir) -> Result<(), Failure> {
    [file(dir.root()), done_file(dir.root())].iter().try_for_each(|it| match std::fs::remove_file(it) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => Err(Failure::internal(err)),
        _ => Ok(()),
    })
}

pub(super) fn done(dir: &SandboxDir) -> Result<Done, Failure> {
    Ok(load(&done_file(dir.root()))?.unwrap_or_default())
}

pub(super) fn save_done(dir: &SandboxDir, done: &Done) -> Result<(), Failure> {
    save(&done_file(dir.root()), done)
}

/// One at a time, over all processes.
pub(super) async fn alone(path: PathBuf) -> Result<File, Failure> {
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock().map(|()| file)
    });
    locked.await.map_err(Failure::internal)?.map_err(Failure::internal)
}

fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    match std::fs::read(path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(None),
        bytes => serde_json::from_slice(&bytes.map_err(Failure::internal)?).map(Some).map_err(Failure::internal),
    }
}

fn save(path: &Path, it: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(it).map_err(Failure::internal)?;
    replace(path, &text).map_err(Failure::internal)
}
