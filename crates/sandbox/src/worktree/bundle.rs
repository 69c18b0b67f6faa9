//! A repository of a directory, packed into one file for a container that gets a clone of it.
//!
//! Git reads it as a clone would, with a repository of ours around it: nothing that it configures runs, and neither its
//! repository nor its objects lie where the person does not allow.

use std::path::{Path, PathBuf};

use coracle_runtime::host::git::Peer;
use coracle_runtime::host::process::{ProgramOutput, Stdin};
use coracle_runtime::{GitRules, GitUrl};
use tempfile::TempDir;

use super::mirror::good;
use super::{LONG, SOON, SourceChanges, WorktreeManager, host, parse, succeeded};
use crate::repository_source::checked_repository;
use crate::{Code, Failure, Result};

/// Branches, tags, and what is checked out, as they are there.
const REFSPECS: [&str; 3] = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/coracle/head"];

/// All branches and tags of a repository as a file, which goes with this.
#[derive(Debug)]
pub struct DirectoryBundle {
    repository: TempDir,
    /// Where the repository itself came from, if that address has no credential in it.
    pub origin: Option<GitUrl>,
    /// Files that are not committed, and so not in the file.
    pub uncommitted: usize,
}

impl DirectoryBundle {
    /// The file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.repository.path().join("it.bundle")
    }
}

impl WorktreeManager {
    /// Packs the branches, the tags and the history of a directory's repository. With `looks` files that are not
    /// committed are counted.
    ///
    /// # Errors
    /// `policy_denied` outside of what the person allows, `fetch_failed` for what is no repository or has no commit.
    pub async fn bundle_directory(&self, dir: &Path, looks: bool) -> Result<DirectoryBundle> {
        let config = self.config_of(dir)?;
        let repository = self.quarantine(None).await?;
        let (here, from) = (repository.path(), dir.display().to_string());
        let words = ["fetch", "--quiet", "--no-write-fetch-head", "--no-auto-gc", "--update-head-ok", "--", &from];
        let words = [&words[..], &REFSPECS].concat();
        good(self.own_with(here, &words, Stdin::Empty, Peer::Dir, LONG).await)?;
        let asks = ["ls-remote", "--symref", "--", &from, "HEAD"];
        let told = self.own_with(here, &asks, Stdin::Empty, Peer::Dir, SOON).await.map_err(host)?;
        match parse::head_branch(&told.stdout.bytes()) {
            Some(branch) => self.own_printed(here, &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]).await?,
            None => self.own_printed(here, &["update-ref", "--no-deref", "HEAD", "refs/coracle/head"]).await?,
        };
        let packs = ["bundle", "create", "--quiet", "it.bundle", "HEAD", "--branches", "--tags"];
        succeeded(self.own(here, &packs, Stdin::Empty, LONG).await?)?;
        let how = if looks { SourceChanges::Told } else { SourceChanges::Unseen };
        let uncommitted = self.changes(dir, here, how).await?.map_or(0, |it| it.count());
        let origin = self.origin_of(here, &config).await;
        Ok(DirectoryBundle { repository, origin, uncommitted })
    }

    /// The configuration of its repository, which lies where it may, with its objects and references.
    fn config_of(&self, dir: &Path) -> Result<PathBuf> {
        let common = checked_repository(dir, &self.settings.allow_roots)?;
        if common.join("shallow").symlink_metadata().is_ok() {
            let failure = Failure::new(Code::FetchFailed, format!("`{}` is a shallow clone", dir.display()));
            return Err(failure.hint("run `git fetch --unshallow` there, or clone it by its URL"));
        }
        Ok(common.join("config"))
    }

    async fn origin_of(&self, here: &Path, config: &Path) -> Option<GitUrl> {
        let file = config.display().to_string();
        let words = ["config", "--no-includes", "--file", &file, "--get", "remote.origin.url"];
        let told = self.own(here, &words, Stdin::Empty, SOON).await.ok().filter(ProgramOutput::ok)?;
        // One with a user and a password is refused as a URL.
        GitUrl::parse(told.stdout.text().trim(), GitRules { allow_private: true, ssh: true }).ok()
    }
}
