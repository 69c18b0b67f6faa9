//! Host paths that lie read-only over a writable bind, and names that nothing of a
//! container's is written to without the user's approval.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_host::index::submodules;
use coracle_host::tree::{DirHandle, Node};
use coracle_types::ContainerPath;

use crate::{Access, Mount};

/// Submodules and worktrees whose `.git` is protected. Each adds at least one mount.
const MAX_GIT_FILES: usize = 50;

/// The file with the location of a worktree contains a path.
const MAX_PATH: u64 = 4096;

const GIT: &str = ".git";

/// Mounts over a writable bind: each protected path and each file `.git` read-only, and every directory above one over
/// itself, since a directory that is a mount point cannot be renamed away. An absolute path of the host is protected where
/// the bind shows it. `taken` is where other mounts are: what lies there is not the bind's.
#[must_use]
pub fn mounts_over<'a>(
    bind: &Mount,
    taken: impl IntoIterator<Item = &'a ContainerPath>,
    protected: &[String],
) -> Vec<Mount> {
    let mut over: Vec<Mount> = Vec::new();
    if bind.access == Access::ReadOnly || !bind.host.is_dir() {
        return over;
    }
    let taken = within(bind, taken);
    let names = guarded_paths(bind.host.real(), &git_dirs(&bind.host, protected), protected);
    for path in names.into_iter().chain(git_files(&bind.host, protected)) {
        let Ok(at) = bind.at.join(&path) else { continue };
        if !taken.iter().any(|mount| at.is_beneath(mount.as_str())) {
            cover(bind, &path, Access::ReadOnly, &mut over);
        }
    }
    over
}

/// Places of other mounts that lie in a bind.
fn within<'a>(bind: &Mount, taken: impl IntoIterator<Item = &'a ContainerPath>) -> Vec<&'a ContainerPath> {
    let is_inside = |at: &&ContainerPath| **at != bind.at && at.is_beneath(bind.at.as_str());
    taken.into_iter().filter(is_inside).collect()
}

/// Mounts directories beneath a writable bind over themselves, so that nothing inside can put a link in their place: another
/// container mounts them, and its engine may resolve their paths again at any time. Files stay as they are, since editors
/// replace them. `taken` is where other mounts are, as for [`mounts_over`].
pub fn hold_in_place<'a>(
    bind: &Mount,
    taken: impl IntoIterator<Item = &'a ContainerPath>,
    directories: impl IntoIterator<Item = &'a Path>,
    over: &mut Vec<Mount>,
) {
    if bind.access == Access::ReadOnly {
        return;
    }
    let (taken, known) = (within(bind, taken), over.len());
    for directory in directories {
        let beneath = directory.strip_prefix(bind.host.real()).ok().and_then(Path::to_str);
        if let Some(path) = beneath.filter(|path| !path.is_empty() && directory.is_dir()) {
            cover(bind, path, Access::ReadWrite, over);
        }
    }
    let added = over.split_off(known);
    over.extend(added.into_iter().filter(|mount| !taken.iter().any(|it| mount.at.is_beneath(it.as_str()))));
}

/// Protected paths of one tree, relative to it: the names as they are, those of `.git` once more for every other git
/// directory of the tree, and absolute paths of the host that lie in it.
#[must_use]
pub fn guarded_paths(root: &Path, git_dirs: &[String], protected: &[String]) -> Vec<String> {
    let mut paths: Vec<String> = protected.iter().filter_map(|it| path_in(root, it)).collect();
    for dir in git_dirs.iter().filter(|dir| *dir != GIT) {
        let names = protected.iter().filter_map(|path| path.strip_prefix(GIT));
        paths.extend(names.filter(|it| it.is_empty() || it.starts_with('/')).map(|name| format!("{dir}{name}")));
    }
    paths
}

/// A protected path relative to a tree; `None` for an absolute one outside it, or one that no engine can mount.
fn path_in(root: &Path, path: &str) -> Option<String> {
    let path = path.trim_end_matches('/');
    if !path.starts_with('/') {
        return Some(path.to_owned());
    }
    let inside = Path::new(path).strip_prefix(root).ok()?.to_str()?;
    (!inside.is_empty() && is_mountable(inside)).then(|| inside.to_owned())
}

/// Whether the options of every engine's program can carry the name.
fn is_mountable(name: &str) -> bool {
    !name.contains([',', ':', '"'])
}

/// Mounts one path over itself with that access, and the directories above it writable.
fn cover(bind: &Mount, path: &str, access: Access, over: &mut Vec<Mount>) {
    let Some(target) = plain(bind.host.real(), path) else { return };
    let at = bind.at.join(path).expect("a protected path is plain");
    // A path in something read-only is already covered, and mounting it over itself would make it writable again.
    if over.iter().any(|it| it.access == Access::ReadOnly && at.is_beneath(it.at.as_str())) {
        return;
    }
    let parents: Vec<_> = Path::new(path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()).collect();
    for parent in parents.iter().rev().filter_map(|it| it.to_str()) {
        let Some(host) = plain(bind.host.real(), parent) else { continue };
        let at = bind.at.join(parent).expect("a protected path is plain");
        if !over.iter().any(|it| it.at == at) {
            over.push(Mount { host, at, access: Access::ReadWrite });
        }
    }
    if access == Access::ReadOnly || !over.iter().any(|mount| mount.at == at) {
        over.push(Mount { host: target, at, access });
    }
}

/// The file at a path, unless a link leads to it: a link is not followed out, and its target is not protected by it.
fn plain(root: &Path, path: &str) -> Option<HostPath> {
    let wanted = root.join(path);
    HostPath::open(&wanted).ok().filter(|it| it.real() == wanted)
}

/// Files named `.git` in a tree, which point git to a repository: the tree's own, those of the submodules in its index,
/// and those of its worktrees that lie in it. Write access to one decides which programs the user's git runs. None
/// where nothing of git's is protected.
#[must_use]
pub fn git_files(root: &HostPath, protected: &[String]) -> Vec<String> {
    git_entries(root, protected)
        .into_iter()
        .filter(|it| plain(root.real(), it).is_some_and(|it| !it.is_dir()))
        .collect()
}

/// Git directories of a tree, relative to it: its own `.git`, those of submodules, and those in the tree that a file
/// `.git` points to, with the directory that holds their configuration. None where nothing of git's is protected.
#[must_use]
pub fn git_dirs(root: &HostPath, protected: &[String]) -> Vec<String> {
    let mut dirs = Vec::new();
    for entry in git_entries(root, protected) {
        let Some(found) = plain(root.real(), &entry) else { continue };
        if found.is_dir() {
            dirs.push(entry);
            continue;
        }
        let target = pointed_to(root, &entry, "gitdir: ");
        let common = target.as_deref().and_then(|it| pointed_to(root, &format!("{it}/commondir"), ""));
        dirs.extend(common.or(target));
    }
    // Everything in `.git` is protected with it.
    dirs.retain(|it| it == GIT || !it.starts_with(".git/"));
    dirs.sort();
    dirs.dedup();
    dirs
}

/// The directory of the tree that a file of git's names, relative to the tree.
fn pointed_to(root: &HostPath, file: &str, prefix: &str) -> Option<String> {
    let path = Path::new(file);
    let above = path.parent().unwrap_or(Path::new(""));
    let names = above.components().map(Component::as_os_str);
    let opened = DirHandle::from_path(root).and_then(|tree| tree.descend(names)).ok()?.open(path.file_name()?);
    let mut text = String::new();
    opened.ok()?.file.take(MAX_PATH).read_to_string(&mut text).ok()?;
    let target = root.real().join(above).join(text.strip_prefix(prefix)?.trim_end());
    let real = HostPath::open(&target).ok().filter(HostPath::is_dir)?;
    let inside = real.real().strip_prefix(root.real()).ok()?.to_str()?;
    (!inside.is_empty() && is_mountable(inside)).then(|| inside.to_owned())
}

/// Entries named `.git` in a tree, of any kind.
fn git_entries(root: &HostPath, protected: &[String]) -> Vec<String> {
    if !protected.iter().any(|it| it == GIT || it.starts_with(".git/")) {
        return Vec::new();
    }
    let git = DirHandle::from_path(root).and_then(|it| it.enter(GIT.as_ref())).ok();
    let listed = git.map(|git| [modules(&git), worktrees(&git, root.real())].concat()).unwrap_or_default();
    let mut entries: Vec<String> = [PathBuf::new()]
        .into_iter()
        .chain(listed)
        // Code inside may have written the index: no name of it leads out.
        .filter(|it| it.components().all(|part| matches!(part, Component::Normal(_))))
        .filter_map(|it| it.join(GIT).to_str().filter(|it| is_mountable(it)).map(str::to_owned))
        .filter(|it| plain(root.real(), it).is_some())
        .collect();
    entries.sort();
    entries.dedup();
    entries
}

fn modules(git: &DirHandle) -> Vec<PathBuf> {
    let index = git.open("index".as_ref()).ok();
    index.and_then(|it| submodules(it.file, MAX_GIT_FILES)).map(|it| it.0).unwrap_or_default()
}

fn worktrees(git: &DirHandle, root: &Path) -> Vec<PathBuf> {
    let Ok(dir) = git.enter("worktrees".as_ref()) else { return Vec::new() };
    let of = |name: &OsStr| {
        let mut gitdir = String::new();
        let file = dir.enter(name).ok()?.open("gitdir".as_ref()).ok()?.file;
        file.take(MAX_PATH).read_to_string(&mut gitdir).ok()?;
        Some(Path::new(gitdir.trim_end()).strip_prefix(root).ok()?.parent()?.to_owned())
    };
    let entries = dir.entries().unwrap_or_default();
    let names = entries.iter().filter(|it| it.1 == Node::Dir).take(MAX_GIT_FILES);
    names.filter_map(|it| of(&it.0)).collect()
}

/// Whether a real path is a protected path, is in one, or leads to one, for any root of the tree. A writable bind of
/// such a path would bypass the mounts over the tree. Ignores case, as the file systems of many hosts do.
#[must_use]
pub fn leads_to_protected(real: &Path, protected: &[String]) -> bool {
    let real = PathBuf::from(real.to_string_lossy().to_lowercase());
    let protected: Vec<PathBuf> = protected.iter().map(|it| it.to_lowercase().into()).collect();
    let mut ends = real.ancestors().filter_map(|it| real.strip_prefix(it).ok()).filter(|it| !it.as_os_str().is_empty());
    // An absolute path of the host is one place. What only leads to it is covered by a mount over it.
    protected.iter().any(|path| real.starts_with(path))
        || ends.any(|end| protected.iter().any(|path| end.starts_with(path) || path.starts_with(end)))
}

/// Names that decide what a person's programs run, wherever they lie: of hooks, editors, builds and agents. Whatever
/// begins with `.git` is one, too.
const ACTED_ON: &[&str] = &[
    ".circleci",
    ".husky",
    ".pre-commit-config.yaml",
    ".vscode",
    ".idea",
    ".vs",
    ".zed",
    ".jj",
    ".hg",
    ".hgrc",
    ".hgsub",
    ".lfsconfig",
    "lefthook.yml",
    ".lefthook.yml",
    ".nvim.lua",
    ".exrc",
    ".editorconfig",
    ".envrc",
    ".direnv",
    ".devcontainer",
    ".devcontainer.json",
    ".claude",
    ".cursor",
    ".cursorrules",
    ".codex",
    ".gemini",
    ".mcp.json",
    ".amplifier",
    "agents.md",
    "claude.md",
    "gemini.md",
    ".buildkite",
    ".drone.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "jenkinsfile",
    ".woodpecker",
    ".woodpecker.yml",
    ".cargo",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
];

/// Whether a program of the user's acts on what has this name, in whatever case a file system keeps it.
#[must_use]
pub fn is_trusted_by_tools(path: &str) -> bool {
    let acts = |part: &str| part.starts_with(".git") || ACTED_ON.contains(&part);
    path.to_lowercase().split('/').any(acts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_types::ContainerPath;

    fn protected() -> Vec<String> {
        [".git/config", ".git/hooks", ".envrc"].map(String::from).to_vec()
    }

    fn over(dir: &Path, access: Access) -> Vec<String> {
        let bind = Mount { host: HostPath::open(dir).unwrap(), at: ContainerPath::parse("/w").unwrap(), access };
        let show = |it: Mount| format!("{} {}", it.at, if it.access == Access::ReadOnly { "ro" } else { "rw" });
        let taken = ["/w", "/w/mounted", "/elsewhere"].map(|it| ContainerPath::parse(it).unwrap());
        mounts_over(&bind, &taken, &protected()).into_iter().map(show).collect()
    }

    /// A git index, version 2, whose entries are submodules.
    fn index_of_submodules(names: &[&str]) -> Vec<u8> {
        let count = u32::try_from(names.len()).unwrap();
        let mut bytes = [b"DIRC", &2u32.to_be_bytes()[..], &count.to_be_bytes()].concat();
        for name in names {
            let mut entry = [&[0; 24][..], &0o160_000u32.to_be_bytes(), &[0; 34], name.as_bytes()].concat();
            entry.resize((entry.len() / 8 + 1) * 8, 0);
            bytes.extend(entry);
        }
        bytes
    }

    #[test]
    fn a_file_that_says_where_a_repository_is_lies_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::write(root.join(".git"), "gitdir: /elsewhere/.git/worktrees/w\n").unwrap();
        assert_eq!(over(root, Access::ReadWrite), ["/w/.git ro"]);
        assert_eq!(over(root, Access::ReadOnly), [""; 0]);
        let bind = HostPath::open(root).unwrap();
        assert_eq!(git_files(&bind, &[".envrc".to_owned()]), [""; 0], "the user protects nothing of git's");
    }

    #[test]
    fn files_of_submodules_and_worktrees_lie_read_only_and_cannot_be_renamed_away() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = dir.path().canonicalize().unwrap();
        let git = root.join(".git");
        std::fs::create_dir_all(git.join("hooks/x")).unwrap();
        let names = ["lib/one", "whole", "empty", "mounted/two", "link", "../out", "/etc", ".git/hooks/x", "a:b", ""];
        std::fs::write(git.join("index"), index_of_submodules(&names)).unwrap();
        for name in ["lib/one", "mounted/two", ".git/hooks/x", "a:b", "trees/w", "trees/new"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
            std::fs::write(root.join(name).join(".git"), "gitdir: x\n").unwrap();
        }
        // A repository of its own, one that was not fetched, and what a link leads to.
        std::fs::create_dir_all(root.join("whole/.git")).unwrap();
        std::fs::create_dir(root.join("empty")).unwrap();
        std::fs::write(other.path().join(".git"), "").unwrap();
        std::os::unix::fs::symlink(other.path(), root.join("link")).unwrap();
        for (name, at) in [("w", root.join("trees/w/.git")), ("out", other.path().join(".git")), ("odd", "x".into())] {
            std::fs::create_dir_all(git.join("worktrees").join(name)).unwrap();
            let gitdir = format!("{}\n", at.display());
            std::fs::write(git.join("worktrees").join(name).join("gitdir"), gitdir).unwrap();
        }
        assert_eq!(
            over(&root, Access::ReadWrite),
            [
                "/w/.git rw",
                "/w/.git/hooks ro",
                "/w/lib rw",
                "/w/lib/one rw",
                "/w/lib/one/.git ro",
                "/w/trees rw",
                "/w/trees/w rw",
                "/w/trees/w/.git ro"
            ]
        );
        // An invalid index protects nothing more, and is no error.
        std::fs::write(git.join("index"), "DIRC").unwrap();
        assert!(!over(&root, Access::ReadWrite).contains(&"/w/lib rw".to_owned()));
    }

    #[test]
    fn a_git_tree_is_covered_parents_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
        std::fs::write(dir.path().join(".git/config"), "").unwrap();
        std::fs::write(dir.path().join(".envrc"), "").unwrap();
        assert_eq!(
            over(dir.path(), Access::ReadWrite),
            ["/w/.git rw", "/w/.git/config ro", "/w/.git/hooks ro", "/w/.envrc ro"]
        );
        assert_eq!(over(dir.path(), Access::ReadOnly), [""; 0]);
    }

    #[test]
    fn directories_of_others_are_held_with_all_above_them_unless_a_mount_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let at = |path: &str| ContainerPath::parse(path).unwrap();
        let held = |access, taken: &str| {
            let bind = Mount { host: HostPath::open(&root).unwrap(), at: at("/w"), access };
            let (paths, mut over) = (["a/b/c", "file", "../x", ""].map(|it| root.join(it)), Vec::new());
            hold_in_place(&bind, [&at("/w"), &at(taken)], paths.iter().map(PathBuf::as_path), &mut over);
            over.iter().map(|it| it.at.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(held(Access::ReadWrite, "/other"), ["/w/a", "/w/a/b", "/w/a/b/c"]);
        assert_eq!(held(Access::ReadWrite, "/w/a/b"), ["/w/a"]);
        assert_eq!(held(Access::ReadOnly, "/other"), [""; 0]);
    }

    #[test]
    fn what_a_link_leads_to_is_not_mounted() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("config"), "").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join(".git")).unwrap();
        assert_eq!(over(dir.path(), Access::ReadWrite), [""; 0]);
    }

    #[test]
    fn a_path_leads_to_what_is_protected_from_above_and_from_within() {
        for (real, leads) in [
            ("/w/.git", true),
            ("/w/sub/.git/hooks", true),
            ("/w/.git/hooks/deep", true),
            ("/w/.envrc", true),
            ("/w/.Git/HOOKS", true),
            ("/w/.git/objects", false),
            ("/w", false),
        ] {
            assert_eq!(leads_to_protected(Path::new(real), &protected()), leads, "{real}");
        }
    }

    #[test]
    fn names_that_programs_act_on_are_found_wherever_they_lie() {
        let acted =
            [".git/hooks/x", "a/.gitattributes", ".github/w.yml", "sub/CLAUDE.md", ".VSCode/x", ".envrc", ".GIT"];
        for name in acted {
            assert!(is_trusted_by_tools(name), "{name}");
        }
        for name in ["src/main.rs", "git/x", "a.github", "claude.rs", ""] {
            assert!(!is_trusted_by_tools(name), "{name}");
        }
        assert!(ACTED_ON.iter().all(|it| *it == it.to_lowercase()), "they are compared with names in lower case");
    }
}
