//! A file of the host that is made for a caller.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use coracle_host::fs::HostPath;

use super::destination::check_protected;
use super::request::cannot_spool;
use super::unfinished::{self, UnfinishedName};
use crate::{Error, Result};

/// A file that appears under its name when it is complete. Every step is one name in an open directory, so that code
/// which shares the directory cannot lead it elsewhere. One that is not finished is removed.
#[derive(Debug)]
pub struct HostFile {
    dir: Dir,
    name: String,
    path: PathBuf,
    unfinished: UnfinishedName,
    replace: bool,
}

/// What holds for a file on the host.
#[derive(Clone, Copy, Debug)]
pub struct HostFileRules<'a> {
    /// Paths that are never written, relative to any directory.
    pub protected: &'a [String],
    /// Where unfinished names are noted: [`Store::unfinished_copies`](crate::Store::unfinished_copies).
    pub notes: &'a Path,
}

impl HostFile {
    /// Begins a file of that name in a directory that the policy allows.
    ///
    /// # Errors
    /// [`Error::OtherKind`] for a directory; without `replace` [`Error::PathExists`] for anything else of that name; [`Error::Refused`] for a
    /// protected path; [`Error::Copy`].
    pub fn create(dir: &HostPath, name: &str, replace: bool, rules: &HostFileRules<'_>) -> Result<Self> {
        let path = dir.real().join(name);
        check_protected(&path, rules.protected)?;
        let (real, dir) = (dir.real(), dir.dir().map_err(cannot_spool)?);
        unfinished::sweep(rules.notes);
        let unfinished = UnfinishedName::reserve(rules.notes, &dir, real)?;
        let it = Self { dir, name: name.to_owned(), path, unfinished, replace };
        it.check_free()?;
        let mut options = OpenOptions::new();
        it.dir
            .open_with(it.unfinished.as_str(), options.write(true).create_new(true).mode(0o600))
            .map_err(cannot_spool)?;
        Ok(it)
    }

    /// To write to, and to read what was written.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        let file = self.dir.open_with(self.unfinished.as_str(), options.read(true).write(true).custom_flags(NO_LINK));
        file.map(cap_std::fs::File::into_std).map_err(cannot_spool)
    }

    /// Gives it its name, once its content is on the disk.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn finish(self) -> Result<PathBuf> {
        self.open()?.sync_all().map_err(cannot_spool)?;
        self.check_free()?;
        if self.replace {
            self.dir.rename(self.unfinished.as_str(), &self.dir, &self.name).map_err(cannot_spool)?;
            return Ok(self.path.clone());
        }
        // Unlike a rename, a link replaces nothing. What was linked loses its first name at the end.
        match self.dir.hard_link(self.unfinished.as_str(), &self.dir, &self.name) {
            Ok(()) => Ok(self.path.clone()),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Err(self.taken()),
            Err(err) => Err(cannot_spool(err)),
        }
    }

    fn check_free(&self) -> Result<()> {
        match self.dir.symlink_metadata(&self.name) {
            Ok(there) if there.is_dir() => {
                Err(Error::OtherKind { path: self.path.display().to_string(), side: "on the host" })
            }
            Ok(_) if !self.replace => Err(self.taken()),
            _ => Ok(()),
        }
    }

    fn taken(&self) -> Error {
        Error::PathExists { path: self.path.display().to_string(), side: "on the host" }
    }
}

const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn begin(dir: &tempfile::TempDir, name: &str, replace: bool) -> Result<HostFile> {
        let protected = &[".git/hooks".into(), ".envrc".into()];
        let rules = HostFileRules { protected, notes: &dir.path().with_extension("notes") };
        HostFile::create(&HostPath::open(dir.path()).unwrap(), name, replace, &rules)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<String> {
        let mut names: Vec<_> =
            dir.path().read_dir().unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_replaces_only_what_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let file = begin(&dir, "out.tar", false).unwrap();
        file.open().unwrap().write_all(b"one").unwrap();
        assert!(!dir.path().join("out.tar").exists());
        file.finish().unwrap();
        assert!(matches!(begin(&dir, "out.tar", false), Err(Error::PathExists { .. })));
        let file = begin(&dir, "out.tar", true).unwrap();
        file.open().unwrap().write_all(b"two").unwrap();
        assert_eq!(std::fs::read(dir.path().join("out.tar")).unwrap(), b"one");
        file.finish().unwrap();
        assert_eq!(std::fs::read(dir.path().join("out.tar")).unwrap(), b"two");
        assert_eq!(names(&dir), ["out.tar"]);
    }

    #[test]
    fn what_appears_meanwhile_stays_and_an_unfinished_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let file = begin(&dir, "out.tar", false).unwrap();
        std::fs::write(dir.path().join("out.tar"), "other").unwrap();
        assert!(matches!(file.finish(), Err(Error::PathExists { .. })));
        assert_eq!(std::fs::read_to_string(dir.path().join("out.tar")).unwrap(), "other");
        drop(begin(&dir, "more.tar", false).unwrap());
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        assert!(matches!(begin(&dir, "dir", true), Err(Error::OtherKind { .. })));
        assert_eq!(names(&dir), ["dir", "out.tar"]);
    }

    #[test]
    fn protected_paths_are_refused_and_links_are_not_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(matches!(begin(&dir, ".envrc", true), Err(Error::Refused(_))));
        std::os::unix::fs::symlink(other.path().join("x"), dir.path().join("link")).unwrap();
        assert!(matches!(begin(&dir, "link", false), Err(Error::PathExists { .. })));
        begin(&dir, "link", true).unwrap().finish().unwrap();
        assert!(dir.path().join("link").symlink_metadata().unwrap().is_file());
        assert_eq!(other.path().read_dir().unwrap().count(), 0);
    }
}
