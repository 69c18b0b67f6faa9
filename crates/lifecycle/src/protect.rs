//! Paths that lie read-only over a writable bind, so that nothing inside can plant what the host would run
//! (containers.md 4.10, security.md 5.3).

use std::io;
use std::path::{Path, PathBuf};

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Access, Mount};

/// What is protected unless the configuration says otherwise.
pub const DEFAULT_PROTECTED: &[&str] = &[
    ".git/config",
    ".git/commondir",
    ".git/hooks",
    ".git/info",
    ".git/modules",
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

/// What git treats the same whether it is missing or holds this, and what hostile code could otherwise add.
/// A `commondir` of `.` means the directory itself; without the file a new one leads the host's git elsewhere.
const PLACEHOLDERS: &[(&str, Placeholder)] =
    &[("commondir", Placeholder::File(".\n")), ("hooks", Placeholder::Dir), ("info", Placeholder::Dir)];

#[derive(Clone, Copy)]
enum Placeholder {
    File(&'static str),
    Dir,
}

/// Fills the gaps of a git directory below `root`. What was made is told as it is made, so that undo knows it; what
/// another container's placeholder fills already (`known`) is needed by this one too.
pub(crate) fn place(root: &Path, protected: &[String], known: &[PathBuf], made: &mut Vec<PathBuf>) -> io::Result<()> {
    let git = root.join(".git");
    if !git.symlink_metadata().is_ok_and(|it| it.is_dir()) {
        return Ok(());
    }
    for (name, what) in PLACEHOLDERS.iter().filter(|it| protected.iter().any(|path| *path == format!(".git/{}", it.0)))
    {
        let path = git.join(name);
        let result = match what {
            Placeholder::Dir => std::fs::create_dir(&path),
            Placeholder::File(text) => {
                std::fs::File::create_new(&path).and_then(|mut it| io::Write::write_all(&mut it, text.as_bytes()))
            }
        };
        match result {
            Ok(()) => made.push(path),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists && known.contains(&path) => made.push(path),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// Takes placeholders away that are still what they were.
pub(crate) fn clear(placeholders: &[PathBuf]) {
    for path in placeholders {
        let untouched = PLACEHOLDERS.iter().any(|(name, what)| match what {
            Placeholder::File(text) => {
                path.ends_with(name) && std::fs::read(path).is_ok_and(|it| it == text.as_bytes())
            }
            Placeholder::Dir => false,
        });
        // A directory that got content is not removed: `remove_dir` refuses.
        let _ = if untouched { std::fs::remove_file(path) } else { std::fs::remove_dir(path) };
    }
}

/// Mounts over a writable bind: each protected path read-only, and every directory above one over itself, since a
/// directory that is a mount point cannot be renamed away.
pub(crate) fn mounts_over(bind: &Mount, protected: &[String]) -> Vec<Mount> {
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

#[cfg(test)]
mod tests {
    use coracle_runtime::ContainerPath;

    use super::*;

    fn protected() -> Vec<String> {
        DEFAULT_PROTECTED.iter().map(|it| (*it).to_owned()).collect()
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
    fn placeholders_come_and_go_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
        let mut made = Vec::new();
        place(dir.path(), &protected(), &[], &mut made).unwrap();
        let mut second = Vec::new();
        place(dir.path(), &protected(), &made, &mut second).unwrap();
        assert_eq!(second, made, "a second container needs the first one's");
        assert_eq!(made, [dir.path().join(".git/commondir"), dir.path().join(".git/info")]);
        std::fs::write(dir.path().join(".git/info/exclude"), "kept").unwrap();
        clear(&made);
        assert!(!dir.path().join(".git/commondir").exists());
        assert!(dir.path().join(".git/info/exclude").exists() && dir.path().join(".git/hooks").exists());
    }
}
