//! Host paths that lie read-only over a writable bind (containers.md 4.10, security.md 5.3), and names that nothing of a
//! container's is written to without the person's word.

use std::path::Path;

use crate::host::fs::HostPath;
use crate::{Access, Mount};

/// Mounts over a writable bind: each protected path read-only, and every directory above one over itself, since a
/// directory that is a mount point cannot be renamed away.
#[must_use]
pub fn mounts_over(bind: &Mount, protected: &[String]) -> Vec<Mount> {
    let mut over: Vec<Mount> = Vec::new();
    if bind.access == Access::ReadOnly || !bind.host.is_dir() {
        return over;
    }
    for path in protected {
        let Some(target) = plain(bind, path) else { continue };
        let parents: Vec<_> = Path::new(path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()).collect();
        for parent in parents.iter().rev().filter_map(|it| it.to_str()) {
            let Some(host) = plain(bind, parent) else { continue };
            let at = bind.at.join(parent).expect("a protected path is plain");
            if !over.iter().any(|it| it.at == at) {
                over.push(Mount { host, at, access: Access::ReadWrite });
            }
        }
        let at = bind.at.join(path).expect("a protected path is plain");
        over.push(Mount { host: target, at, access: Access::ReadOnly });
    }
    over
}

/// What lies there, if no link leads to it: a link is not followed out, and what it leads to is not protected by it.
fn plain(bind: &Mount, path: &str) -> Option<HostPath> {
    let wanted = bind.host.real().join(path);
    HostPath::open(&wanted).ok().filter(|it| it.real() == wanted)
}

/// Whether a real path is a protected path, lies in one, or only leads to one, wherever the tree begins. A writable bind
/// of it would go around what lies over the tree.
#[must_use]
pub fn leads_to_protected(real: &Path, protected: &[String]) -> bool {
    let mut ends = real.ancestors().filter_map(|it| real.strip_prefix(it).ok()).filter(|it| !it.as_os_str().is_empty());
    ends.any(|end| protected.iter().any(|path| end.starts_with(path) || Path::new(path).starts_with(end)))
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
pub fn is_acted_on(path: &str) -> bool {
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
        mounts_over(&bind, &protected()).into_iter().map(show).collect()
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
            assert!(is_acted_on(name), "{name}");
        }
        for name in ["src/main.rs", "git/x", "a.github", "claude.rs", ""] {
            assert!(!is_acted_on(name), "{name}");
        }
        assert!(ACTED_ON.iter().all(|it| *it == it.to_lowercase()), "they are compared with names in lower case");
    }
}
