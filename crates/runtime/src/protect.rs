//! Host paths that lie read-only over a writable bind (containers.md 4.10, security.md 5.3), and names that nothing of a
//! container's is written to without the person's word.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::host::fs::HostPath;
use crate::host::index::submodules;
use crate::host::tree::{DirHandle, Node};
use crate::{Access, ContainerPath, Mount};

/// Submodules, and worktrees, whose `.git` is looked for. Each is a mount or more.
const MAX_GIT_FILES: usize = 50;

/// The file with the location of a worktree contains a path.
const MAX_PATH: u64 = 4096;

/// Mounts over a writable bind: each protected path and each file `.git` read-only, and every directory above one over
/// itself, since a directory that is a mount point cannot be renamed away. `taken` is where other mounts are: what lies
/// there is not the bind's.
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
    for path in protected {
        cover(bind, path, Access::ReadOnly, &mut over);
    }
    // What lies in something read-only is covered, and would be writable again if it was mounted over itself.
    let covered = over.iter().filter(|it| it.access == Access::ReadOnly).map(|it| it.at.clone());
    let taken = taken.into_iter().filter(|it| **it != bind.at && it.is_beneath(bind.at.as_str())).cloned();
    let elsewhere: Vec<ContainerPath> = covered.chain(taken).collect();
    for path in git_files(&bind.host, protected) {
        let Ok(at) = bind.at.join(&path) else { continue };
        if !elsewhere.iter().any(|it| at.is_beneath(it.as_str())) {
            cover(bind, &path, Access::ReadOnly, &mut over);
        }
    }
    over
}

/// Mounts directories beneath a writable bind over themselves, so that nothing inside can put a link in their place: another
/// container mounts them, and its engine may resolve their paths again at any time. Files stay as they are, since editors
/// replace them.
pub fn hold_in_place<'a>(bind: &Mount, directories: impl IntoIterator<Item = &'a Path>, over: &mut Vec<Mount>) {
    if bind.access == Access::ReadOnly {
        return;
    }
    for directory in directories {
        let beneath = directory.strip_prefix(bind.host.real()).ok().and_then(Path::to_str);
        if let Some(path) = beneath.filter(|path| !path.is_empty() && directory.is_dir()) {
            cover(bind, path, Access::ReadWrite, over);
        }
    }
}

/// Mounts one path over itself with that access, and the directories above it writable.
fn cover(bind: &Mount, path: &str, access: Access, over: &mut Vec<Mount>) {
    let Some(target) = plain(bind.host.real(), path) else { return };
    let parents: Vec<_> = Path::new(path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()).collect();
    for parent in parents.iter().rev().filter_map(|it| it.to_str()) {
        let Some(host) = plain(bind.host.real(), parent) else { continue };
        let at = bind.at.join(parent).expect("a protected path is plain");
        if !over.iter().any(|it| it.at == at) {
            over.push(Mount { host, at, access: Access::ReadWrite });
        }
    }
    let at = bind.at.join(path).expect("a protected path is plain");
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
/// and those of its worktrees that lie in it. Write access to one decides which programs the person's git runs. None
/// where nothing of git's is protected.
#[must_use]
pub fn git_files(root: &HostPath, protected: &[String]) -> Vec<String> {
    if !protected.iter().any(|it| it == ".git" || it.starts_with(".git/")) {
        return Vec::new();
    }
    let git = DirHandle::from_path(root).and_then(|it| it.enter(".git".as_ref())).ok();
    let listed = git.map(|git| [modules(&git), worktrees(&git, root.real())].concat()).unwrap_or_default();
    let mut files: Vec<String> = [PathBuf::new()]
        .into_iter()
        .chain(listed)
        // Code inside may have written the index: no name of it leads out. What no engine's words can carry is not mounted.
        .filter(|it| it.components().all(|part| matches!(part, Component::Normal(_))))
        .filter_map(|it| it.join(".git").to_str().filter(|it| !it.contains([',', ':', '"'])).map(str::to_owned))
        .filter(|it| plain(root.real(), it).is_some_and(|it| !it.is_dir()))
        .collect();
    files.sort();
    files.dedup();
    files
}

fn modules(git: &DirHandle) -> Vec<PathBuf> {
    let index = git.open("index".as_ref()).ok();
    index.and_then(|it| submodules(it.file, MAX_GIT_FILES)).map(|it| it.0).unwrap_or_default()
}

fn worktrees(git: &DirHandle, root: &Path) -> Vec<PathBuf> {
    let Ok(dir) = git.enter("worktrees".as_ref()) else { return Vec::new() };
    let of = |name: &OsStr| {
        let mut told = String::new();
        let file = dir.enter(name).ok()?.open("gitdir".as_ref()).ok()?.file;
        file.take(MAX_PATH).read_to_string(&mut told).ok()?;
        Some(Path::new(told.trim_end()).strip_prefix(root).ok()?.parent()?.to_owned())
    };
    let entries = dir.entries().unwrap_or_default();
    let names = entries.iter().filter(|it| it.1 == Node::Dir).take(MAX_GIT_FILES);
    names.filter_map(|it| of(&it.0)).collect()
}

/// Whether a real path is a protected path, lies in one, or only leads to one, wherever the tree begins. A writable bind
/// of it would go around what lies over the tree. Case makes no difference: it makes none on many hosts.
#[must_use]
pub fn leads_to_protected(real: &Path, protected: &[String]) -> bool {
    let real = PathBuf::from(real.to_string_lossy().to_lowercase());
    let protected: Vec<PathBuf> = protected.iter().map(|it| it.to_lowercase().into()).collect();
    let mut ends = real.ancestors().filter_map(|it| real.strip_prefix(it).ok()).filter(|it| !it.as_os_str().is_empty());
    ends.any(|end| protected.iter().any(|path| end.starts_with(path) || path.starts_with(end)))
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

/// Whether a program of the person's acts on what has this name, in whatever case a file system keeps it.
#[must_use]
pub fn is_trusted_by_tools(path: &str) -> bool {
    let acts = |part: &str| part.starts_with(".git") || ACTED_ON.contains(&part);
    path.to_lowercase().split('/').any(acts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContainerPath;

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
        assert_eq!(git_files(&bind, &[".envrc".to_owned()]), [""; 0], "the person protects nothing of git's");
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
            let told = format!("{}\n", at.display());
            std::fs::write(git.join("worktrees").join(name).join("gitdir"), told).unwrap();
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
