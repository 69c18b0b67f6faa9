//! Paths that lie read-only over a writable bind, so that nothing inside can plant what the host would run
//! (containers.md 4.10, security.md 5.3).

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::host::tree::{DirHandle, Node};

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

const GIT: &str = ".git";

#[derive(Clone, Copy)]
enum Placeholder {
    File(&'static str),
    Dir,
}

/// Fills the gaps of a git directory below a bind. What was made is told as it is made, so that undo knows it; what
/// another container's placeholder fills already (`known`) is needed by this one too.
pub(crate) fn place(
    bind: &HostPath,
    protected: &[String],
    known: &[PathBuf],
    made: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let root = DirHandle::from_path(bind)?;
    if root.entry_kind(OsStr::new(GIT))? != Some(Node::Dir) {
        return Ok(());
    }
    let git = root.enter(OsStr::new(GIT))?;
    for (name, what) in PLACEHOLDERS.iter().filter(|it| protected.iter().any(|path| *path == format!("{GIT}/{}", it.0)))
    {
        let (path, name) = (bind.real().join(GIT).join(name), OsStr::new(name));
        match (git.entry_kind(name)?, what) {
            (Some(_), _) if !known.contains(&path) => continue,
            (Some(_), _) => {}
            (None, Placeholder::Dir) => drop(git.enter_or_make(name)?),
            (None, Placeholder::File(text)) => git.write_new(name, text.as_bytes())?,
        }
        made.push(path);
    }
    Ok(())
}

/// Takes placeholders away that are still what they were, and where they were.
pub(crate) fn clear(placeholders: &[PathBuf]) {
    for path in placeholders {
        let _ = take_away(path); // what is another's now stays
    }
}

fn take_away(path: &Path) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let git = HostPath::open(dir).map_err(io::Error::other)?;
    if git.real() != dir {
        return Ok(()); // a link took its place
    }
    let (git, what) = (DirHandle::from_path(&git)?, PLACEHOLDERS.iter().find(|it| name == it.0).map(|it| it.1));
    match what {
        Some(Placeholder::File(text)) => {
            let mut said = Vec::new();
            git.open(name)?.file.take(text.len() as u64 + 1).read_to_end(&mut said)?;
            if said == text.as_bytes() { git.remove(name) } else { Ok(()) }
        }
        // One that got content is not removed.
        Some(Placeholder::Dir) => git.remove_dir(name),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn protected() -> Vec<String> {
        DEFAULT_PROTECTED.iter().map(|it| (*it).to_owned()).collect()
    }

    fn placed(dir: &Path, known: &[PathBuf]) -> Vec<PathBuf> {
        let mut made = Vec::new();
        place(&HostPath::open(dir).unwrap(), &protected(), known, &mut made).unwrap();
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
        assert_eq!(made, [root.join(".git/commondir"), root.join(".git/info")]);
        fs::write(root.join(".git/info/exclude"), "kept").unwrap();
        clear(&made);
        assert!(!root.join(".git/commondir").exists());
        assert!(root.join(".git/info/exclude").exists() && root.join(".git/hooks").exists());
    }

    #[test]
    fn no_link_leads_a_placeholder_elsewhere() {
        let ((_dir, root), (_other, elsewhere)) = (directory(), directory());
        symlink(&elsewhere, root.join(".git")).unwrap();
        assert!(placed(&root, &[]).is_empty() && fs::read_dir(&elsewhere).unwrap().next().is_none());

        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let made = placed(&root, &[]);
        assert_eq!(made.len(), 3);
        // Somebody else's, just like ours.
        fs::rename(root.join(".git"), root.join("was")).unwrap();
        symlink(&elsewhere, root.join(".git")).unwrap();
        fs::create_dir(elsewhere.join("hooks")).unwrap();
        fs::write(elsewhere.join("commondir"), ".\n").unwrap();
        clear(&made);
        assert!(elsewhere.join("hooks").exists() && elsewhere.join("commondir").exists());
    }
}
