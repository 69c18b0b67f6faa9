//! Resolves links and home directories in paths.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

use super::packet::SftpError;
use crate::os::user::tables::Tables;

/// Links in one path, at most; the kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Returns the absolute path without links. The last part need not exist.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, SftpError> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let missing = match path.canonicalize() {
            Err(err) if err.kind() == ErrorKind::NotFound => err,
            resolved => return Ok(resolved?),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(missing.into()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = parent.canonicalize()?;
        let last = parent.join(name);
        match fs::read_link(&last) {
            // A link to a missing file: continue with its target.
            Ok(target) => path = parent.join(target),
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(last),
            Err(err) => return Err(err.into()),
        }
    }
    Err(Errno::LOOP.into())
}

/// Returns the home of the server's own user, or of a named one.
pub(super) fn home(tables: &Tables, name: &[u8]) -> Result<PathBuf, SftpError> {
    let own = geteuid().as_raw();
    let entry = match name {
        b"" => tables.user(own),
        name => tables.users().find(|user| user.name.as_bytes() == name),
    };
    entry.map(|user| user.home.into()).ok_or_else(|| SftpError::failure("no such user"))
}

/// Replaces `~` and `~NAME` at the start of a path.
pub(super) fn expand(tables: &Tables, path: &Path) -> Result<PathBuf, SftpError> {
    let Some(named) = path.as_os_str().as_bytes().strip_prefix(b"~") else { return Ok(path.to_owned()) };
    let end = named.iter().position(|byte| *byte == b'/').unwrap_or(named.len());
    let (name, rest) = named.split_at(end);
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    Ok(home(tables, name)?.join(OsStr::from_bytes(rest)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_parent_of_a_link_is_the_parent_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/b", root.join("link")).unwrap();
        symlink("a/new", root.join("dangling")).unwrap();
        symlink("around", root.join("around")).unwrap();
        let resolved = |path: &str| resolve(&root.join(path)).ok().map(|it| it.strip_prefix(&root).unwrap().to_owned());
        for (path, expected) in
            [("link/..", "a"), ("link/x", "a/b/x"), ("dangling", "a/new"), ("./a/./b/", "a/b"), ("new", "new")]
        {
            assert_eq!(resolved(path), Some(expected.into()), "{path}");
        }
        assert_eq!([resolved("none/x"), resolved("around"), resolved("none/..")], [None, None, None]);
    }

    #[test]
    fn a_tilde_is_replaced_by_a_home() {
        let tables = Tables { passwd: b"me:x:7:7::/home/me:/bin/sh\n".to_vec(), group: Vec::new() };
        let expanded = |path: &str| expand(&tables, Path::new(path)).ok();
        assert_eq!(expanded("~me/x"), Some("/home/me/x".into()));
        assert_eq!((expanded("~me"), expanded("a~me")), (Some("/home/me/".into()), Some("a~me".into())));
        assert_eq!(expanded("~none/x"), None);
    }
}
