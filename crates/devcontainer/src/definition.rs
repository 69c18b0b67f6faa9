//! What a file asks for.

use std::collections::BTreeMap;

use coracle_types::SandboxWarning;
use coracle_types::{Command, ContainerPath, ImageRef};
use serde::{Deserialize, Serialize};

use crate::feature::Feature;
use crate::mounts::MountRequest;
use crate::variables;

/// A larger file is none.
pub const MAX_BYTES: usize = 256 << 10;

/// What a file asks for, checked as far as the file alone can tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Devcontainer {
    /// The image.
    pub image: Option<ImageRef>,
    /// How an image is built, in place of one.
    pub build: Option<Build>,
    /// What is put on the image, in the order of their names.
    pub features: Vec<Feature>,
    /// Who runs commands: `remoteUser`, else `containerUser`.
    pub user: Option<String>,
    /// Where the worktree is to be found as well.
    pub workspace_folder: Option<ContainerPath>,
    /// What is seen inside beside the worktree.
    pub mounts: Vec<MountRequest>,
    /// What everything inside finds in its environment.
    pub container_env: BTreeMap<String, Option<String>>,
    /// What commands find over that. `None` takes a variable away.
    pub remote_env: BTreeMap<String, Option<String>>,
    /// Commands.
    pub hooks: BTreeMap<LifecycleStage, Hook>,
    /// Ports of services inside, as they are written.
    pub forward_ports: Vec<String>,
    /// What it says it needs.
    pub needs: HostRequirements,
    /// `devcontainer_ignored`.
    pub warnings: Vec<SandboxWarning>,
}

/// How an image is built. Paths are relative to the file's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The Dockerfile.
    pub dockerfile: String,
    /// What it may copy from.
    pub context: String,
    /// Values of its arguments.
    pub args: BTreeMap<String, String>,
    /// The stage that is meant.
    pub target: Option<String>,
}

/// What a file says it needs of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostRequirements {
    /// Cores.
    pub cpus: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of disk.
    pub storage: Option<u64>,
    /// A GPU.
    pub gpu: bool,
}

impl Devcontainer {
    /// What commands find in their environment beside what the image says.
    #[must_use]
    pub fn env(&self, image: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut known = image.clone();
        let mut env = BTreeMap::new();
        for layer in [&self.container_env, &self.remote_env] {
            let filled = layer.iter().map(|(name, value)| {
                (name.clone(), value.as_ref().map(|it| variables::with_container_env(it, &known)))
            });
            for (name, value) in filled.collect::<Vec<_>>() {
                match value {
                    Some(value) => {
                        known.insert(name.clone(), value.clone());
                        env.insert(name, value);
                    }
                    None => drop(env.remove(&name)),
                }
            }
        }
        env
    }
}

/// When commands of a file run. In this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LifecycleStage {
    /// Once for each container.
    #[serde(rename = "onCreateCommand")]
    OnCreate,
    /// Once for each container.
    #[serde(rename = "updateContentCommand")]
    UpdateContent,
    /// Once for each container.
    #[serde(rename = "postCreateCommand")]
    PostCreate,
    /// At each start.
    #[serde(rename = "postStartCommand")]
    PostStart,
}

impl LifecycleStage {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::OnCreate, Self::UpdateContent, Self::PostCreate, Self::PostStart];

    /// The property's name.
    #[must_use]
    pub fn property(self) -> &'static str {
        match self {
            Self::OnCreate => "onCreateCommand",
            Self::UpdateContent => "updateContentCommand",
            Self::PostCreate => "postCreateCommand",
            Self::PostStart => "postStartCommand",
        }
    }

    pub(super) fn from_property(property: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.property() == property)
    }
}

/// The commands of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// One.
    One(Command),
    /// Several at once, by name.
    Together(BTreeMap<String, Command>),
}
