//! Paths of a writable bind that make programs of the host run something: mounted read-only over it, or compared later.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_host::tree::{DirHandle, Node};
use coracle_runtime::{git_dirs, guarded_paths};

/// A path of a repository that makes git, jj or Mercurial on the host run a program or read another repository.
#[derive(Clone, Copy, Debug)]
pub struct GuardedPath {
    /// Relative to the tree.
    pub path: &'static str,
    /// What write access to it decides.
    pub decides: &'static str,
    /// What is done about it.
    pub guard: Guard,
}

/// What is done about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is read-only inside, if it exists.
    ReadOnly,
    /// The same. If it is missing, a placeholder that means the same to the program takes its place.
    Filled(Placeholder),
    /// Commands inside have to write it: `status` and `destroy` report that it changed.
    Reviewed,
}

/// What stands for a path that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// A file with this content.
    File(&'static str),
    /// An empty directory.
    Dir,
}

const fn row(path: &'static str, guard: Guard, decides: &'static str) -> GuardedPath {
    GuardedPath { path, decides, guard }
}

const EMPTY: Guard = Guard::Filled(Placeholder::File(""));
const EMPTY_DIR: Guard = Guard::Filled(Placeholder::Dir);

/// To git, a `commondir` that means the directory itself.
const ITSELF: &str = ".\n";

/// All that is known of the kind. A test for each row runs git on the host. `http-alternates` is not here: only a client of
/// a web server reads it.
pub const GUARDED: &[GuardedPath] = &[
    row(".git/config", EMPTY, "programs, such as `core.fsmonitor`"),
    row(".git/config.worktree", EMPTY, "the same, with `extensions.worktreeConfig`"),
    row(".git/commondir", Guard::Filled(Placeholder::File(ITSELF)), "where configuration and hooks are"),
    row(".git/hooks", EMPTY_DIR, "programs"),
    row(
        ".git/info",
        EMPTY_DIR,
        "which files go through filters that are configured, and which commits have other parents",
    ),
    row(".git/modules", Guard::ReadOnly, "configuration and hooks of submodules"),
    // Read-only as a whole: a worktree that the user adds later is protected, too.
    row(".git/worktrees", EMPTY_DIR, "where configuration and hooks of worktrees elsewhere are"),
    row(".git/objects/info/alternates", EMPTY, "other repositories that objects are read from"),
    row(".git/rebase-merge", Guard::Reviewed, "commands that `git rebase --continue` runs"),
    row(".git/rebase-apply", Guard::Reviewed, "patches that `git am --continue` applies"),
    row(".git/sequencer", Guard::Reviewed, "commits that `git cherry-pick --continue` makes"),
    row(".git/remotes", Guard::Reviewed, "where `git fetch` and `git push` go without a configured remote"),
    row(".git/branches", Guard::Reviewed, "the same"),
    row(".gitattributes", Guard::Reviewed, "which files go through filters that are configured"),
    row(".jj/repo/config.toml", Guard::ReadOnly, "programs, such as `ui.diff-formatter`"),
    row(".jj/workspace-config.toml", Guard::ReadOnly, "the same"),
    row(".jj/repo/config-id", Guard::ReadOnly, "which of the user's configurations is the repository's"),
    row(".jj/workspace-config-id", Guard::ReadOnly, "the same"),
    row(".jj/repo/store/git_target", Guard::ReadOnly, "the git repository behind it"),
    row(".hg/hgrc", EMPTY, "programs, such as hooks and extensions"),
    row(".hg/hgrc-not-shared", EMPTY, "the same"),
    row(".hg/requires", Guard::ReadOnly, "whether another repository is behind it"),
    row(".hg/sharedpath", Guard::ReadOnly, "which one"),
];

/// Names that other programs of the host act on.
const OTHER_PROGRAMS: &[&str] = &[
    ".envrc",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".husky",
    ".claude",
    ".mcp.json",
    ".cargo/config",
    ".cargo/config.toml",
];

/// What is protected unless the configuration says otherwise.
#[must_use]
pub fn default_protected() -> Vec<String> {
    let guarded = GUARDED.iter().filter(|row| row.guard != Guard::Reviewed).map(|row| row.path);
    guarded.chain(OTHER_PROGRAMS.iter().copied()).map(str::to_owned).collect()
}

/// What is compared without being read-only: nothing where nothing of git's is protected.
pub(crate) fn reviewed(protected: &[String]) -> Vec<String> {
    let is_git_protected = protected.iter().any(|it| it.starts_with(".git"));
    let rows = GUARDED.iter().filter(|row| is_git_protected && row.guard == Guard::Reviewed);
    rows.map(|row| row.path.to_owned()).collect()
}

/// Creates placeholders for missing paths of repositories below a bind, and for paths there that the host's
/// configuration names (absolute ones; a directory ends in `/`). Adds each to `made` before it creates the next one, so
/// that undo knows it. A placeholder of another container (`known`) is needed by this one too.
pub(crate) fn place(
    bind: &HostPath,
    protected: &[String],
    known: &[PathBuf],
    made: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let root = DirHandle::from_path(bind)?;
    for (path, placeholder) in placeholders(bind, protected) {
        // The path of a directory ends in `/`, so that it can be made again.
        let ending = if placeholder == Placeholder::Dir { "/" } else { "" };
        let whole = bind.real().join(format!("{path}{ending}"));
        let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let (Some(dir), name) = (enter(&root, above)?, OsStr::new(name)) else { continue };
        match (dir.entry_kind(name)?, placeholder) {
            (Some(_), _) if !known.contains(&whole) => continue,
            (Some(_), _) => {}
            (None, Placeholder::Dir) => drop(dir.enter_or_make(name)?),
            (None, Placeholder::File(text)) => dir.write_new(name, text.as_bytes())?,
        }
        made.push(whole);
    }
    Ok(())
}

fn placeholders(bind: &HostPath, protected: &[String]) -> Vec<(String, Placeholder)> {
    let git_dirs = git_dirs(bind, protected);
    let mut all = Vec::new();
    for name in protected {
        let placeholder = match GUARDED.iter().find(|row| row.path == name).map(|row| row.guard) {
            Some(Guard::Filled(placeholder)) => placeholder,
            None if name.starts_with('/') && name.ends_with('/') => Placeholder::Dir,
            None if name.starts_with('/') => Placeholder::File(""),
            _ => continue,
        };
        let paths = guarded_paths(bind.real(), &git_dirs, std::slice::from_ref(name));
        all.extend(paths.into_iter().map(|path| (path, placeholder)));
    }
    all
}

/// A directory below another one; none if something else is on the way.
fn enter(root: &DirHandle, path: &str) -> io::Result<Option<DirHandle>> {
    let mut dir = root.clone();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if dir.entry_kind(OsStr::new(part))? != Some(Node::Dir) {
            return Ok(None);
        }
        dir = dir.enter(OsStr::new(part))?;
    }
    Ok(Some(dir))
}

/// Makes placeholders again that the user's programs removed: `git gc` removes an empty `.git/worktrees`. An engine starts no
/// container whose mounts are missing.
pub(crate) fn place_again(placeholders: &[PathBuf]) {
    for path in placeholders {
        if let Err(err) = make_again(path) {
            tracing::warn!(path = %path.display(), %err, "a placeholder is missing");
        }
    }
}

fn make_again(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let dir = HostPath::open(above).map_err(io::Error::other)?;
    if dir.real() != above {
        return Err(io::Error::other("a link is on the way"));
    }
    let dir = DirHandle::from_path(&dir)?;
    if dir.entry_kind(name)?.is_some() {
        return Ok(());
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return dir.enter_or_make(name).map(drop);
    }
    dir.write_new(name, content_of(name).as_bytes())
}

/// The content of a placeholder file. `commondir` names its own directory; all others are empty.
fn content_of(name: &OsStr) -> &'static str {
    if name == "commondir" { ITSELF } else { "" }
}

/// Removes placeholders that are still what they were, and where they were.
pub(crate) fn clear(placeholders: &[PathBuf]) {
    for path in placeholders {
        let _ = take_away(path); // what belongs to another container now stays
    }
}

fn take_away(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let dir = HostPath::open(above).map_err(io::Error::other)?;
    if dir.real() != above {
        return Ok(()); // a link took its place
    }
    let dir = DirHandle::from_path(&dir)?;
    match dir.entry_kind(name)? {
        // A directory that got content is not removed.
        Some(Node::Dir) => dir.remove_dir(name),
        Some(Node::File) => {
            let text = content_of(name);
            let mut content = Vec::new();
            dir.open(name)?.file.take(text.len() as u64 + 1).read_to_end(&mut content)?;
            if content == text.as_bytes() { dir.remove(name) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn placed(dir: &Path, known: &[PathBuf]) -> Vec<PathBuf> {
        let mut made = Vec::new();
        place(&HostPath::open(dir).unwrap(), &default_protected(), known, &mut made).unwrap();
        made
    }

    /// A directory without links in its path.
    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        (dir, real)
    }

    #[test]
    fn placeholders_come_and_go_and_what_was_there_stays() {
        let (_dir, root) = directory();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let made = placed(&root, &[]);
        assert_eq!(placed(&root, &made), made, "a second container needs the first one's");
        let names = ["config", "config.worktree", "commondir", "info", "worktrees"];
        assert_eq!(made, names.map(|name| root.join(".git").join(name)));
        for name in ["worktrees", "info"] {
            fs::remove_dir(root.join(".git").join(name)).unwrap();
        }
        fs::remove_file(root.join(".git/commondir")).unwrap();
        place_again(&made);
        assert!(root.join(".git/worktrees").is_dir() && root.join(".git/info").is_dir());
        assert_eq!(fs::read_to_string(root.join(".git/commondir")).unwrap(), ITSELF);
        fs::write(root.join(".git/info/exclude"), "content").unwrap();
        clear(&made);
        assert!(!root.join(".git/commondir").exists());
        assert!(root.join(".git/info/exclude").exists() && root.join(".git/hooks").exists());
    }

    #[test]
    fn repositories_of_submodules_and_paths_of_the_configuration_are_filled_too() {
        let (_dir, root) = directory();
        for dir in [".git/objects/info", "tree.git/objects/info", "scripts"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let name = |path: &str| format!("{}/{path}", root.display());
        let named = [name("scripts/hooks/"), name("team.gitconfig"), "/elsewhere/hooks/".to_owned()];
        let mut made = Vec::new();
        place(&HostPath::open(&root).unwrap(), &named, &[], &mut made).unwrap();
        assert_eq!(made, [root.join("scripts/hooks/"), root.join("team.gitconfig")]);
        assert!(root.join("scripts/hooks").is_dir() && root.join("team.gitconfig").is_file());
        clear(&made);
        assert!(!root.join("scripts/hooks").exists() && !root.join("team.gitconfig").exists());

        fs::remove_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git"), "gitdir: tree.git\n").unwrap();
        let made = placed(&root, &[]);
        assert!(made.contains(&root.join("tree.git/objects/info/alternates")), "{made:?}");
        assert_eq!(fs::read_to_string(root.join("tree.git/commondir")).unwrap(), ".\n");
        clear(&made);
        assert!(!root.join("tree.git/commondir").exists());
    }

    #[test]
    fn no_placeholder_is_created_through_a_link() {
        let ((_dir, root), (_other, elsewhere)) = (directory(), directory());
        symlink(&elsewhere, root.join(".git")).unwrap();
        assert!(placed(&root, &[]).is_empty() && fs::read_dir(&elsewhere).unwrap().next().is_none());

        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let made = placed(&root, &[]);
        assert_eq!(made.len(), 6);
        // A file of another program with the content of a placeholder.
        fs::rename(root.join(".git"), root.join("was")).unwrap();
        symlink(&elsewhere, root.join(".git")).unwrap();
        fs::create_dir(elsewhere.join("hooks")).unwrap();
        fs::write(elsewhere.join("commondir"), ".\n").unwrap();
        clear(&made);
        assert!(elsewhere.join("hooks").exists() && elsewhere.join("commondir").exists());
    }
}
