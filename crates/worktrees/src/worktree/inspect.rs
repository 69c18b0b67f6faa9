//! Reads files of a repository from its mirror, before a container exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use coracle_archive::transfer::Writer;
use coracle_host::git::GitCommand;
use coracle_host::process::Stdin;
use coracle_types::Input;
use coracle_types::failure::{Code, Failure, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::{SOON, WorktreeManager, git_command, parse, succeeded};
use crate::git_output::{CommitFile, CommitFileKind};
use crate::repository_source::RepositorySource;

/// Maximum number of listed files.
const MAX_FILES: usize = 100_000;

/// Maximum size of one file for an image.
const MAX_FILE: u64 = 256 << 20;

/// A commit of a repository, in its mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoCommit {
    mirror: PathBuf,
    /// The source of the repository, for messages.
    pub url: String,
    /// It is a directory of this host.
    pub local: bool,
    /// The commit.
    pub commit: String,
}

impl RepoCommit {
    /// The repository's name, without its path and suffix.
    #[must_use]
    pub fn name(&self) -> &str {
        let last = self.url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        last.strip_suffix(".git").filter(|it| !it.is_empty()).unwrap_or(last)
    }
}

/// Where packed files are in the repository, and in the archive.
#[derive(Clone, Copy, Debug)]
pub struct PackPaths<'a> {
    /// The prefix of their paths that is removed.
    pub below: &'a str,
    /// The directory in the archive.
    pub into: &'a str,
}

impl WorktreeManager {
    /// Fetches a repository, and returns the commit that a worktree would start from. `None` for a base that only a
    /// sandbox could know.
    ///
    /// # Errors
    /// `invalid_url`, `policy_denied`, `fetch_failed`.
    pub async fn see(&self, source: &str, base: Option<&str>) -> Result<Option<RepoCommit>> {
        let from = self.source(source)?;
        let mirror = self.fresh_mirror(&from).await?;
        let name = base.or(mirror.head.as_deref()).unwrap_or("main");
        let commit = match (mirror.branches.get(name), parse::hexadecimal(name)) {
            (Some(id), _) => Some(id.clone()),
            (None, Some(part)) => self.mirrored_commit(&mirror.dir, part).await?,
            (None, None) => None,
        };
        let (url, local) = (from.text(), matches!(from, RepositorySource::Dir(_)));
        Ok(commit.map(|commit| RepoCommit { mirror: mirror.dir, url, local, commit }))
    }

    async fn mirrored_commit(&self, mirror: &Path, id: &str) -> Result<Option<String>> {
        let what = format!("{id}^{{commit}}");
        let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", &what];
        let found = self.own(mirror, &words, Stdin::Empty, SOON).await?;
        Ok(parse::oid(&found.stdout.text()).filter(|_| found.ok()).map(str::to_owned))
    }

    /// Returns a commit that was inspected before, without fetching.
    ///
    /// # Errors
    /// `invalid_url`, `policy_denied`; `base_not_found` if the mirror no longer has it.
    pub async fn see_again(&self, source: &str, commit: &str) -> Result<RepoCommit> {
        let from = self.source(source)?;
        let mirror = self.mirror_dir(&from);
        let known = match parse::oid(commit).filter(|_| mirror.exists()) {
            Some(commit) => self.mirrored_commit(&mirror, commit).await?,
            None => None,
        };
        let message = || format!("The mirror of the repository has no `{commit}` any more.");
        let commit = known.ok_or_else(|| Failure::new(Code::BaseNotFound, message()))?;
        let local = matches!(from, RepositorySource::Dir(_));
        Ok(RepoCommit { mirror, url: from.text(), local, commit })
    }

    /// Lists the files at or below a path; an empty path means all. Submodules are left out.
    ///
    /// # Errors
    /// `limit_reached` if there are too many.
    pub async fn seen_files(&self, seen: &RepoCommit, below: &str) -> Result<Vec<CommitFile>> {
        let mut words = vec!["ls-tree", "-r", "-z", "--long", "--full-tree", &seen.commit];
        if !below.is_empty() {
            words.extend(["--", below]);
        }
        let ended = self.own(&seen.mirror, &words, Stdin::Empty, SOON).await?;
        let ended = succeeded(ended)?;
        let files = parse::tree(&ended.stdout.bytes());
        if ended.stdout.left_out() > 0 || files.len() > MAX_FILES {
            return Err(Failure::over_limit(format!("The repository has more than {MAX_FILES} files.")));
        }
        Ok(files)
    }

    /// Reads a file, if it is not longer than `max_bytes`.
    ///
    /// # Errors
    /// `limit_reached`.
    pub async fn seen_content(&self, seen: &RepoCommit, file: &CommitFile, max_bytes: usize) -> Result<Vec<u8>> {
        if file.size > max_bytes as u64 {
            let message =
                format!("`{}` has {} bytes; at most {max_bytes} are read.", file.path.escape_debug(), file.size);
            return Err(Failure::over_limit(message));
        }
        self.own_printed(&seen.mirror, &["cat-file", "blob", &file.oid]).await
    }

    /// Writes files into an archive.
    ///
    /// # Errors
    /// `limit_reached` for one that is too large.
    pub async fn pack(
        &self,
        seen: &RepoCommit,
        files: &[CommitFile],
        paths: PackPaths<'_>,
        tar: &mut Writer,
    ) -> Result<()> {
        let lines: String = files.iter().map(|it| format!("{}\n", it.oid)).collect();
        let stdin = Stdin::Input(Input::Bytes(lines.into_bytes()));
        let cat_file = git_command(
            "git cat-file",
            &seen.mirror,
            ["--git-dir=.", "cat-file", "--batch"],
            self.settings.git_timeout,
        );
        let (running, stdout) = self.git.start(GitCommand { stdin, ..cat_file }).await.map_err(Failure::internal)?;
        let mut from = BufReader::new(stdout);
        let mut made = BTreeSet::new();
        for file in files {
            if file.size > MAX_FILE {
                let message = format!("`{}` is too large for an image: {} bytes.", file.path.escape_debug(), file.size);
                return Err(Failure::over_limit(message));
            }
            let mut header = String::new();
            from.read_line(&mut header).await.map_err(Failure::internal)?;
            if header.trim_end() != format!("{} blob {}", file.oid, file.size) {
                return Err(Failure::internal("git did not give a file that it named"));
            }
            let length = usize::try_from(file.size).map_err(Failure::internal)?;
            let mut content = vec![0; length + 1];
            from.read_exact(&mut content).await.map_err(Failure::internal)?;
            content.truncate(length);
            pack_file(tar, &mut made, paths, file, &content).map_err(Failure::internal)?;
        }
        let ended = running.end("git cat-file", self.settings.git_timeout).await.map_err(Failure::internal)?;
        succeeded(ended).map(drop)
    }
}

/// Packs a file with its missing parent directories. A link that leads out of the tree is left out.
///
/// # Errors
/// If a limit is reached or the archive cannot be written.
pub fn pack_file(
    tar: &mut Writer,
    made: &mut BTreeSet<String>,
    paths: PackPaths<'_>,
    file: &CommitFile,
    content: &[u8],
) -> Result<(), coracle_archive::transfer::Error> {
    let inner = file.path.strip_prefix(paths.below).unwrap_or(&file.path).trim_start_matches('/');
    let path = &format!("{}/{inner}", paths.into);
    for (at, _) in path.match_indices('/') {
        if made.insert(path[..at].to_owned()) {
            tar.dir(&path[..at], 0o755, None)?;
        }
    }
    match file.kind {
        CommitFileKind::File => tar.file(path, 0o644, content),
        CommitFileKind::Program => tar.file(path, 0o755, content),
        CommitFileKind::Link => match std::str::from_utf8(content) {
            Ok(target) => tar.link_within(path, target, None).map(drop),
            Err(_) => Ok(()),
        },
    }
}
