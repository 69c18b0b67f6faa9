//! Copies the repository of a directory for a container that clones it: bare, with branches, tags, the checked-out
//! commit, and objects of the same format.
//!
//! Git reads it as for a clone, from within a repository of Coracle: it runs nothing from its configuration, and its
//! directories and alternates have to be allowed by the user.

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

/// Fetches into one pack, including commits whose parents a shallow clone lacks.
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

/// Branches and tags under the same names.
const REFSPECS: [&str; 2] = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];

/// The ref for a commit that is checked out without a branch.
const DETACHED: &str = "refs/coracle/head";

/// A copy in a temporary directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct DirectoryCopy {
    repository: TempDir,
    /// The origin of the repository itself, if its URL contains no credential.
    pub origin: Option<GitUrl>,
    /// Number of uncommitted files, which the copy does not contain.
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
    /// Copies the branches, the tags and the history of a directory's repository. With `looks`, uncommitted files are
    /// counted.
    ///
    /// # Errors
    /// `policy_denied` for directories that are not allowed, and for a foreign owner; `fetch_failed` without a
    /// repository, and for one that git cannot read.
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
        let how = if looks && !is_empty { SourceChanges::Reported } else { SourceChanges::Ignored };
        let uncommitted = self.changes(dir, here, how).await?.map_or(0, |it| it.count());
        // A URL with user and password is refused.
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
        // Otherwise each reference would be a separate file when it is copied.
        self.own_printed(here, &["pack-refs", "--all"]).await.map(drop)
    }
}

/// Returns the branch that the first commit would create.
fn unborn_branch(source: &LocalRepository) -> Option<String> {
    let head = small_file(&source.git_dir.join("HEAD"), 4096)?;
    let name = head.strip_prefix("ref: refs/heads/")?.trim_end();
    // With another format of references, the file contains an invalid name.
    BranchName::parse(name).ok().map(|it| it.as_str().to_owned()).filter(|it| it != ".invalid")
}
