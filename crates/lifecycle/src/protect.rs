//! Paths that lie read-only over a writable bind, so that nothing inside can plant what the host would run
//! (containers.md 4.10, security.md 5.3).

use std::io;
use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> Vec<String> {
        DEFAULT_PROTECTED.iter().map(|it| (*it).to_owned()).collect()
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
