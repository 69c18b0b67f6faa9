//! Repositories of a save, unpacked so that no program of the host takes them for repositories.
//!
//! Whatever saved them may have been an agent's: their configuration and hooks name programs, which `git status` starts. An
//! entry `.git`, `.jj` or `.hg` gets another name before it is written, and a directory that git would take for a repository
//! without such a name loses its `HEAD`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::DirExt as _;
use cap_std::fs::Dir;
use coracle_runtime::shell_word;
use coracle_types::is_deceptive;

/// What a name ends in that means nothing to programs.
const INERT: &str = ".inert";

const REPOSITORIES: [&str; 3] = [".git", ".jj", ".hg"];

/// Directories open at once, and renames that a command line holds.
const MAX_DEPTH: usize = 64;
const MAX_RENAMES: usize = 50;

/// A path without names of repositories. The names that this makes get another ending too, so that no two are one.
pub(super) fn renamed(path: &str) -> String {
    let part = |part: &str| if is_repository(part) { format!("{part}{INERT}") } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn is_repository(name: &str) -> bool {
    let plain = name.trim_end_matches(INERT).to_ascii_lowercase();
    REPOSITORIES.contains(&plain.as_str())
}

/// What was made inert of one tree.
#[derive(Debug, Default)]
pub(super) struct InertRepositories {
    /// Relative to the tree, as they are now.
    paths: Vec<PathBuf>,
    /// There are more.
    more: bool,
}

impl InertRepositories {
    /// Looks through what was unpacked, and takes `HEAD` from directories that are repositories without a name.
    pub(super) fn find(dir: &Dir, name: &str) -> io::Result<Self> {
        let mut found = Self::default();
        if is_repository(name) {
            found.add(name.into());
        }
        if dir.symlink_metadata(name).is_ok_and(|it| it.is_dir()) {
            found.search(&dir.open_dir_nofollow(name)?, Path::new(name), MAX_DEPTH)?;
        }
        Ok(found)
    }

    fn search(&mut self, dir: &Dir, at: &Path, depth: usize) -> io::Result<()> {
        let exists = |name: &str| dir.symlink_metadata(name).is_ok();
        if ["HEAD", "objects", "refs"].into_iter().all(exists) {
            let inert = format!("HEAD{INERT}");
            if exists(&inert) {
                dir.remove_file("HEAD")?;
            } else {
                dir.rename("HEAD", dir, &inert)?;
            }
            self.add(at.join(inert));
        }
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let path = at.join(&name);
            if name.to_str().is_some_and(is_repository) {
                self.add(path.clone());
            }
            if !entry.file_type()?.is_dir() {
                continue;
            }
            match depth.checked_sub(1) {
                Some(depth) => self.search(&dir.open_dir_nofollow(&name)?, &path, depth)?,
                // Nothing that is not searched is left where git could find it.
                None => dir.remove_dir_all(&name)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf) {
        if self.paths.len() < MAX_RENAMES { self.paths.push(path) } else { self.more = true }
    }

    /// The shell command that gives them their names back, beneath a directory; none if there is nothing to rename, or too
    /// much for a command.
    pub(super) fn activation(mut self, above: &Path) -> Option<String> {
        if self.more {
            return None;
        }
        // Deeper entries first, since the path of their directory changes afterwards.
        self.paths.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        // A name that is not shown as it is cannot be typed.
        let word = |path: &Path| path.to_str().filter(|it| !it.contains(is_deceptive)).map(shell_word);
        let command = |path: &PathBuf| {
            let now = above.join(path);
            let was = PathBuf::from(now.to_str()?.strip_suffix(INERT)?);
            Some(format!("mv -- {} {}", word(&now)?, word(&was)?))
        };
        let commands: Option<Vec<String>> = self.paths.iter().map(command).collect();
        commands.filter(|it| !it.is_empty()).map(|it| it.join(" && "))
    }

    /// Leaves out what is known, and makes the rest known.
    pub(super) fn retain_new(&mut self, above: &Path, known: &mut BTreeSet<PathBuf>) {
        self.paths.retain(|path| known.insert(above.join(path)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn names_of_repositories_get_others_and_no_two_are_one() {
        for (path, expected) in [
            ("app/.git/config", "app/.git.inert/config"),
            (".GIT", ".GIT.inert"),
            ("a/.git.inert/x", "a/.git.inert.inert/x"),
            (".hg/hgrc", ".hg.inert/hgrc"),
            ("a/.gitignore", "a/.gitignore"),
            ("", ""),
        ] {
            assert_eq!(renamed(path), expected, "{path}");
        }
    }

    #[test]
    fn a_repository_without_a_name_loses_its_head_and_one_command_brings_all_back() {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["app/.git.inert/objects", "app/.git.inert/refs", "app/it's bare/objects", "app/it's bare/refs"] {
            std::fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        for head in ["app/.git.inert/HEAD", "app/it's bare/HEAD", "app/HEAD"] {
            std::fs::write(temp.path().join(head), head).unwrap();
        }
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let found = InertRepositories::find(&dir, "app").unwrap();
        assert!(temp.path().join("app/HEAD").exists());
        assert!(!temp.path().join("app/.git.inert/HEAD").exists() && !temp.path().join("app/it's bare/HEAD").exists());
        let mut words: Vec<_> = found.activation(Path::new("/d")).unwrap().split(" && ").map(str::to_owned).collect();
        words.sort();
        assert_eq!(
            words,
            [
                "mv -- \"/d/app/it's bare/HEAD.inert\" \"/d/app/it's bare/HEAD\"",
                "mv -- /d/app/.git.inert /d/app/.git",
                "mv -- /d/app/.git.inert/HEAD.inert /d/app/.git.inert/HEAD",
            ]
        );
    }
}
