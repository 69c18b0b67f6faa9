//! Builds a commit from the uncommitted files of a user's directory.
//!
//! The directory is read with a repository of Coracle and a copy of its index: the user's index, files and references
//! are not changed, nothing from their repository's configuration runs, and git enters no nested repository.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_host::git::{GitCommand, Peer};
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_types::failure::{Failure, Result};
use coracle_types::{Input, SandboxWarning};
use tempfile::TempDir;

use super::{MAX_OUTPUT, WorktreeManager, git_command, host, parse, succeeded};
use crate::repository_source::{RepositoryDirs, small_file};
use crate::worktree::source_changes::SourceChanges;

/// Maximum size of an index.
const MAX_INDEX: u64 = 256 << 20;

/// Maximum size of the user's ignore patterns.
const MAX_PATTERNS: u64 = 1 << 20;

/// Differences from the checked-out commit.
#[derive(Debug)]
pub(super) struct UncommittedChanges {
    /// Files that differ.
    files: BTreeSet<Vec<u8>>,
    /// The checked-out commit.
    head: String,
    checkout: Checkout,
}

/// A repository of Coracle with the user's objects as alternates, and its own index.
#[derive(Debug)]
struct Checkout {
    dir: PathBuf,
    repository: TempDir,
    index: PathBuf,
    /// Files whose content differs from the index.
    touched: Vec<Vec<u8>>,
}

/// The commit that a checkout is compared with, and the mirror that contains it.
#[derive(Clone, Copy)]
struct MirrorHead<'a> {
    mirror: &'a Path,
    head: &'a str,
}

impl WorktreeManager {
    /// Finds uncommitted changes of a checkout, if they are needed: an error only matters if they are included.
    pub(super) async fn changes(
        &self,
        dir: &Path,
        mirror: &Path,
        how: SourceChanges,
    ) -> Result<Option<UncommittedChanges>> {
        match how {
            SourceChanges::Ignored => Ok(None),
            SourceChanges::Included => self.left_out(dir, mirror).await,
            SourceChanges::Reported => Ok(self.left_out(dir, mirror).await.unwrap_or_else(|err| {
                tracing::warn!(dir = %dir.display(), %err, "cannot find uncommitted files");
                None
            })),
        }
    }

    /// Finds uncommitted files of a checkout; `None` without any, or if nothing is checked out.
    pub(super) async fn left_out(&self, dir: &Path, mirror: &Path) -> Result<Option<UncommittedChanges>> {
        let Some(place) = RepositoryDirs::find(dir, &self.settings.allow_roots)? else { return Ok(None) };
        let arguments = ["ls-remote", "--", &dir.display().to_string(), "HEAD"];
        let remote_head = self.own_with(mirror, &arguments, Stdin::Empty, Peer::Dir, self.settings.git_timeout);
        let (output, patterns) = tokio::join!(remote_head, self.user_patterns());
        let output = output.map_err(host)?;
        let text = output.stdout.text();
        let Some(head) = text.split_whitespace().next().and_then(parse::oid).filter(|_| output.ok()) else {
            return Ok(None);
        };
        let head = head.to_owned();
        let mut checkout = self.open_checkout(dir, &place, MirrorHead { mirror, head: &head }, &patterns).await?;
        let plain = ["-z", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=all"];
        let tracked = [&["diff-files"][..], &plain].concat();
        let staged = [&["diff-index", "--cached"][..], &plain, &[&*head, "--"]].concat();
        let new = ["ls-files", "-z", "--others", "--exclude-standard"];
        let (tracked, staged, new) = tokio::try_join!(
            self.git_output(&checkout, &tracked, Stdin::Empty),
            self.git_output(&checkout, &staged, Stdin::Empty),
            self.git_output(&checkout, &new, Stdin::Empty),
        )?;
        let staged = names(&staged);
        // A directory here is a nested repository, whose content cannot be committed.
        let mut touched: BTreeSet<Vec<u8>> = names(&tracked);
        touched.extend(names(&new).into_iter().filter(|it| !it.ends_with(b"/")));
        let filtered = self.filtered(&checkout, &touched).await?;
        touched.retain(|it| !filtered.contains(it));
        checkout.touched = touched.iter().cloned().collect();
        let files: BTreeSet<_> = touched.into_iter().chain(staged).collect();
        Ok((!files.is_empty()).then_some(UncommittedChanges { files, head, checkout }))
    }

    /// Commits all of it on top of the checked-out commit, and returns the repository with the commit.
    pub(super) async fn commit_of<'a>(&self, state: &'a UncommittedChanges) -> Result<(String, &'a Path)> {
        let checkout = &state.checkout;
        let touched = Stdin::Input(Input::Bytes(checkout.touched.join(&0)));
        self.git_output(checkout, &["update-index", "-z", "--add", "--remove", "--stdin"], touched).await?;
        let text = |output: Vec<u8>| String::from_utf8_lossy(&output).trim().to_owned();
        let tree = text(self.git_output(checkout, &["write-tree"], Stdin::Empty).await?);
        let message = format!("Uncommitted changes of {}", checkout.dir.display());
        let words = ["commit-tree", "-p", &state.head, "-m", &message, &tree];
        let commit = text(self.git_output(checkout, &words, Stdin::Empty).await?);
        match parse::oid(&commit) {
            Some(_) => Ok((commit, checkout.repository.path())),
            None => Err(Failure::internal("git named no commit")),
        }
    }

    async fn open_checkout(
        &self,
        dir: &Path,
        place: &RepositoryDirs,
        base: MirrorHead<'_>,
        persons: &str,
    ) -> Result<Checkout> {
        let repository = self.quarantine(None).await?;
        let objects = [base.mirror.join("objects"), place.common_dir.join("objects")];
        let lines: String = objects.iter().map(|it| format!("{}\n", it.display())).collect();
        let patterns = small_file(&place.common_dir.join("info/exclude"), MAX_PATTERNS).unwrap_or_default();
        let patterns = format!("{patterns}\n{persons}");
        let written = || -> std::io::Result<()> {
            for (below, name, content) in [("objects/info", "alternates", &lines), ("info", "exclude", &patterns)] {
                let above = repository.path().join(below);
                std::fs::create_dir_all(&above)?;
                std::fs::write(above.join(name), content)?;
            }
            Ok(())
        };
        written().map_err(Failure::internal)?;
        let index = repository.path().join("index");
        let copied = copy(&place.git_dir.join("index"), &index);
        let checkout = Checkout { dir: dir.to_owned(), repository, index, touched: Vec::new() };
        // It exits with 1 if a file differs, which the next command finds.
        let refresh = ["update-index", "-q", "--ignore-submodules", "--refresh"];
        let refreshed = self.run_git(&checkout, &refresh, Stdin::Empty).await?;
        // The index is split over files, or damaged: then all files are read.
        if !copied || refreshed.exit > 1 {
            let _ = std::fs::remove_file(&checkout.index);
            self.git_output(&checkout, &["read-tree", base.head], Stdin::Empty).await?;
            self.run_git(&checkout, &refresh, Stdin::Empty).await?;
        }
        Ok(checkout)
    }

    /// Finds files that need a filter program of the user: their committed content is used.
    async fn filtered(&self, checkout: &Checkout, names: &BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>> {
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let paths: Vec<_> = names.iter().cloned().collect();
        let stdin = Stdin::Input(Input::Bytes(paths.join(&0)));
        let output = self.git_output(checkout, &["check-attr", "-z", "--stdin", "filter"], stdin).await?;
        let fields: Vec<&[u8]> = output.split(|it| *it == 0).collect();
        let has = |it: &&[&[u8]]| !matches!(it[2], b"unspecified" | b"unset");
        Ok(fields.chunks_exact(3).filter(has).map(|it| it[0].to_vec()).collect())
    }

    /// Returns the user's global ignore patterns.
    async fn user_patterns(&self) -> String {
        let path = |name: &str| self.settings.user_env.get(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let Some(home) = path("HOME") else { return String::new() };
        let (xdg, config) = (path("XDG_CONFIG_HOME"), self.user_config().await);
        let configured = config.rsplit('\0').find_map(|it| it.strip_prefix("core.excludesfile\n"));
        let file = match configured {
            Some(path) => path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |it| home.join(it)),
            None => xdg.unwrap_or_else(|| home.join(".config")).join("git/ignore"),
        };
        if file.is_absolute() { small_file(&file, MAX_PATTERNS).unwrap_or_default() } else { String::new() }
    }

    /// Returns git's output about the checkout. Fails if git does.
    async fn git_output(&self, checkout: &Checkout, words: &[&str], stdin: Stdin) -> Result<Vec<u8>> {
        let ended = self.run_git(checkout, words, stdin).await?;
        if ended.stdout.left_out() > 0 {
            let message = "There are too many files in the directory.";
            return Err(Failure::over_limit(message));
        }
        Ok(succeeded(ended)?.stdout.bytes())
    }

    async fn run_git(&self, checkout: &Checkout, words: &[&str], stdin: Stdin) -> Result<ProgramOutput> {
        let mut place = OsString::from("--git-dir=");
        place.push(checkout.repository.path());
        let fixed = [place, "--work-tree=.".into(), "-c".into(), "core.symlinks=true".into()];
        let command = git_command(
            "git",
            &checkout.dir,
            fixed.into_iter().chain(words.iter().map(OsString::from)),
            self.settings.git_timeout,
        );
        let ours = coracle_host::hardened::as_ourselves().map(|(name, value)| (name, OsString::from(value)));
        let env = [("GIT_INDEX_FILE", checkout.index.clone().into_os_string())].into_iter().chain(ours).collect();
        self.git.run(GitCommand { env, stdin, keep_bytes: 2 * MAX_OUTPUT, ..command }, Peer::None).await.map_err(host)
    }
}

impl UncommittedChanges {
    /// The number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// The warning that they are not included.
    pub(super) fn warning(&self) -> SandboxWarning {
        let count = self.files.len();
        let (files, are) = if count == 1 { ("file", "is") } else { ("files", "are") };
        let message = format!(
            "{count} {files} of `{}` {are} not committed, and not in the worktree; `include_uncommitted` includes them",
            self.checkout.dir.display()
        );
        SandboxWarning::new("uncommitted_not_included", message)
    }
}

fn names(output: &[u8]) -> BTreeSet<Vec<u8>> {
    output.split(|it| *it == 0).filter(|it| !it.is_empty()).map(<[u8]>::to_vec).collect()
}

fn copy(from: &Path, to: &Path) -> bool {
    let copied = || -> std::io::Result<u64> {
        let mut from = HostPath::open(from).map_err(std::io::Error::other)?.file()?.take(MAX_INDEX);
        std::io::copy(&mut from, &mut std::fs::File::create_new(to)?)
    };
    copied().is_ok_and(|bytes| bytes < MAX_INDEX)
}
