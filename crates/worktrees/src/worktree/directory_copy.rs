//! A repository of a directory, copied whole for a container that clones it: bare, with its branches, its tags, what is
//! checked out, and objects of the same format.
//!
//! Git reads it as a clone would, with a repository of ours around it: nothing that it configures runs, and neither its
//! repository nor its objects lie where the person does not allow.

use std::path::{Path, PathBuf};

use coracle_host::branch::BranchName;
use coracle_host::git::Peer;
use coracle_host::git_url::{GitRules, GitUrl};
use coracle_host::process::Stdin;
use coracle_types::failure::Result;
use tempfile::TempDir;

use super::{SOON, WorktreeManager, host, parse};
use crate::local_repository::LocalRepository;
use crate::repository_source::small_file;
use crate::worktree::source_changes::SourceChanges;

/// Fetches into one pack, and does not stop at commits that a shallow clone has no parents of.
const FETCH: [&str; 8] = [
    "-c",
    "fetch.unpackLimit=1",
    "fetch",
    "--quiet",
    "--no-write-fetch-head",
    "--no-auto-gc",
    "--update-head-ok",
    "--update-shallow",
];

/// Branches and tags, as they are there.
const REFSPECS: [&str; 2] = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];

/// Where a commit is fetched to that is checked out without a branch.
const DETACHED: &str = "refs/coracle/head";

/// A repository in a temporary directory, which goes with this.
#[derive(Debug)]
pub struct DirectoryCopy {
    repository: TempDir,
    /// Where the repository itself came from, if that address has no credential in it.
    pub origin: Option<GitUrl>,
    /// Files that are not committed, and so not in it.
    pub uncommitted: usize,
    /// It has no commit yet.
    pub is_empty: bool,
}

impl DirectoryCopy {
    /// The bare repository.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.repository.path().to_owned()
    }
}

impl WorktreeManager {
    /// Copies the branches, the tags and the history of a directory's repository. With `looks` files that are not
    /// committed are counted.
    ///
    /// # Errors
    /// `policy_denied` outside of what the person allows, and for a foreign owner; `fetch_failed` for what is no repository,
    /// and for one that git cannot read.
    pub async fn copy_directory(&self, dir: &Path, looks: bool) -> Result<DirectoryCopy> {
        let source = self.local_source(dir).await?;
        let repository = self.quarantine_of(source.object_format(), None).await?;
        let (here, from) = (repository.path(), dir.display().to_string());
        let lists = ["ls-remote", "--symref", "--", &from];
        let listed = self.own_with(here, &lists, Stdin::Empty, Peer::Dir, SOON).await.map_err(host)?;
        if !listed.ok() {
            return Err(self.unreadable(&source, &listed).await);
        }
        let listed = listed.stdout.bytes();
        let is_empty = listed.is_empty();
        if !is_empty {
            self.fetch_all(&source, here, &listed).await?;
        } else if let Some(branch) = unborn_branch(&source) {
            self.own_printed(here, &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]).await?;
        }
        let how = if looks && !is_empty { SourceChanges::Told } else { SourceChanges::Unseen };
        let uncommitted = self.changes(dir, here, how).await?.map_or(0, |it| it.count());
        // One with a user and a password is refused as a URL.
        let rules = GitRules { allow_private: true, ssh: true };
        let origin = source.origin().and_then(|it| GitUrl::parse(it, rules).ok());
        Ok(DirectoryCopy { repository, origin, uncommitted, is_empty })
    }

    async fn fetch_all(&self, source: &LocalRepository, here: &Path, listed: &[u8]) -> Result<()> {
        let branch = parse::head_branch(listed).or_else(|| unborn_branch(source));
        let is_detached = branch.is_none() && parse::has_head(listed);
        let detached = format!("+HEAD:{DETACHED}");
        let from = source.dir.display().to_string();
        let mut words = [&FETCH[..], &["--", &from], &REFSPECS].concat();
        words.extend(is_detached.then_some(&*detached));
        match self.own_with(here, &words, Stdin::Empty, Peer::Dir, self.settings.git_timeout).await {
            Ok(ended) if ended.ok() => {}
            Ok(ended) => return Err(self.unreadable(source, &ended).await),
            Err(err) => return Err(host(err)),
        }
        if let Some(branch) = branch {
            self.own_printed(here, &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]).await?;
        } else if is_detached {
            self.own_printed(here, &["update-ref", "--no-deref", "HEAD", DETACHED]).await?;
        }
        // Each reference would be a file of its own on the way in.
        self.own_printed(here, &["pack-refs", "--all"]).await.map(drop)
    }
}

/// The branch that the next commit creates.
fn unborn_branch(source: &LocalRepository) -> Option<String> {
    let head = small_file(&source.git_dir.join("HEAD"), 4096)?;
    let name = head.strip_prefix("ref: refs/heads/")?.trim_end();
    // With another store of references the file names none.
    BranchName::parse(name).ok().map(|it| it.as_str().to_owned()).filter(|it| it != ".invalid")
}
