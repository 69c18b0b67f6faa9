//! Recipes: what is installed in a base, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::digest::{Sha256Hex, sum_of};
use crate::packages::{self, PackageName};

/// A recipe: packages, then commands. Two recipes are equal if they are serialised equally.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// Installed first, all together, in any order.
    pub packages: BTreeSet<PackageName>,
    /// Run in order as root.
    pub setup: Vec<Setup>,
    /// The profile's variables, as configured. They are set for commands, but are not part of the image.
    pub env: BTreeMap<String, String>,
    /// Directories of users, created last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<OwnedDirectory>,
}

/// A directory and its owner, who is added to the accounts of the image, with a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnedDirectory {
    /// The uid of the owner.
    pub uid: u32,
    /// The gid of the owner.
    pub gid: u32,
    /// The directory.
    pub path: String,
}

/// A command of a recipe: a script for `/bin/sh -c`, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Setup {
    /// The script.
    pub script: String,
    /// Its arguments, from `$1` on.
    pub args: Vec<String>,
    /// Its description, for users.
    #[serde(skip)]
    pub what: String,
    /// Commands that it installs.
    #[serde(skip)]
    pub brings: Vec<String>,
}

impl From<String> for Setup {
    fn from(script: String) -> Self {
        let line = script.lines().map(str::trim).find(|it| !it.is_empty()).unwrap_or_default();
        let short: String = line.chars().take(60).collect();
        let what = format!("running `{short}{}`", if short.len() < script.trim().len() { "…" } else { "" });
        Self { script, args: Vec::new(), what, brings: Vec::new() }
    }
}

impl Setup {
    pub(crate) fn fixed(what: &str, script: &str, args: &[&str], brings: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect();
        Self { script: script.to_owned(), args: owned(args), what: what.to_owned(), brings: owned(brings) }
    }
}

impl Recipe {
    /// Whether it is empty: the base is then used unchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.setup.is_empty() && self.owned.is_empty()
    }

    /// Adds packages that the caller requests.
    #[must_use]
    pub fn with(mut self, packages: impl IntoIterator<Item = PackageName>) -> Self {
        self.packages.extend(packages);
        self
    }

    /// Prepends a recipe.
    #[must_use]
    pub fn after(&self, first: &Self) -> Self {
        let (mut packages, mut env) = (first.packages.clone(), first.env.clone());
        packages.extend(self.packages.iter().cloned());
        env.extend(self.env.clone());
        let setup = [first.setup.clone(), self.setup.clone()].concat();
        Self { packages, setup, env, owned: [first.owned.clone(), self.owned.clone()].concat() }
    }

    /// Identifies the recipe.
    #[must_use]
    pub fn sum(&self) -> Sha256Hex {
        sum_of(self)
    }

    /// Lists commands that exist after it ran, as far as they are known.
    #[must_use]
    pub fn commands(&self) -> BTreeSet<String> {
        let packaged = packages::commands(&self.packages).into_iter().map(str::to_owned);
        packaged.chain(self.setup.iter().flat_map(|it| it.brings.iter().cloned())).collect()
    }
}

/// How a recipe is run. The link is to a guest that may act as root.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The complete environment of every command: certificates, proxies without credentials, the profile's values. It
    /// is not part of the image.
    pub env: BTreeMap<String, String>,
    /// Time limit for all commands together (`images.build_timeout`).
    pub limit: Duration,
    /// What happens after a failed command.
    pub on_failure: OnFailure,
    /// Cancels the running command and the rest of the recipe.
    pub cancel: CancellationToken,
}

/// What happens after a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Stops: an image is complete or not built.
    Stop,
    /// Continues, and installs packages one by one: a running container gets what is available.
    Continue,
}
