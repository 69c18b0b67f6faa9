//! Restores a save into a managed container or a directory of the host.
//!
//! Saved data comes from a container, so Coracle's own reader unpacks it in a separate directory, and git runs only
//! inside.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use coracle_archive::transfer::{self, Limits, SkippedEntry, Unpack};
use coracle_host::fs::HostPath;
use coracle_runtime::ExecTarget;
use coracle_types::{Command, ContainerPath, Exec, Exit, random_hex};
use serde::Serialize;

use super::inert::{InertRepositories, renamed};
use super::manifest::{NameList, PartKind, SavedItem};
use super::{Save, SavedKind};
use crate::{CopyRequest, Error, ExecContext, ManagedContainer, Result, copy_in};

/// What is unpacked, at most: a save is smaller.
const LIMITS: Limits = Limits { max_bytes: u64::MAX >> 1, max_entries: 1_000_000 };

/// For one command of git's.
const GIT_TIME: Duration = Duration::from_secs(120);

/// Where refs of a save are fetched to.
pub const SAVED_REFS: &str = "refs/coracle/saved";

/// What was put back of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoredItem {
    /// Where it lay.
    pub from: ContainerPath,
    /// Where it is now: inside, or on the host.
    pub path: String,
    /// What it is.
    pub kind: SavedKind,
    /// Files that were put back.
    pub files: u64,
    /// What was not.
    pub skipped: Vec<SkippedEntry>,
    /// What became of its commits.
    pub commits: Commits,
    /// The patch of what was staged, where it is now.
    pub staged: Option<String>,
    /// Its repositories are inert until the user has looked at their configuration and hooks.
    pub inert: bool,
    /// The shell command that makes them repositories again; none if they are too many for one.
    pub activate: Option<String>,
}

/// What became of the commits of a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Commits {
    /// There were none to put back.
    None,
    /// They are in a bundle there, to be cloned or fetched by hand.
    Bundle(String),
    /// They are below [`SAVED_REFS`] of the repository that was there.
    Fetched,
    /// There was no repository, so one was made, and the branch checked out.
    CheckedOut,
}

impl Save {
    /// Unpacks it below an empty directory of the host, each place under its path inside. Repositories are inert there: git
    /// of the host would run what their configuration says.
    ///
    /// # Errors
    /// [`Error::PathExists`] when the directory is not empty; [`Error::Copy`] when it is damaged, or cannot be written.
    pub fn unpack(&self, into: &Path) -> Result<Vec<RestoredItem>> {
        std::fs::create_dir_all(into).map_err(disk)?;
        if std::fs::read_dir(into).map_err(disk)?.next().is_some() {
            return Err(Error::PathExists { path: into.display().to_string(), side: "on the host and is not empty" });
        }
        let dir = Dir::open_ambient_dir(into, ambient_authority()).map_err(disk)?;
        // The files at a path may have been unpacked with another item.
        let mut known = BTreeSet::new();
        self.manifest.items.iter().map(|item| self.unpack_item(item, &dir, into, &mut known)).collect()
    }

    fn unpack_item(
        &self,
        item: &SavedItem,
        dir: &Dir,
        into: &Path,
        known: &mut BTreeSet<PathBuf>,
    ) -> Result<RestoredItem> {
        let above = item.path.parent().unwrap_or_else(ContainerPath::root);
        let above = renamed(above.as_str().trim_start_matches('/'));
        let place = match above.as_str() {
            "" => dir.try_clone(),
            above => dir.create_dir_all(above).and_then(|()| dir.open_dir(above)),
        };
        let (place, real) = (place.map_err(disk)?, into.join(&above));
        let top = renamed(item.top());
        let moved = match self.checked(item, PartKind::Archive)? {
            Some(tar) => Unpack::new(&place, &top, LIMITS).renamed(renamed).run(tar).map_err(Error::Copy)?,
            None => transfer::TransferReport::default(),
        };
        let mut repositories = InertRepositories::find(&place, &top).map_err(disk)?;
        repositories.retain_new(&real, known);
        let beside = |what: PartKind| -> Result<Option<String>> {
            let Some(from) = self.checked(item, what)? else { return Ok(None) };
            let name = format!("{top}.saved.{}", what.ending());
            let options = cap_std::fs::OpenOptions::new().write(true).create_new(true).clone();
            let mut to = place.open_with(&name, &options).map_err(disk)?;
            io::copy(&mut &from, &mut to).map_err(disk)?;
            Ok(Some(real.join(name).display().to_string()))
        };
        let commits = beside(PartKind::Bundle)?.map_or(Commits::None, Commits::Bundle);
        let staged = beside(PartKind::Staged)?;
        let path = real.join(&top).display().to_string();
        let (from, kind) = (item.path.clone(), item.kind);
        let inert = !repositories.is_empty();
        let activate = repositories.activation(&real);
        Ok(RestoredItem {
            from,
            path,
            kind,
            files: moved.files,
            skipped: moved.skipped,
            commits,
            staged,
            inert,
            activate,
        })
    }

    fn unpack_archive(&self, item: &SavedItem, place: &Dir) -> Result<transfer::TransferReport> {
        match self.checked(item, PartKind::Archive)? {
            Some(tar) => transfer::unpack(tar, place, item.top(), LIMITS).map_err(Error::Copy),
            None => Ok(transfer::TransferReport::default()),
        }
    }

    /// A part, which has to be what the manifest says.
    fn checked(&self, item: &SavedItem, what: PartKind) -> Result<Option<File>> {
        item.part(what).map(|it| self.open(it).map_err(disk)).transpose()
    }
}

/// A container that a save is put back into.
#[derive(Debug)]
pub struct RestoreTarget<'a> {
    /// The container, which runs.
    pub found: &'a ManagedContainer,
    /// How commands run in it.
    pub inside: &'a ExecTarget,
    /// Who runs them.
    pub session: &'a ExecContext,
    /// Where temporary files go.
    pub scratch: PathBuf,
}

impl RestoreTarget<'_> {
    /// Puts a save back: commits below [`SAVED_REFS`] where a repository is, else as a repository; then files over what
    /// is there.
    ///
    /// # Errors
    /// Those of [`copy_in`].
    pub async fn put_back(&self, save: &Save) -> Result<Vec<RestoredItem>> {
        let mut restored = Vec::new();
        for item in &save.manifest.items {
            restored.push(self.item(save, item).await?);
        }
        Ok(restored)
    }

    async fn item(&self, save: &Save, item: &SavedItem) -> Result<RestoredItem> {
        let temp = tempfile::tempdir_in(&self.scratch).map_err(disk)?;
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).map_err(disk)?;
        let commits = match save.checked(item, PartKind::Bundle)? {
            Some(bundle) => self.commits(item, bundle, temp.path()).await?,
            None => Commits::None,
        };
        let mut skipped = match commits {
            Commits::CheckedOut => self.delete(item).await?,
            _ => Vec::new(),
        };
        let moved = save.unpack_archive(item, &dir)?;
        skipped.extend(moved.skipped);
        let files = temp.path().join(item.top());
        if moved.files + moved.dirs > 0 {
            // The root is the only place that has no name of its own.
            let (parts, into) = match item.path.parent() {
                Some(above) => (vec![files], above),
                None => (children(&files)?, ContainerPath::root()),
            };
            for part in parts {
                self.copy(&part, into.clone()).await?;
            }
        }
        let staged = match save.checked(item, PartKind::Staged)? {
            Some(patch) => Some(self.beside(patch, temp.path(), "patch").await?.to_string()),
            None => None,
        };
        let (from, path, kind) = (item.path.clone(), item.path.to_string(), item.kind);
        let (inert, activate) = (false, None);
        Ok(RestoredItem { from, path, kind, files: moved.files, skipped, commits, staged, inert, activate })
    }

    async fn commits(&self, item: &SavedItem, bundle: File, temp: &Path) -> Result<Commits> {
        let bundle = self.beside(bundle, temp, "bundle").await?;
        let by_hand = Commits::Bundle(bundle.to_string());
        let at = &item.path;
        let is_new = !self.runs(at, &["test", "-e", ".git"]).await?;
        if is_new {
            let branch = format!("--initial-branch={}", item.branch.as_deref().unwrap_or("saved"));
            if !self.runs(&ContainerPath::root(), &["git", "init", "--quiet", &branch, "--", at.as_str()]).await? {
                return Ok(by_hand);
            }
            if !item.shallow.is_empty() {
                let list = temp.join("shallow");
                std::fs::write(&list, item.shallow.join("\n") + "\n").map_err(disk)?;
                self.copy(&list, at.join(".git").map_err(|_| unnamed(item))?).await?;
            }
        }
        let mut fetch = vec!["git", "--git-dir=.git", "fetch", "--quiet", "--no-tags", "--update-shallow"];
        let refs = format!("+refs/*:{SAVED_REFS}/*");
        let head = format!("+HEAD:{SAVED_REFS}/HEAD");
        fetch.extend(["--", bundle.as_str(), &refs]);
        fetch.extend(item.head.as_ref().map(|_| &*head));
        if !self.runs(at, &fetch).await? {
            return Ok(by_hand);
        }
        self.runs(&ContainerPath::root(), &["rm", "-f", "--", bundle.as_str()]).await?;
        let Some(head) = item.head.as_deref().filter(|_| is_new) else { return Ok(Commits::Fetched) };
        let branch = item.branch.as_deref().unwrap_or("saved");
        let checkout = ["git", "--git-dir=.git", "--work-tree=.", "checkout", "--quiet", "-B", branch, head, "--"];
        if !self.runs(at, &checkout).await? {
            return Ok(Commits::Fetched);
        }
        Ok(Commits::CheckedOut)
    }

    /// Removes what was deleted before the save, and names what stays.
    async fn delete(&self, item: &SavedItem) -> Result<Vec<SkippedEntry>> {
        let NameList { names, count } = &item.deleted;
        let mut skipped = Vec::new();
        for names in names.chunks(500) {
            let words: Vec<_> = ["rm", "-f", "--"].into_iter().chain(names.iter().map(String::as_str)).collect();
            if !self.runs(&item.path, &words).await? {
                let reason = "it was deleted, and may be there again: it cannot be removed";
                skipped.extend(names.iter().map(|it| SkippedEntry { path: it.clone(), reason }));
            }
        }
        if *count > names.len() as u64 {
            let reason = "more files were deleted than a save names; they are there again";
            skipped.push(SkippedEntry { path: item.path.to_string(), reason });
        }
        Ok(skipped)
    }

    /// A file next to the work, in the container's directory for restored files.
    async fn beside(&self, mut from: File, temp: &Path, ending: &str) -> Result<ContainerPath> {
        let name = format!("coracle-saved-{}.{ending}", random_hex::<4>());
        let path = temp.join(&name);
        io::copy(&mut from, &mut File::create(&path).map_err(disk)?).map_err(disk)?;
        let into = ContainerPath::parse("/tmp").expect("a plain path");
        self.copy(&path, into).await
    }

    /// Into a directory, under its own name.
    async fn copy(&self, from: &Path, into: ContainerPath) -> Result<ContainerPath> {
        let request = CopyRequest {
            host: HostPath::open(from)?,
            host_name: None,
            container: into,
            into_directory: true,
            overwrite: true,
            limits: LIMITS,
            protected: Vec::new(),
            scratch: self.scratch.clone(),
            notes: self.scratch.clone(),
            meter: crate::CopyMeter::default(),
        };
        Ok(copy_in(self.found, self.inside, request).await?.container_path)
    }

    /// Whether a program inside ended well. One that is missing did not.
    async fn runs(&self, at: &ContainerPath, words: &[&str]) -> Result<bool> {
        let argv = words.iter().map(|it| (*it).to_owned()).collect();
        let mut exec: Exec = self.session.exec(Command::Argv(argv));
        exec.workdir = at.clone();
        exec.limits.total = Some(GIT_TIME);
        match self.inside.exec(exec).await {
            Ok(output) => Ok(output.exit == Exit::Code(0)),
            Err(coracle_types::Error::NoSuchPath(_)) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }
}

fn children(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(disk)?;
    entries.map(|it| Ok(it.map_err(disk)?.path())).collect()
}

fn unnamed(item: &SavedItem) -> Error {
    disk(io::Error::other(format!("`{}` cannot be named", item.path)))
}

fn disk(source: io::Error) -> Error {
    Error::Copy(transfer::Error::Io { path: "the save".into(), source })
}
