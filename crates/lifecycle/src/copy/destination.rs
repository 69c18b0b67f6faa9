//! From a spooled archive to files beneath a directory of the host.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

use cap_fs_ext::{DirExt, SystemTimeSpec};
use cap_std::fs::Dir;
use coracle_archive::transfer::{self, TransferReport};
use coracle_runtime::{PolicyRefusal, Problem};

use super::request::{CopyRequest, cannot_spool};
use super::unfinished::{self, UnfinishedName};
use crate::{Error, Result};

/// Unpacks beside the target, checks that nothing is in the way, and moves into place.
pub(super) fn place(mut spool: File, request: &CopyRequest) -> Result<(TransferReport, PathBuf)> {
    spool.rewind().map_err(cannot_spool)?;
    let dir = request.host.dir().map_err(cannot_spool)?;
    let name = request.host_name.as_deref().unwrap_or(request.container.file_name());
    let target = request.host.real().join(name);
    check_protected(&target, &request.protected)?;
    unfinished::sweep(&request.notes);
    // Files that are left in it at the end are not part of the request.
    let staging = UnfinishedName::reserve(&request.notes, &dir, request.host.real())?;
    dir.create_dir(staging.as_str()).map_err(cannot_spool)?;
    let staged = dir.open_dir_nofollow(staging.as_str()).map_err(cannot_spool)?;
    let moved = fill(spool, &DirPair { from: &staged, into: &dir }, name, request)?;
    staging.clear()?;
    Ok((moved, target))
}

fn fill(spool: File, dirs: &DirPair<'_>, name: &str, request: &CopyRequest) -> Result<TransferReport> {
    let mut moved = transfer::unpack(spool, dirs.from, name, request.limits).map_err(Error::Copy)?;
    if dirs.from.symlink_metadata(name).is_err() {
        let reason = moved.skipped.first().map_or("nothing came", |it| it.reason);
        let source = std::io::Error::other(format!("nothing could be copied: {reason}"));
        return Err(Error::Copy(transfer::Error::Io { path: request.container.to_string(), source }));
    }
    let mut merge = Merge { request, moved: &mut moved };
    merge.check(dirs, name, Path::new(""))?;
    merge.run(dirs, name, Path::new(""))?;
    Ok(moved)
}

pub(super) fn check_protected(target: &Path, protected: &[String]) -> Result<()> {
    if !is_protected(target, protected) {
        return Ok(());
    }
    let value = target.display().to_string();
    let message = format!("`{value}` is a protected path");
    let setting = Some("workspace.protected");
    Err(PolicyRefusal { problems: vec![Problem { rule: "copy.protected", setting, value, message }] }.into())
}

/// Checks every directory, because a repository inside the tree has its own hooks. Ignores case, as the file systems of
/// many hosts do.
fn is_protected(target: &Path, protected: &[String]) -> bool {
    let target = PathBuf::from(target.to_string_lossy().to_lowercase());
    let lies_in = |above: &Path, it: &String| target.starts_with(above.join(it.to_lowercase()));
    target.ancestors().skip(1).any(|above| protected.iter().any(|it| lies_in(above, it)))
}

/// The staged directory, and the one that its entries are moved to.
struct DirPair<'a> {
    from: &'a Dir,
    into: &'a Dir,
}

/// Moves a tree over another: directories merge, files are replaced whole, links are never followed. Every step is one
/// name between two open directories, so that code which shares the directory cannot lead it elsewhere.
struct Merge<'a> {
    request: &'a CopyRequest,
    moved: &'a mut TransferReport,
}

impl Merge<'_> {
    /// Looks at everything before anything is moved. `above` is where both directories lie within the target.
    fn check(&self, dirs: &DirPair<'_>, name: &str, above: &Path) -> Result<()> {
        let DirPair { from, into } = *dirs;
        let Ok(there) = into.symlink_metadata(name) else { return Ok(()) };
        let path = above.join(name);
        if self.is_protected(&path) {
            return Ok(());
        }
        let comes = from.symlink_metadata(name).map_err(cannot_spool)?;
        let on_host = || self.request.host.real().join(&path).display().to_string();
        if comes.is_dir() != there.is_dir() {
            return Err(Error::OtherKind { path: on_host(), side: "on the host" });
        }
        if !comes.is_dir() && !self.request.overwrite {
            return Err(Error::PathExists { path: on_host(), side: "on the host" });
        }
        if comes.is_dir() {
            let (from, into) = (open(from, name)?, open(into, name)?);
            for child in children(&from)? {
                self.check(&DirPair { from: &from, into: &into }, &child, &path)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, dirs: &DirPair<'_>, name: &str, above: &Path) -> Result<()> {
        let DirPair { from, into } = *dirs;
        let path = above.join(name);
        if self.is_protected(&path) {
            let skipped = transfer::SkippedEntry { path: path.display().to_string(), reason: "it is a protected path" };
            self.moved.skipped.push(skipped);
            return Ok(());
        }
        let comes = from.symlink_metadata(name).map_err(cannot_spool)?;
        if !comes.is_dir() {
            if comes.is_file() && into.symlink_metadata(name).is_ok() {
                // A loss of power leaves the old content or the new one.
                from.open(name).and_then(|file| file.sync_all()).map_err(cannot_spool)?;
            }
            return from.rename(name, into, name).map_err(cannot_spool);
        }
        let made = match into.create_dir(name) {
            Ok(()) => true,
            Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(err) => return Err(cannot_spool(err)),
        };
        let (inner_from, inner_into) = (open(from, name)?, open(into, name)?);
        for child in children(&inner_from)? {
            self.run(&DirPair { from: &inner_from, into: &inner_into }, &child, &path)?;
        }
        if !made {
            return Ok(());
        }
        into.set_permissions(name, comes.permissions()).map_err(cannot_spool)?;
        let mtime = comes.modified().map_err(cannot_spool)?;
        into.set_mtime(name, SystemTimeSpec::Absolute(mtime)).map_err(cannot_spool)
    }

    fn is_protected(&self, path: &Path) -> bool {
        is_protected(&self.request.host.real().join(path), &self.request.protected)
    }
}

fn open(dir: &Dir, name: &str) -> Result<Dir> {
    dir.open_dir_nofollow(name).map_err(cannot_spool)
}

/// Names from one of Coracle's archives are UTF-8.
fn children(dir: &Dir) -> Result<Vec<String>> {
    let entries = dir.entries().map_err(cannot_spool)?;
    let mut names: Vec<_> = entries.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use coracle_archive::transfer::{Limits, Writer};
    use coracle_host::fs::HostPath;
    use coracle_types::{ContainerPath, Ids};

    use super::*;

    const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_entries: 100 };

    fn spool(files: &[&str]) -> File {
        let mut writer = Writer::new(tempfile::tempfile().unwrap(), Ids::ROOT, LIMITS);
        writer.dir("out", 0o755, None).unwrap();
        for path in files {
            let mut parent = String::from("out");
            for part in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
                parent = format!("{parent}/{part}");
                writer.dir(&parent, 0o755, None).unwrap();
            }
            writer.file(&format!("out/{path}"), 0o644, path.as_bytes()).unwrap();
        }
        let (mut file, _) = writer.finish().unwrap();
        file.flush().unwrap();
        file
    }

    fn request(dir: &Path, overwrite: bool) -> CopyRequest {
        CopyRequest {
            host: HostPath::open(dir).unwrap(),
            host_name: None,
            container: ContainerPath::parse("/x/out").unwrap(),
            into_directory: false,
            overwrite,
            limits: LIMITS,
            protected: vec![".git/hooks".into()],
            scratch: dir.to_owned(),
            notes: dir.with_extension("notes"),
            meter: crate::CopyMeter::default(),
        }
    }

    #[test]
    fn directories_merge_and_files_are_replaced_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("out/a")).unwrap();
        std::fs::write(dir.path().join("out/a/old"), "old").unwrap();
        std::fs::write(dir.path().join("out/present"), "present").unwrap();
        let files = ["a/new", "a/old"];
        let refused = place(spool(&files), &request(dir.path(), false));
        assert!(matches!(refused, Err(Error::PathExists { path, .. }) if path.ends_with("out/a/old")));
        assert!(!dir.path().join("out/a/new").exists(), "nothing is moved when something is in the way");
        place(spool(&files), &request(dir.path(), true)).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!([read("out/a/new"), read("out/a/old"), read("out/present")], ["a/new", "a/old", "present"]);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "no staging directory is left");
    }

    #[test]
    fn protected_paths_are_left_out_and_links_on_the_host_are_not_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (moved, _) =
            place(spool(&[".git/hooks/x", ".GIT/Hooks/x", ".git/fine"]), &request(dir.path(), true)).unwrap();
        assert_eq!(moved.skipped.len(), 2);
        assert!(dir.path().join("out/.git/fine").exists() && !dir.path().join("out/.git/hooks").exists());
        std::fs::remove_dir_all(dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("out")).unwrap();
        assert!(matches!(place(spool(&["a"]), &request(dir.path(), true)), Err(Error::OtherKind { .. })));
        assert_eq!(other.path().read_dir().unwrap().count(), 0);
    }
}
