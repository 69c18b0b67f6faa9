//! What is put on a base, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::digest::{Sha256Hex, sum_of};
use crate::packages::{self, PackageName};

/// What is put on a base: packages, then commands. Serialised it is what makes two recipes the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// Installed first, all at once, in whatever order.
    pub packages: BTreeSet<PackageName>,
    /// Run one after the other as root.
    pub setup: Vec<Setup>,
    /// The profile's variables, as configured. They are no part of the image, but commands see them.
    pub env: BTreeMap<String, String>,
    /// Directories that belong to users, made at last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<OwnedDirectory>,
}

/// A directory and who it belongs to: a user that the image knows from then on, with a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnedDirectory {
    /// The user.
    pub uid: u32,
    /// Its group.
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
    /// What it does, for people.
    #[serde(skip)]
    pub what: String,
    /// Commands that are there afterwards.
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
    /// Nothing is put on: the base is used as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.setup.is_empty() && self.owned.is_empty()
    }

    /// With packages that the caller asks for besides.
    #[must_use]
    pub fn with(mut self, packages: impl IntoIterator<Item = PackageName>) -> Self {
        self.packages.extend(packages);
        self
    }

    /// Behind what has to come first.
    #[must_use]
    pub fn after(&self, first: &Self) -> Self {
        let (mut packages, mut env) = (first.packages.clone(), first.env.clone());
        packages.extend(self.packages.iter().cloned());
        env.extend(self.env.clone());
        let setup = [first.setup.clone(), self.setup.clone()].concat();
        Self { packages, setup, env, owned: [first.owned.clone(), self.owned.clone()].concat() }
    }

    /// Tells it from every other.
    #[must_use]
    pub fn sum(&self) -> Sha256Hex {
        sum_of(self)
    }

    /// Commands that exist once it was run, as far as that is known.
    #[must_use]
    pub fn commands(&self) -> BTreeSet<String> {
        let packaged = packages::commands(&self.packages).into_iter().map(str::to_owned);
        packaged.chain(self.setup.iter().flat_map(|it| it.brings.iter().cloned())).collect()
    }
}

/// How a recipe is run. The link is to a guest that may act as root.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The whole environment of every command: certificates, proxies without a user part, the profile's values. It is not
    /// part of the image.
    pub env: BTreeMap<String, String>,
    /// For all commands together (`images.build_timeout`).
    pub limit: Duration,
    /// What happens after a failed command.
    pub on_failure: OnFailure,
    /// Ends the running command and the rest of the recipe.
    pub cancel: CancellationToken,
}

/// What happens after a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The rest is not run: an image is complete or not built.
    Stop,
    /// The rest is run, and packages are installed one by one: a running container gets what is available.
    Continue,
}
