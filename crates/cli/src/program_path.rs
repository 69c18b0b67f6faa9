//! The path of this program for files of other programs, and whether a command in them can be found.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use coracle_context::{Failure, Host};

/// This program's name.
pub(super) const NAME: &str = "coracle";

/// A path of this program that stays valid. Package managers put a link into `PATH`, and an upgrade removes its target.
pub(super) fn program_path(host: &Host) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(Failure::internal)?;
    Ok(entry_of(search_path(host), &program).unwrap_or(program))
}

/// The first file of a search path that is this program.
fn entry_of(path: &OsStr, program: &Path) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let is_it = |it: &PathBuf| it.canonicalize().is_ok_and(|it| it == real);
    std::env::split_paths(path).filter(|it| it.is_absolute()).map(|it| it.join(NAME)).find(is_it)
}

/// Whether a command names an existing program: by its path, or by its name on the search path.
pub(super) fn is_found(command: &str, host: &Host) -> bool {
    match command.contains('/') {
        true => Path::new(command).is_absolute() && Path::new(command).is_file(),
        false => std::env::split_paths(search_path(host)).any(|it| it.join(command).is_file()),
    }
}

fn search_path(host: &Host) -> &OsStr {
    host.env.get("PATH").map(|it| OsStr::from_bytes(it.reveal())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use coracle_types::Secret;

    use super::*;

    #[test]
    fn a_link_on_the_search_path_is_written_in_place_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let [cellar, other, bin] = ["cellar/1.0", "other", "bin"].map(|it| dir.path().join(it));
        for it in [&cellar, &other, &bin] {
            fs::create_dir_all(it).unwrap();
        }
        let program = cellar.join(NAME);
        fs::write(&program, "").unwrap();
        fs::write(other.join(NAME), "another version").unwrap();
        symlink(&program, bin.join(NAME)).unwrap();
        let path = std::env::join_paths([PathBuf::from("relative"), other.clone(), bin.clone()]).unwrap();
        assert_eq!(entry_of(&path, &program), Some(bin.join(NAME)));
        assert_eq!(entry_of(other.as_os_str(), &program), None);

        let mut host = Host::below(dir.path());
        assert!(!is_found(NAME, &host));
        host.env.insert("PATH".into(), Secret::new(bin.as_os_str().as_bytes().to_vec()));
        assert!(is_found(NAME, &host) && is_found(program.to_str().unwrap(), &host));
        assert!(!is_found("/nowhere/coracle", &host) && !is_found("bin/coracle", &host));
    }
}
