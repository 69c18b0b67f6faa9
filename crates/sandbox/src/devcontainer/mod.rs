//! A repository's `devcontainer.json`: the request of a stranger, read whole before anything is done (sandbox.md 6.2).
//!
//! [`read`] makes a [`Devcontainer`] of a file, or says what cannot be granted. What it asks for is carried out by whoever
//! makes images and containers; its commands run by [`run`], as the agent, inside.
//!
//! **Invariant:** nothing of a file that is refused is done: every refusal is known before the first act.
//! **Invariant:** no command of a file runs on the host, and none runs as root but while an image is built.

mod artifact;
mod context;
mod dockerfile;
mod feature;
mod hooks;
mod json;
mod mounts;
mod properties;
mod refusal;
mod registry;
mod variables;

use std::collections::BTreeMap;

use coracle_runtime::{Command, ContainerPath, ImageRef};
use serde::{Deserialize, Serialize};

pub use self::artifact::Artifact;
pub use self::context::{is_kept_out, relative};
pub use self::dockerfile::{Dockerfile, dockerfile};
pub use self::feature::{Feature, FeatureFile, Place, feature_file, in_order, variable_of};
pub use self::hooks::{CommandRan, RunAs, run};
pub use self::mounts::{Kind as MountKind, MountAsk};
pub use self::properties::read;
pub use self::refusal::{Refusal, refused};
pub use self::registry::{Manifest, Registries};
pub use self::variables::Variables;
use crate::Warning;

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
    pub mounts: Vec<MountAsk>,
    /// What everything inside finds in its environment.
    pub container_env: BTreeMap<String, Option<String>>,
    /// What commands find over that. `None` takes a variable away.
    pub remote_env: BTreeMap<String, Option<String>>,
    /// Commands.
    pub hooks: BTreeMap<Stage, Hook>,
    /// Ports of services inside, as they are written.
    pub forward_ports: Vec<String>,
    /// What it says it needs.
    pub needs: Needs,
    /// `devcontainer_ignored`.
    pub warnings: Vec<Warning>,
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
pub struct Needs {
    /// Cores.
    pub cpus: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of disk.
    pub storage: Option<u64>,
    /// A GPU.
    pub gpu: bool,
}

/// When commands of a file run. In this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
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

impl Stage {
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

    fn of(property: &str) -> Option<Self> {
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

/// Where a file was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nowhere.
    Nothing,
    /// At that path.
    One(String),
    /// At several, of which nobody said which one is meant.
    Several(Vec<String>),
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

/// Looks for the file among the names of a repository's files.
#[must_use]
pub fn find<'a>(names: impl IntoIterator<Item = &'a str>) -> Found {
    const USUAL: [&str; 2] = [".devcontainer/devcontainer.json", ".devcontainer.json"];
    let named = |it: &str| {
        let inner = it.strip_prefix(".devcontainer/").and_then(|it| it.strip_suffix("/devcontainer.json"));
        inner.is_some_and(|it| !it.is_empty() && !it.contains('/'))
    };
    let all: Vec<&str> = names.into_iter().filter(|it| USUAL.contains(it) || named(it)).collect();
    if let Some(usual) = USUAL.into_iter().find(|it| all.contains(it)) {
        return Found::One(usual.to_owned());
    }
    match all[..] {
        [] => Found::Nothing,
        [one] => Found::One(one.to_owned()),
        _ => Found::Several(all.into_iter().map(str::to_owned).collect()),
    }
}

/// Something of a file that has no effect here.
pub(crate) fn ignored(message: impl Into<String>) -> Warning {
    Warning::new("devcontainer_ignored", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_for_in_the_order_that_people_know() {
        let (dir, plain, a, b) = (
            ".devcontainer/devcontainer.json",
            ".devcontainer.json",
            ".devcontainer/a/devcontainer.json",
            ".devcontainer/b/devcontainer.json",
        );
        let one = |it: &str| Found::One(it.to_owned());
        assert_eq!(find([a, plain, dir, "x"]), one(dir));
        assert_eq!(find([a, plain]), one(plain));
        assert_eq!(find([a, "README.md"]), one(a));
        assert_eq!(find([a, b]), Found::Several(vec![a.to_owned(), b.to_owned()]));
        for none in [
            "x/.devcontainer/devcontainer.json",
            ".devcontainer/a/b/devcontainer.json",
            ".devcontainer//devcontainer.json",
        ] {
            assert_eq!(find([none]), Found::Nothing, "{none}");
        }
    }
}
