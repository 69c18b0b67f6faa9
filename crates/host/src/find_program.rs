//! Finds programs on the host.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coracle_types::{Error, Result};

/// Directories of engines and other programs. The user's `PATH` is ignored: it may contain a directory that others can
/// write to.
const DIRECTORIES: &[&str] = &[
    "/usr/bin",
    "/usr/local/bin",
    "/bin",
    "/usr/sbin",
    "/opt/homebrew/bin",
    "/opt/podman/bin",
    "/snap/bin",
    "/run/current-system/sw/bin",
];

/// Returns the absolute path of a program in a directory that only root can write to.
///
/// # Errors
/// [`Error::NotInstalled`].
pub fn find_program(name: &str) -> Result<PathBuf> {
    find_program_in(name, &[])
}

/// Searches the user's own directories first; directories that another user can write to are skipped.
///
/// # Errors
/// [`Error::NotInstalled`].
pub fn find_program_in(name: &str, own: &[PathBuf]) -> Result<PathBuf> {
    safe_programs(name, own).next().ok_or_else(|| Error::NotInstalled { program: name.to_owned() })
}

/// All programs of a name that [`find_program_in`] accepts, in its order.
pub(crate) fn safe_programs<'a>(name: &'a str, own: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + 'a {
    let usual = DIRECTORIES.iter().map(Path::new);
    let candidates = own.iter().map(PathBuf::as_path).chain(usual).map(move |dir| dir.join(name));
    candidates.filter(|it| it.is_file() && is_safe(it))
}

/// The directories that [`find_program_in`] searches, as a `PATH` for a program that starts others.
pub(crate) fn search_path(own: &[PathBuf]) -> OsString {
    // A directory with `:` cannot be in a `PATH`.
    let own = own.iter().map(|it| it.as_os_str()).filter(|it| !it.as_encoded_bytes().contains(&b':'));
    let dirs: Vec<_> = own.chain(DIRECTORIES.iter().map(OsStr::new)).collect();
    dirs.join(OsStr::new(":"))
}

/// Whether no other user can replace the program or one of its parent directories.
fn is_safe(program: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let safe =
        |path: &Path| path.metadata().is_ok_and(|it| (it.uid() == 0 || it.uid() == me) && it.mode() & 0o002 == 0);
    program.canonicalize().is_ok_and(|real| real.ancestors().all(safe))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_others_can_write_to_is_not_safe() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("docker");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_safe(&program));
        assert!(is_safe("/bin/sh".as_ref()));
    }

    #[test]
    fn a_missing_program_is_not_installed() {
        assert!(matches!(find_program("no-such-engine"), Err(Error::NotInstalled { .. })));
    }
}
