//! A snippet's file in a host directory that its container mounts read-only: the user that runs it could change any file
//! that is writable inside.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::snippet::Snippet;
use crate::response::Result;
use crate::{Code, Failure, Language};

/// Writes a new file each time and renames it into place, so that an open handle to the last one does not see it.
pub(super) fn put(dir: &Path, run_id: &str, snippet: &Snippet) -> Result<()> {
    let beside = dir.join(format!(".{run_id}"));
    let written = write(&beside, snippet.code.as_bytes());
    written.and_then(|()| fs::rename(&beside, dir.join(snippet.language.file_name()))).map_err(|err| {
        let _ = fs::remove_file(&beside);
        Failure::new(Code::Internal, format!("The snippet cannot be written for its container: {err}.")).into()
    })
}

fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(code)?;
    // Readable for the container's user, whatever its number on this host.
    file.set_permissions(Permissions::from_mode(0o444))
}

/// A file that cannot be removed is replaced by the next.
pub(super) fn remove(dir: &Path, language: Language) {
    let _ = fs::remove_file(dir.join(language.file_name()));
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_snippet_is_a_new_file_that_is_readable_and_not_writable() {
        let dir = tempfile::tempdir().unwrap();
        let snippet = |code: &str| Snippet {
            code: code.to_owned(),
            language: Language::Bash,
            timeout: Duration::from_secs(1),
            stdin: None,
            is_persistent: false,
            restart: false,
        };
        put(dir.path(), "1", &snippet("echo one")).unwrap();
        let file = dir.path().join("main.sh");
        let mut held = fs::File::open(&file).unwrap();
        put(dir.path(), "2", &snippet("echo two")).unwrap();
        let mut seen = String::new();
        held.read_to_string(&mut seen).unwrap();
        assert_eq!((seen.as_str(), fs::read_to_string(&file).unwrap().as_str()), ("echo one", "echo two"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o444);
        remove(dir.path(), Language::Bash);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
