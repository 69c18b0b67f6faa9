//! Checks that everything that git reads of a repository is in its own directory.
//!
//! Git follows links in references and objects. A container that can write to a directory can create one there, so that
//! a clone on the host would include another repository of the user.

use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_host::tree::{DirHandle, Node};
use coracle_types::failure::{Code, Failure, Result};

use super::{RepositoryDirs, beneath, small_file};

/// What git reads of a repository that it clones, besides objects.
const READ: [&str; 5] = ["HEAD", "packed-refs", "refs", "reftable", "shallow"];

/// Maximum number of checked entries in all directories.
const MAX_ENTRIES: usize = 500_000;

/// Maximum depth of directories with references or objects.
const MAX_DEPTH: usize = 32;

/// Maximum size of the list of alternate object directories.
const MAX_ALTERNATES: u64 = 64 << 10;

/// Maximum number of nested alternate object directories; git follows five.
const MAX_OBJECT_DIRS: usize = 6;

/// Returns the common directory of a directory's repository, if everything that git reads of it is in an allowed
/// directory.
///
/// # Errors
/// `policy_denied` for a link, and for paths outside of the allowed directories; `fetch_failed` without a repository.
pub(crate) fn checked_repository(dir: &Path, roots: &[PathBuf]) -> Result<PathBuf> {
    beneath(dir, roots)?;
    let common = match RepositoryDirs::find(dir, roots)? {
        Some(place) => place.common_dir,
        // Git would follow either to another repository.
        None if [".git", "commondir"].iter().any(|it| dir.join(it).symlink_metadata().is_ok()) => {
            return Err(refused(dir, "has a `.git` or a `commondir` that cannot be read"));
        }
        // A bare repository.
        None => dir.to_owned(),
    };
    lies_in_place(&common, roots)?;
    Ok(common)
}

/// Checks a repository by its common directory.
fn lies_in_place(common: &Path, roots: &[PathBuf]) -> Result<()> {
    let mut left = MAX_ENTRIES;
    let repository = tree(common)?;
    for name in READ {
        check(&repository, &common.join(name), &mut left, MAX_DEPTH)?;
    }
    let mut dirs = vec![common.join("objects")];
    let mut at = 0;
    while let Some(dir) = dirs.get(at).cloned() {
        if at == MAX_OBJECT_DIRS {
            return Err(refused(&dir, "borrows objects of too many others"));
        }
        let objects = HostPath::open(&dir).map_err(|_| no_repository(common))?;
        beneath(objects.real(), roots)?;
        let tree = tree(objects.real())?;
        for (name, _) in tree.entries().map_err(|_| no_repository(common))? {
            check(&tree, &objects.real().join(name), &mut left, MAX_DEPTH)?;
        }
        dirs.extend(alternates(objects.real())?);
        at += 1;
    }
    Ok(())
}

/// Returns the alternate object directories.
fn alternates(objects: &Path) -> Result<Vec<PathBuf>> {
    let list = objects.join("info/alternates");
    if list.symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let text = small_file(&list, MAX_ALTERNATES).filter(|it| (it.len() as u64) < MAX_ALTERNATES);
    let text = text.ok_or_else(|| refused(&list, "cannot be read"))?;
    let lines = text.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
    lines
        .map(|it| if it.starts_with('"') { Err(refused(&list, "has a quoted path")) } else { Ok(objects.join(it)) })
        .collect()
}

fn tree(dir: &Path) -> Result<DirHandle> {
    HostPath::open(dir).ok().and_then(|it| DirHandle::from_path(&it).ok()).ok_or_else(|| no_repository(dir))
}

/// Checks that a path, whose last part is in `above`, is a file, or a directory that contains nothing else.
fn check(above: &DirHandle, path: &Path, left: &mut usize, depth: usize) -> Result<()> {
    let name = path.file_name().unwrap_or_default();
    let unreadable = |_| refused(path, "cannot be read");
    *left = left.checked_sub(1).ok_or_else(|| refused(path, "is one file too many"))?;
    match above.entry_kind(name).map_err(unreadable)? {
        None | Some(Node::File) => Ok(()),
        Some(Node::Dir) if depth == 0 => Err(refused(path, "lies too deep")),
        Some(Node::Dir) => {
            let here = above.enter(name).map_err(unreadable)?;
            let entries = here.entries().map_err(unreadable)?;
            entries.iter().try_for_each(|(name, _)| check(&here, &path.join(name), left, depth - 1))
        }
        Some(_) => Err(refused(path, "is a link, and leads elsewhere")),
    }
}

fn no_repository(dir: &Path) -> Failure {
    let failure = Failure::new(Code::FetchFailed, format!("`{}` is no git repository", dir.display()));
    failure.hint("run `git init` and commit there, or name the top directory of a repository")
}

fn refused(path: &Path, why: &str) -> Failure {
    let failure = Failure::new(Code::PolicyDenied, format!("`{}` {why}", path.display()));
    failure.detail("rule", "repository.links").hint("clone the repository on the host first, and give the clone")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Repositories {
        dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Repositories {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            for name in ["work/mine", "work/other", "private"] {
                for below in ["refs/heads", "objects/pack", "objects/info"] {
                    fs::create_dir_all(root.join(name).join(below)).unwrap();
                }
                fs::write(root.join(name).join("HEAD"), "ref: refs/heads/main\n").unwrap();
            }
            Self { dir, root }
        }

        fn check(&self) -> Option<Failure> {
            assert!(self.dir.path().exists());
            lies_in_place(&self.root.join("work/mine"), &[self.root.join("work")]).err()
        }
    }

    #[test]
    fn a_plain_repository_and_alternates_within_the_roots_are_accepted() {
        let it = Repositories::new();
        assert!(it.check().is_none());
        let other = it.root.join("work/other/objects");
        fs::write(it.root.join("work/mine/objects/info/alternates"), format!("{}\n", other.display())).unwrap();
        assert!(it.check().is_none());
    }

    #[test]
    fn links_and_alternates_outside_of_the_roots_are_refused() {
        for name in ["HEAD", "packed-refs", "refs/heads/x", "reftable", "objects/pack/x.pack", "objects/ab"] {
            let it = Repositories::new();
            let at = it.root.join("work/mine").join(name);
            let _ = fs::remove_file(&at);
            symlink(it.root.join("private"), &at).unwrap();
            let failure = it.check().unwrap_or_else(|| panic!("{name}"));
            assert_eq!(
                (failure.code, &failure.details["rule"]),
                (Code::PolicyDenied, &"repository.links".into()),
                "{name}"
            );
        }
        let it = Repositories::new();
        let private = it.root.join("private/objects").display().to_string();
        for line in [private.clone(), format!("\"{private}\""), "../../other/objects".to_owned()] {
            fs::write(it.root.join("work/mine/objects/info/alternates"), &line).unwrap();
            // An alternate that has an alternate itself.
            fs::write(it.root.join("work/other/objects/info/alternates"), &private).unwrap();
            assert_eq!(it.check().map(|it| it.code), Some(Code::PolicyDenied), "{line}");
        }
    }
}
