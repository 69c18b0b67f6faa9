//! Applies changes to the host: all of them, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use coracle_archive::transfer::Limits;
use coracle_host::fs::HostPathError;
use coracle_host::tree::{DirHandle, FileIdentity};
use coracle_host::tree_backup::{BackupError, TreeBackup};
use coracle_host::tree_sweep::sweep;
use coracle_runtime::{Baseline, BaselineFile, is_trusted_by_tools};
use coracle_types::{Error, random_hex};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::changes::{Change, ChangeKind, Changes, SkippedFile};
use super::host_files::{HostFileState, inspect, tree};
use crate::GuestFs;
use crate::import::Filter;

/// Options of an apply.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    /// Names that need the user's approval, in addition to files that programs act on.
    pub protected: Vec<String>,
    /// The user approved it.
    pub also_protected: bool,
    /// Where new content waits until everything is known.
    pub scratch: PathBuf,
    /// Bounds.
    pub limits: Limits,
}

/// The files that were applied.
#[derive(Debug, Default)]
pub struct AppliedChanges {
    /// Files that were written or removed.
    pub files: Vec<AppliedFile>,
    /// Files that were skipped.
    pub passed: Vec<SkippedFile>,
    /// Files of protected names, which need the user's approval.
    pub protected: Vec<String>,
    /// What the workspace is held against from now on.
    pub baseline: Baseline,
}

/// A file that was written to the host, or removed there.
#[derive(Debug, Serialize)]
pub struct AppliedFile {
    /// Its path in the workspace.
    pub path: String,
    /// How it changed.
    pub change: ChangeKind,
}

/// A file of the host that prevents an apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Its path in the workspace.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

/// Why an apply failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The host's files are not those that were copied in.
    #[error("{} on the host {} not what was copied in", crate::plural::plural(.0.len() as u64, "file"), if .0.len() == 1 { "is" } else { "are" })]
    Conflict(Vec<Conflict>),
    /// A directory of the host is not there any more.
    #[error(transparent)]
    Gone(#[from] HostPathError),
    /// The workspace changed during the apply.
    #[error("`{}` in the workspace changes meanwhile", .0.escape_debug())]
    Changing(String),
    /// More than may be copied.
    #[error("there are more than {limit} {of} to write")]
    TooLarge {
        /// What may be.
        limit: u64,
        /// Of what.
        of: &'static str,
    },
    /// The host's disk. All files are as they were, unless some are listed.
    #[error("cannot write `{}`", path.escape_debug())]
    Io {
        /// Which file, by its path in the workspace.
        path: String,
        /// Files that could not be put back, by their paths in the workspace.
        written: Vec<String>,
        /// Directories with copies of what they were, if any could not be put back.
        copies: Vec<PathBuf>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection to the guest.
    #[error(transparent)]
    Link(#[from] Error),
}

/// Writes what changed in a workspace to the directories that it was filled from: all of it, or nothing.
///
/// # Errors
/// [`ApplyError`]. Nothing is changed then, except for files that [`ApplyError::Io`] lists.
pub async fn apply(
    files: &GuestFs,
    baseline: &Baseline,
    changes: &Changes,
    options: &ApplyOptions,
) -> Result<AppliedChanges, ApplyError> {
    let classified = classify(baseline, changes, options)?;
    let mut applied = AppliedChanges {
        passed: classified.passed,
        protected: classified.protected,
        baseline: baseline.clone(),
        ..AppliedChanges::default()
    };
    let trees = trees(baseline, &classified.writes)?;
    let (steps, trees) = blocking(move || check(classified.writes, &trees).map(|it| (it, trees))).await?;
    let spool = fetch_all(files, &steps, &options.scratch).await?;
    let scratch = options.scratch.clone();
    // It completes even if the call is cancelled, so that changes are not half applied.
    blocking(move || {
        write_all(&steps, &trees, &spool, &scratch)?;
        for step in &steps {
            let Change { path, new, .. } = &step.meant.change;
            match new {
                Some(new) => _ = applied.baseline.files.insert(path.clone(), new.clone()),
                None => _ = applied.baseline.files.remove(path),
            }
            applied.files.push(AppliedFile { path: path.clone(), change: step.meant.change.kind() });
        }
        Ok(applied)
    })
    .await
}

/// A change of a file in a directory of the host.
#[derive(Clone, Debug)]
struct PlannedWrite {
    change: Change,
    mount: usize,
    /// Its path in that directory.
    inner: String,
}

/// The changes by what happens to them.
#[derive(Debug, Default)]
struct Classified {
    writes: Vec<PlannedWrite>,
    passed: Vec<SkippedFile>,
    protected: Vec<String>,
}

/// Which changes go to the host. Pure.
fn classify(baseline: &Baseline, changes: &Changes, options: &ApplyOptions) -> Result<Classified, ApplyError> {
    let mut classified = Classified { passed: changes.passed.clone(), ..Classified::default() };
    let filters: Vec<_> =
        baseline.mounts.iter().map(|it| Filter::new(&it.include, &it.exclude).unwrap_or_default()).collect();
    let mut bytes = 0;
    for change in &changes.files {
        let mut pass = |reason| classified.passed.push(SkippedFile { path: change.path.clone(), reason });
        let Some((mount, inner)) = baseline.mount_of(&change.path) else {
            pass("it lies in no directory that came from the host");
            continue;
        };
        if !filters[mount].takes(inner) {
            pass("the patterns of its directory leave it out");
            continue;
        }
        let host = baseline.mounts[mount].host.join(inner);
        if !options.also_protected
            && (is_trusted_by_tools(inner) || is_protected(&host.to_string_lossy(), &options.protected))
        {
            classified.protected.push(change.path.clone());
            continue;
        }
        bytes += change.new.as_ref().map_or(0, |it| it.size);
        classified.writes.push(PlannedWrite { change: change.clone(), mount, inner: inner.to_owned() });
    }
    let Limits { max_bytes, max_entries } = options.limits;
    if bytes > max_bytes {
        return Err(ApplyError::TooLarge { limit: max_bytes, of: "bytes" });
    }
    if classified.writes.len() as u64 > max_entries {
        return Err(ApplyError::TooLarge { limit: max_entries, of: "files" });
    }
    Ok(classified)
}

/// Whether a path has a name that the user protects, at any depth. Case is ignored, for file systems that fold it.
fn is_protected(path: &str, protected: &[String]) -> bool {
    let path = path.to_lowercase();
    let parts: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let has = |name: &str| {
        let name: Vec<&str> = name.split('/').filter(|it| !it.is_empty()).collect();
        !name.is_empty() && parts.windows(name.len()).any(|it| it == name)
    };
    has(".git") || protected.iter().any(|it| has(&it.to_lowercase()))
}

/// The target directories.
fn trees(baseline: &Baseline, meant: &[PlannedWrite]) -> Result<BTreeMap<usize, DirHandle>, ApplyError> {
    let used: BTreeSet<usize> = meant.iter().map(|it| it.mount).collect();
    used.into_iter().map(|it| Ok((it, tree(&baseline.mounts[it])?))).collect()
}

/// What is done with one file.
#[derive(Debug)]
struct WriteStep {
    meant: PlannedWrite,
    act: WriteAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WriteAction {
    /// The host has it as it is to be.
    Nothing,
    /// Over the file that was seen, if there was one.
    Write {
        over: Option<FileIdentity>,
        mode: u32,
    },
    Remove {
        seen: FileIdentity,
    },
}

/// Inspects every host file that would be written or removed.
fn check(writes: Vec<PlannedWrite>, trees: &BTreeMap<usize, DirHandle>) -> Result<Vec<WriteStep>, ApplyError> {
    let gone = |it: &&PlannedWrite| it.change.new.is_none();
    let going: BTreeSet<_> = writes.iter().filter(gone).map(|it| (it.mount, it.inner.clone())).collect();
    let (mut steps, mut conflicts) = (Vec::new(), Vec::new());
    for meant in writes {
        let path = meant.change.path.clone();
        let here = trees
            .get(&meant.mount)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .and_then(|tree| inspect(tree, &meant.inner, &|above| going.contains(&(meant.mount, above.to_owned()))));
        match here.map(|it| judge(meant.change.old.as_ref(), meant.change.new.as_ref(), &it)) {
            Ok(Ok(act)) => steps.push(WriteStep { meant, act }),
            Ok(Err(reason)) => conflicts.push(Conflict { path, reason }),
            Err(err) => {
                tracing::debug!(path, %err, "a file of the host cannot be looked at");
                conflicts.push(Conflict { path, reason: "it cannot be looked at on the host" });
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(ApplyError::Conflict(conflicts));
    }
    // Deletions come first: a new directory may take a deleted file's name.
    steps.sort_by_key(|it| it.meant.change.new.is_some());
    Ok(steps)
}

/// What is to be done where the host has this, or why nothing may be. Pure.
fn judge(
    old: Option<&BaselineFile>,
    new: Option<&BaselineFile>,
    here: &HostFileState,
) -> Result<WriteAction, &'static str> {
    match (old, new, here) {
        (_, _, HostFileState::Unsupported(reason)) => Err(reason),
        (None, Some(new), HostFileState::Missing) => Ok(WriteAction::Write { over: None, mode: new.mode }),
        (Some(_), Some(_), HostFileState::Missing) => Err("it is gone on the host"),
        (_, None, HostFileState::Missing) => Ok(WriteAction::Nothing),
        (Some(old), None, HostFileState::File { sha256, stamp, .. }) if *sha256 == old.sha256 => {
            Ok(WriteAction::Remove { seen: *stamp })
        }
        (Some(old), Some(new), HostFileState::File { sha256, mode, stamp }) if *sha256 == old.sha256 => {
            // The host's own permissions stay, unless they were changed inside.
            let mode = if old.mode == new.mode { *mode } else { new.mode };
            Ok(WriteAction::Write { over: Some(*stamp), mode })
        }
        (_, Some(new), HostFileState::File { sha256, .. }) if *sha256 == new.sha256 => Ok(WriteAction::Nothing),
        (None, _, HostFileState::File { .. }) => Err("it is there on the host already"),
        (Some(_), _, HostFileState::File { .. }) => Err("it was changed on the host"),
    }
}

/// New contents, one after the other.
#[derive(Debug)]
struct Spool {
    file: File,
    /// Where each begins, and its bytes.
    places: BTreeMap<String, (u64, u64)>,
}

async fn fetch_all(files: &GuestFs, steps: &[WriteStep], scratch: &Path) -> Result<Spool, ApplyError> {
    let no_room = |source| Error::Host { what: "cannot keep the new files".into(), source };
    let mut spool = Spool { file: tempfile::tempfile_in(scratch).map_err(no_room)?, places: BTreeMap::new() };
    let mut begin = 0;
    for step in steps {
        let (WriteAction::Write { .. }, Some(new)) = (&step.act, &step.meant.change.new) else { continue };
        let path = &step.meant.change.path;
        let changing = || ApplyError::Changing(path.clone());
        let mut content = match files.open(path).await {
            Ok(content) => content,
            Err(Error::Refused(_)) => return Err(changing()),
            Err(err) => return Err(err.into()),
        };
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(piece) = content.next().await.map_err(|_| changing())? {
            bytes += piece.len() as u64;
            if bytes > new.size {
                return Err(changing());
            }
            hash.update(&piece);
            spool.file.write_all(&piece).map_err(no_room)?;
        }
        if hex::encode(hash.finalize()) != new.sha256 {
            return Err(changing());
        }
        spool.places.insert(path.clone(), (begin, bytes));
        begin += bytes;
    }
    Ok(spool)
}

impl WriteStep {
    /// Its path in the workspace.
    fn path(&self) -> String {
        self.meant.change.path.clone()
    }

    /// The directories above it, and its name.
    fn place(&self) -> (Vec<&OsStr>, &OsStr) {
        let (above, name) = self.meant.inner.rsplit_once('/').unwrap_or(("", &self.meant.inner));
        (above.split('/').filter(|part| !part.is_empty()).map(OsStr::new).collect(), OsStr::new(name))
    }

    /// Whether its name still is what was seen.
    fn check(&self, trees: &BTreeMap<usize, DirHandle>) -> io::Result<()> {
        let tree = trees.get(&self.meant.mount).ok_or(io::ErrorKind::NotFound)?;
        let (above, name) = self.place();
        let seen = match &self.act {
            WriteAction::Nothing => return Ok(()),
            WriteAction::Remove { seen } => Some(*seen),
            WriteAction::Write { over, .. } => *over,
        };
        let now = match tree.descend(above) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            dir => dir?.stamp(name)?,
        };
        if now == seen { Ok(()) } else { Err(io::Error::other("it was changed on the host meanwhile")) }
    }

    fn run(&self, trees: &BTreeMap<usize, DirHandle>, spool: &Spool) -> io::Result<()> {
        let tree = trees.get(&self.meant.mount).ok_or(io::ErrorKind::NotFound)?;
        let (above, name) = self.place();
        match &self.act {
            WriteAction::Nothing => Ok(()),
            WriteAction::Remove { .. } => {
                tree.descend(above.iter().copied())?.remove(name)?;
                remove_empty(tree, &above);
                Ok(())
            }
            WriteAction::Write { mode, .. } => {
                let dir = above.into_iter().try_fold(tree.clone(), |here, part| here.enter_or_make(part))?;
                let (begin, bytes) = spool.places.get(&self.meant.change.path).ok_or(io::ErrorKind::NotFound)?;
                (&spool.file).seek(SeekFrom::Start(*begin))?;
                dir.replace(name, *mode, &mut (&spool.file).take(*bytes))
            }
        }
    }
}

/// Directories that hold nothing any more. One that holds something stays, and that is no error.
fn remove_empty(tree: &DirHandle, parts: &[&OsStr]) {
    for depth in (0..parts.len()).rev() {
        let Ok(dir) = tree.descend(parts[..depth].iter().copied()) else { return };
        if dir.remove_dir(parts[depth]).is_err() {
            return;
        }
    }
}

/// Does all steps, or none: before the first one, what they change is copied into `scratch`, and put back if one fails.
fn write_all(
    steps: &[WriteStep],
    trees: &BTreeMap<usize, DirHandle>,
    spool: &Spool,
    scratch: &Path,
) -> Result<(), ApplyError> {
    let mut backups = BTreeMap::new();
    for (mount, tree) in trees {
        sweep(tree);
        let inner = |step: &WriteStep| PathBuf::from(&step.meant.inner);
        let paths = steps.iter().filter(|step| step.meant.mount == *mount).map(inner).collect();
        let copies = scratch.join(format!("apply-{}", random_hex::<8>()));
        match TreeBackup::create(tree.clone(), paths, copies) {
            Ok(backup) => _ = backups.insert(*mount, backup),
            Err(BackupError { path, source }) => {
                backups.values().for_each(TreeBackup::discard);
                let is_it = |step: &&WriteStep| step.meant.mount == *mount && Path::new(&step.meant.inner) == path;
                let path = steps.iter().find(is_it).map_or_else(|| path.display().to_string(), WriteStep::path);
                return Err(ApplyError::Io { path, written: Vec::new(), copies: Vec::new(), source });
            }
        }
    }
    let mut changed = BTreeSet::new();
    let done = steps.iter().try_for_each(|step| {
        step.check(trees).map_err(|source| (step.path(), source))?;
        changed.insert((step.meant.mount, PathBuf::from(&step.meant.inner)));
        step.run(trees, spool).map_err(|source| (step.path(), source))
    });
    let Err((path, source)) = done else {
        backups.values().for_each(TreeBackup::discard);
        return Ok(());
    };
    let (mut written, mut copies) = (Vec::new(), Vec::new());
    for (mount, backup) in &backups {
        // A file that was not reached may have a change of the user's by now.
        let failed = backup.restore(|path| changed.contains(&(*mount, path.to_owned())));
        if failed.is_empty() {
            continue;
        }
        copies.push(backup.copies().to_owned());
        let is_listed = |step: &&WriteStep| {
            step.meant.mount == *mount && failed.iter().any(|it| it.path == Path::new(&step.meant.inner))
        };
        written.extend(steps.iter().filter(is_listed).map(WriteStep::path));
    }
    Err(ApplyError::Io { path, written, copies, source })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApplyError> + Send + 'static,
) -> Result<T, ApplyError> {
    let failed =
        |err| ApplyError::Link(Error::Host { what: "the work was given up".into(), source: io::Error::other(err) });
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(content: &str, mode: u32) -> BaselineFile {
        BaselineFile { sha256: content.into(), mode, size: content.len() as u64 }
    }

    fn stamp() -> FileIdentity {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let host = coracle_host::fs::HostPath::open(dir.path()).unwrap();
        DirHandle::from_path(&host).unwrap().stamp("a".as_ref()).unwrap().unwrap()
    }

    /// A step at a path of the only tree, whose new content is the path's name.
    fn step(path: &str, act: WriteAction) -> WriteStep {
        let new = (!matches!(act, WriteAction::Remove { .. })).then(|| file(path, 0o644));
        let change = Change { path: path.into(), old: None, new };
        WriteStep { meant: PlannedWrite { change, mount: 0, inner: path.into() }, act }
    }

    #[test]
    fn a_change_that_cannot_be_written_leaves_all_files_unchanged() {
        let (dir, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["b", "c", "d"] {
            std::fs::write(dir.path().join(name), "before").unwrap();
        }
        let host = coracle_host::fs::HostPath::open(dir.path()).unwrap();
        let tree = DirHandle::from_path(&host).unwrap();
        let seen = |name: &str| tree.stamp(name.as_ref()).unwrap();
        let mut spool = Spool { file: tempfile::tempfile().unwrap(), places: BTreeMap::new() };
        spool.file.write_all(b"after").unwrap();
        spool.places.extend(["b", "d", "new/a"].map(|path| (path.to_owned(), (0, 5))));
        let write = |over| WriteAction::Write { over, mode: 0o644 };
        let mut steps = vec![
            step("c", WriteAction::Remove { seen: seen("c").unwrap() }),
            step("b", write(seen("b"))),
            step("new/a", write(None)),
            // The user writes to it at this moment.
            step("d", write(seen("b"))),
            step("e", write(None)),
        ];
        std::fs::write(dir.path().join("e"), "by the user").unwrap();
        let trees = BTreeMap::from([(0, tree.clone())]);
        let failed = write_all(&steps, &trees, &spool, scratch.path()).unwrap_err();
        let ApplyError::Io { path, written, copies, .. } = failed else { panic!("{failed}") };
        assert_eq!((path.as_str(), written, copies), ("d", vec![], vec![]));
        for name in ["b", "c", "d"] {
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), "before", "{name}");
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("e")).unwrap(), "by the user");
        assert_eq!(dir.path().read_dir().unwrap().count(), 4, "nothing new stays");
        steps = vec![
            step("c", WriteAction::Remove { seen: seen("c").unwrap() }),
            step("b", write(seen("b"))),
            step("new/a", write(None)),
        ];
        write_all(&steps, &trees, &spool, scratch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("new/a")).unwrap(), "after");
        assert!(!dir.path().join("c").exists());
        assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "no copy stays");
    }

    #[test]
    fn protected_names_are_found_in_every_directory() {
        let list = vec![".cargo/config".to_owned(), ".envrc".to_owned()];
        for path in
            ["/h/.git/config", "/h/sub/.GIT/hooks/x", "/h/.git", "/h/x/.cargo/config", "/h/.envrc", "/h/.ENVRC/x"]
        {
            assert!(is_protected(path, &list), "{path}");
        }
        for path in ["/h/git/config", "/h/.gitignore", "/h/.cargo/configs", "/h/cargo/config", "/h/x.envrc"] {
            assert!(!is_protected(path, &list), "{path}");
        }
    }

    proptest! {
        /// The host's file is touched only while it is what was copied in.
        #[test]
        fn w15_only_the_baseline_is_written_over(
            old in proptest::option::of(("[ab]", 0u32..2)),
            new in proptest::option::of(("[abc]", 0u32..2)),
            here in proptest::option::of(("[abcd]", 0u32..2)),
        ) {
            prop_assume!(old.is_some() || new.is_some());
            let known = |it: &Option<(String, u32)>| it.as_ref().map(|it| file(&it.0, it.1));
            let (old, new, stamp) = (known(&old), known(&new), stamp());
            let there = here.clone().map_or(HostFileState::Missing, |(sha256, mode)| HostFileState::File { sha256, mode, stamp });
            let sha = here.map(|it| it.0);
            let is = |it: &Option<BaselineFile>| sha == it.as_ref().map(|it| it.sha256.clone());
            match judge(old.as_ref(), new.as_ref(), &there) {
                Ok(WriteAction::Nothing) => prop_assert!(is(&new)),
                Ok(WriteAction::Write { over, .. }) => prop_assert!(is(&old) && new.is_some() && over.is_some() == old.is_some()),
                Ok(WriteAction::Remove { .. }) => prop_assert!(is(&old) && new.is_none()),
                Err(_) => prop_assert!(!is(&old) && !is(&new)),
            }
            prop_assert!(judge(old.as_ref(), new.as_ref(), &HostFileState::Unsupported("a link")).is_err());
        }
    }
}
