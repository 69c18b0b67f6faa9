//! The parsed `devcontainer.json`.

use std::collections::BTreeMap;

use coracle_types::{Command, ContainerPath, ImageRef, SandboxWarning};
use serde::{Deserialize, Serialize};

use crate::feature::Feature;
use crate::mounts::MountRequest;
use crate::variables;

/// Maximum size of a file.
pub const MAX_BYTES: usize = 256 << 10;

/// The content of a file, validated as far as that depends on the file alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Devcontainer {
    /// The image.
    pub image: Option<ImageRef>,
    /// How to build an image instead.
    pub build: Option<Build>,
    /// Features to install, ordered by name.
    pub features: Vec<Feature>,
    /// The exec user: `remoteUser`, else `containerUser`.
    pub user: Option<String>,
    /// A further path at which the worktree is visible.
    pub workspace_folder: Option<ContainerPath>,
    /// Mounts besides the worktree.
    pub mounts: Vec<MountRequest>,
    /// Variables of all processes.
    pub container_env: BTreeMap<String, Option<String>>,
    /// Variables of commands, which override those. `None` unsets a variable.
    pub remote_env: BTreeMap<String, Option<String>>,
    /// Commands.
    pub hooks: BTreeMap<LifecycleStage, Hook>,
    /// Ports of services inside, as written in the file.
    pub forward_ports: Vec<String>,
    /// The requirements for the host.
    pub needs: HostRequirements,
    /// `devcontainer_ignored`.
    pub warnings: Vec<SandboxWarning>,
}

/// How an image is built. Paths are relative to the file's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The Dockerfile.
    pub dockerfile: String,
    /// The build context.
    pub context: String,
    /// Build arguments.
    pub args: BTreeMap<String, String>,
    /// The target stage.
    pub target: Option<String>,
}

/// Requirements for the host.
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
    /// The environment of commands besides the image's.
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

/// When commands of a file run, in this order.
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
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::OnCreate, Self::UpdateContent, Self::PostCreate, Self::PostStart];

    /// The name of the property.
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
    /// Several concurrently, by name.
    Together(BTreeMap<String, Command>),
}
