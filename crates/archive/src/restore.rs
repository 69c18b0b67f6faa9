//! Unpacks an archive as an engine does for a container: with owners, modes and times, over existing files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, fchmod, fchown, futimens, linkat, mkdirat, openat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::tar::{EntryKind, Reader, TarEntry};

/// Unpacks directories, files and links into the existing directory `at`, with `root` as the root directory: links are
/// followed and stay below it. Entries replace everything except directories. Root also sets their owners. Ignores
/// entries with `..` in their names, devices and pipes.
///
/// # Errors
/// If the archive cannot be read or something cannot be created; what was unpacked until then stays.
pub fn restore<R: Read>(tar: &mut Reader<R>, root: impl AsFd, at: &Path) -> io::Result<()> {
    let restore = Restore { root: root.as_fd(), at, sets_owner: rustix::process::geteuid().is_root() };
    restore.open_dir(at)?;
    let mut dirs = Vec::new();
    while let Some(entry) = tar.next_entry()? {
        let Some(path) = plain(&entry.path).map(|path| at.join(path)) else { continue };
        if entry.kind == EntryKind::Directory {
            restore.make_dir(&path)?;
            dirs.push((path, entry));
        } else {
            restore.entry(&path, &entry, tar)?;
        }
    }
    // Last, and the deepest first: their modes could prevent access to their content, and filling them changes their
    // times.
    dirs.sort_by(|(one, _), (other, _)| other.cmp(one));
    // The target directory itself is not changed.
    let own = dirs.iter().filter(|(path, _)| path != at || at == Path::new(""));
    own.into_iter().try_for_each(|(path, entry)| restore.set_metadata(&restore.open_dir(path)?, entry))
}

struct Restore<'a> {
    root: BorrowedFd<'a>,
    /// The base of names in the archive.
    at: &'a Path,
    sets_owner: bool,
}

impl Restore<'_> {
    #[cfg(target_os = "linux")]
    fn open_dir(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        use rustix::fs::{ResolveFlags, openat2};

        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(self.root, relative(path), flags, Mode::empty(), within) {
                // Something was renamed concurrently.
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
    }

    /// On this system, absolute links are refused.
    #[cfg(not(target_os = "linux"))]
    fn open_dir(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let root = self.root.try_clone_to_owned().map(|root| cap_std::fs::Dir::from_std_file(root.into()));
        let opened = root.and_then(|root| root.open_dir(relative(path)));
        let opened = opened.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::PERM))?;
        openat(&opened, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Creates a directory and its missing parents.
    fn make_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.open_dir(path) {
            Err(Errno::NOENT) => {}
            done => return Ok(done?),
        }
        let mut made = PathBuf::new();
        for part in path.components() {
            let above = made.clone();
            made.push(part);
            if let (Component::Normal(name), Err(Errno::NOENT)) = (part, self.open_dir(&made)) {
                mkdirat(self.open_dir(&above)?, name, Mode::from_raw_mode(0o755))?;
            }
        }
        Ok(self.open_dir(path)?)
    }

    /// Returns the parent directory of an entry, and its name.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        Ok((self.make_dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn entry<R: Read>(&self, path: &Path, entry: &TarEntry, tar: &mut Reader<R>) -> io::Result<()> {
        if !matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink(_) | EntryKind::HardLink(_)) {
            return Ok(());
        }
        let (dir, name) = self.parent(path)?;
        let target = match &entry.kind {
            EntryKind::HardLink(target) => {
                let target = plain(target).ok_or(io::ErrorKind::InvalidInput)?;
                // A link to itself is not changed.
                if self.at.join(&target) == path {
                    return Ok(());
                }
                Some(target)
            }
            _ => None,
        };
        match unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(err) => return Err(err.into()),
        }
        if let EntryKind::Symlink(target) = &entry.kind {
            symlinkat(target.as_slice(), &dir, name)?;
            if self.sets_owner {
                let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
                chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            return Ok(utimensat(&dir, name, &timestamps(entry), AtFlags::SYMLINK_NOFOLLOW)?);
        }
        if let Some(target) = target {
            // Owner and mode are those of its target.
            let target = self.at.join(target);
            let first = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            let above = self.open_dir(target.parent().unwrap_or(Path::new("")))?;
            return Ok(linkat(above, first, &dir, name, AtFlags::empty())?);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, name, flags, Mode::from_raw_mode(0o600))?);
        tar.copy_content(entry, &file)?;
        self.set_metadata(&file, entry)
    }

    fn set_metadata(&self, file: impl AsFd, entry: &TarEntry) -> io::Result<()> {
        // Changing the owner clears set-id bits.
        if self.sets_owner {
            fchown(&file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))?;
        }
        fchmod(&file, Mode::from_raw_mode(entry.mode & 0o7777))?;
        Ok(futimens(&file, &timestamps(entry))?)
    }
}

/// A path from the root, `.` for the root itself.
fn relative(path: &Path) -> &Path {
    let path = path.strip_prefix("/").unwrap_or(path);
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn timestamps(entry: &TarEntry) -> Timestamps {
    let time = Timespec { tv_sec: entry.mtime.seconds, tv_nsec: entry.mtime.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Returns the parts of a name below the root. `None` for one that leads upwards.
fn plain(name: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(name));
    let leads_up = path.components().any(|part| part == Component::ParentDir);
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    (!leads_up).then(|| parts.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Seek as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use coracle_skips::{NEEDS_ROOT, skip};

    use super::*;
    use crate::tar::Writer;

    #[test]
    fn an_entry_without_an_owner_is_roots_and_its_set_id_bits_are_set() {
        if !rustix::process::getuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        let mut tar = ::tar::Builder::new(tempfile::tempfile().unwrap());
        for (name, kind, uid) in [
            ("dir/", ::tar::EntryType::Directory, Some(7)),
            ("dir/blank", ::tar::EntryType::Regular, None),
            ("dir/owned", ::tar::EntryType::Regular, Some(7)),
        ] {
            let mut header = ::tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o6750);
            header.set_size(0);
            if let Some(uid) = uid {
                header.set_uid(uid);
                header.set_gid(uid);
            }
            tar.append_data(&mut header, name, &[][..]).unwrap();
        }
        let mut file = tar.into_inner().unwrap();
        file.rewind().unwrap();
        let at = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(at.path(), Some(9), Some(9)).unwrap();
        restore(&mut Reader::open(file).unwrap(), File::open("/").unwrap(), at.path()).unwrap();
        for (name, owner) in [("dir", 7), ("dir/blank", 0), ("dir/owned", 7)] {
            let it = fs::metadata(at.path().join(name)).unwrap();
            assert_eq!((it.uid(), it.gid(), it.mode() & 0o7777), (owner, owner, 0o6750), "{name}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn links_are_followed_only_below_the_root() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::create_dir(root.path().join("at")).unwrap();
        symlink("/usr/bin", root.path().join("at/bin")).unwrap();
        symlink(outside.path(), root.path().join("at/out")).unwrap();
        symlink("../../../usr", root.path().join("at/up")).unwrap();
        let unpack = |path: &str, kind: EntryKind| {
            let mut tar = Writer::new(Vec::new());
            let content = *b"xxx";
            tar.write_file(&TarEntry::new(path, kind, 0o644), &content[..])?;
            let tar = tar.finish()?;
            restore(&mut Reader::new(&tar[..]), File::open(root.path())?, Path::new("at"))
        };
        unpack("bin/program", EntryKind::file(3)).unwrap();
        unpack("up/file", EntryKind::file(3)).unwrap();
        unpack("../escaped", EntryKind::file(3)).unwrap();
        unpack("/made/deep/file", EntryKind::file(3)).unwrap();
        unpack("out/escaped", EntryKind::file(3)).unwrap_err();
        unpack("secret", EntryKind::HardLink(b"out/secret".into())).unwrap_err();
        for made in ["usr/bin/program", "usr/file", "at/made/deep/file"] {
            assert_eq!(fs::read(root.path().join(made)).unwrap(), b"xxx", "{made}");
        }
        assert!(!root.path().join("escaped").exists());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_entry_replaces_a_link_and_not_its_target() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("target"), "unchanged").unwrap();
        symlink("target", root.path().join("a")).unwrap();
        let mut tar = Writer::new(Vec::new());
        tar.write_file(&TarEntry::new("a", EntryKind::file(3), 0o600), &b"new"[..]).unwrap();
        tar.write_entry(&TarEntry::new("b", EntryKind::HardLink(b"a".into()), 0o644)).unwrap();
        let tar = tar.finish().unwrap();
        restore(&mut Reader::new(&tar[..]), File::open(root.path()).unwrap(), Path::new("")).unwrap();
        let read = |name: &str| fs::read_to_string(root.path().join(name)).unwrap();
        assert_eq!((read("target"), read("a"), read("b")), ("unchanged".into(), "new".into(), "new".into()));
    }
}
