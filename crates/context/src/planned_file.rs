//! A file of the user, such as the configuration, that is changed as a whole.
//!
//! **Invariant:** the old text is saved beside it, and changes by other programs meanwhile are not lost.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use coracle_host::fs::replace_as;
use coracle_host::temporary;
use coracle_host::tree_sweep::sweep_path;
use similar::TextDiff;

use crate::failure::{Code, Failure};

/// A file to write.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFile<'a> {
    pub path: &'a Path,
    /// The current text, if the file exists.
    pub before: Option<&'a str>,
    pub after: &'a str,
}

impl PlannedFile<'_> {
    /// The change as a unified diff; the whole text of a new file.
    #[must_use]
    pub fn diff(&self) -> String {
        diff(self.path, self.before.unwrap_or_default(), self.after)
    }

    /// Writes the file. Returns the copy of the old text.
    ///
    /// # Errors
    /// `apply_conflict` if the file has changed since the change was computed; errors of the file system.
    pub fn write(&self) -> Result<Option<PathBuf>, Failure> {
        if read(self.path)?.as_deref() != self.before {
            let message = format!("`{}` changed meanwhile; nothing was written to it", self.path.display());
            return Err(Failure::new(Code::ApplyConflict, message).hint("call it again: it begins with the new text"));
        }
        let cannot =
            |err: io::Error| Failure::new(Code::Internal, format!("cannot write `{}`: {err}", self.path.display()));
        write(self).map_err(cannot)
    }
}

/// The text of a file, if it exists.
///
/// # Errors
/// `internal` if it cannot be read.
pub fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(Failure::new(Code::Internal, format!("cannot read `{}`: {err}", path.display()))),
    }
}

/// A change of a text as a unified diff; the whole text without one before.
#[must_use]
pub fn diff(path: &Path, before: &str, after: &str) -> String {
    if before.is_empty() {
        return after.trim_end().to_owned();
    }
    let name = path.display().to_string();
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(3).header(&name, &name).to_string().trim_end().to_owned()
}

/// Replaces the file atomically, with the permissions of the old file. The old text is saved beside it under an unused
/// name. A link stays a link.
fn write(file: &PlannedFile<'_>) -> io::Result<Option<PathBuf>> {
    let path = file.path.canonicalize().unwrap_or_else(|_| file.path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    sweep_path(folder);
    let backup = file.before.map(|_| back_up(&path)).transpose()?;
    let permissions = match file.before {
        Some(_) => fs::metadata(&path)?.permissions(),
        None => fs::Permissions::from_mode(0o600),
    };
    replace_as(&path, file.after.as_bytes(), permissions)?;
    Ok(backup)
}

/// Copies a file to `FILE.before-coracle`, or to `FILE.before-coracle.2` and so on: an existing copy may have the only
/// text that the user wrote.
fn back_up(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().display().to_string();
    let numbers = (2..).map(|number| format!("{name}.before-coracle.{number}"));
    for name in [format!("{name}.before-coracle")].into_iter().chain(numbers) {
        let mut copy = temporary::file_in(folder)?;
        io::copy(&mut File::open(path)?, &mut copy)?;
        copy.as_file().set_permissions(fs::metadata(path)?.permissions())?;
        copy.as_file().sync_all()?;
        let backup = folder.join(name);
        match copy.persist_noclobber(&backup) {
            Ok(_) => return Ok(backup),
            Err(err) if err.error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read(&backup)? == fs::read(path)? {
                    return Ok(backup);
                }
            }
            Err(err) => return Err(err.error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_another_program_changes_meanwhile_keeps_that() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        fs::write(&path, "changed").unwrap();
        for before in [Some("read"), None] {
            let refused = PlannedFile { path: &path, before, after: "written" }.write().unwrap_err().into_inner();
            assert_eq!(
                (refused.code, refused.message.contains("meanwhile")),
                (Code::ApplyConflict, true),
                "{before:?}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), "changed");
        }
        PlannedFile { path: &path, before: Some("changed"), after: "written" }.write().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "written");
    }

    #[test]
    fn a_file_is_replaced_whole_and_its_old_text_stays_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/settings.json");
        assert_eq!(write(&PlannedFile { path: &path, before: None, after: "one" }).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.json");
        symlink(&path, &link).unwrap();
        let backup = write(&PlannedFile { path: &link, before: Some("one"), after: "two" }).unwrap().unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(&backup).unwrap()),
            ("two".into(), "one".into())
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink() && fs::read_dir(path.parent().unwrap()).unwrap().count() == 2);
    }

    #[test]
    fn a_second_change_keeps_the_text_before_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        fs::write(&path, "by hand").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut backups = Vec::new();
        for (before, after) in [("by hand", "first"), ("first", "second"), ("second", "third")] {
            let backup = write(&PlannedFile { path: &path, before: Some(before), after }).unwrap().unwrap();
            assert_eq!(fs::read_to_string(&backup).unwrap(), before);
            assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
            backups.push(backup.file_name().unwrap().display().to_string());
        }
        assert_eq!(backups, ["config.before-coracle", "config.before-coracle.2", "config.before-coracle.3"]);
        assert_eq!(fs::read_to_string(dir.path().join("config.before-coracle")).unwrap(), "by hand");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no temporary file is left");
    }
}
