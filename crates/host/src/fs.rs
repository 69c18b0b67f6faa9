//! Host paths that are resolved once and then held open, atomic replacement of files, and digests.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::temporary;

/// A directory or regular file of the host: links are resolved once, and the handle stays on the same file.
#[derive(Clone, Debug)]
pub struct HostPath {
    real: PathBuf,
    held: Arc<File>,
    is_dir: bool,
}

/// Identifies a file on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeId {
    /// The number of its device.
    pub device: u64,
    /// Its number on that device.
    pub inode: u64,
}

impl InodeId {
    fn from_metadata(file: &std::fs::Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Why a host path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// It is missing, or cannot be reached.
    #[error("no `{}` on this host", .0.display())]
    NotFound(PathBuf),
    /// It is neither a directory nor a regular file.
    #[error("`{}` is neither a directory nor a regular file", .0.display())]
    Special(PathBuf),
    /// Its name cannot be carried to an engine.
    #[error("`{}` has a control character or is not UTF-8", .0.to_string_lossy().escape_debug())]
    Name(PathBuf),
    /// The system refused.
    #[error("cannot open `{}`", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl HostPath {
    /// Resolves the links of an absolute path and opens what they lead to.
    ///
    /// # Errors
    /// [`HostPathError`]; also when a link appears on the way between resolving and opening.
    pub fn open(path: &Path) -> Result<Self, HostPathError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => HostPathError::NotFound(path.to_owned()),
            _ => HostPathError::Io { path: path.to_owned(), source },
        };
        let real = path.canonicalize().map_err(failed)?;
        if real.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(HostPathError::Name(real));
        }
        let held = File::from(open_without_links(&real, HELD).map_err(|err| failed(err.into()))?);
        let kind = held.metadata().map_err(failed)?;
        if !kind.is_dir() && !kind.is_file() {
            return Err(HostPathError::Special(real));
        }
        Ok(Self { is_dir: kind.is_dir(), real, held: Arc::new(held) })
    }

    /// The path without links.
    #[must_use]
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Device and inode.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn identity(&self) -> io::Result<InodeId> {
        Ok(InodeId::from_metadata(&self.held.metadata()?))
    }

    /// Whether its path still leads to it, without a link on the way.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        Self::open(&self.real).is_ok_and(|now| now.real == self.real && now.identity().ok() == self.identity().ok())
    }

    /// Gives the file another name. A later replacement of its own path does not affect that name.
    ///
    /// # Errors
    /// If it is on another file system than the name, if the system does not permit it, or if another file is at its
    /// path by now.
    pub fn hard_link(&self, name: &Path) -> io::Result<Self> {
        std::fs::hard_link(&self.real, name)?;
        if self.identity()? == InodeId::from_metadata(&std::fs::symlink_metadata(name)?) {
            return Self::open(name).map_err(io::Error::other);
        }
        std::fs::remove_file(name)?;
        Err(io::Error::new(io::ErrorKind::NotFound, "it was exchanged"))
    }

    /// Whether a path leads to the very same file: device and inode.
    ///
    /// # Errors
    /// When either cannot be read.
    pub fn is_same_as(&self, path: &Path) -> io::Result<bool> {
        Ok(self.identity()? == InodeId::from_metadata(&std::fs::metadata(path)?))
    }

    /// Opens the directory for reading through the held descriptor.
    ///
    /// # Errors
    /// If it is not a directory or cannot be read.
    pub fn dir(&self) -> io::Result<cap_std::fs::Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*self.held, ".", flags, Mode::empty())?;
        Ok(cap_std::fs::Dir::from_std_file(File::from(fd)))
    }

    /// Opens the file's content without following a link.
    ///
    /// # Errors
    /// If it is not a file, cannot be read, or was replaced.
    pub fn file(&self) -> io::Result<File> {
        let file = File::from(open_for_reading(&self.real)?);
        if self.identity()? == InodeId::from_metadata(&file.metadata()?) {
            Ok(file)
        } else {
            Err(io::Error::other("it was replaced while it was opened"))
        }
    }
}

/// Removes a file, if it exists.
///
/// # Errors
/// If it exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(()),
    }
}

/// Replaces a file atomically: the new content is written to a temporary file, synced and renamed, and the directory is
/// synced. Readers and a crash leave the old content or the new one. Only its owner may read it.
///
/// # Errors
/// If it cannot be written; the old file then stays, and the temporary file is removed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, Permissions::from_mode(0o600))
}

/// [`replace`], for a file with other permissions.
///
/// # Errors
/// Those of [`replace`].
pub fn replace_as(path: &Path, content: &[u8], permissions: Permissions) -> io::Result<()> {
    let mut file = temporary::file_in(dir_of(path))?;
    file.write_all(content)?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    let file = file.persist(path).map_err(|err| err.error)?;
    temporary::unmark(&file);
    sync_entry(path)
}

/// Syncs the directory of a file, so that its name survives a loss of power. The file itself has to be synced before.
///
/// # Errors
/// If the directory cannot be opened, or its disk fails.
pub fn sync_entry(path: &Path) -> io::Result<()> {
    File::open(dir_of(path))?.sync_all()
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Length and SHA-256 of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// Its length.
    pub bytes: u64,
    /// The digest, in hex.
    pub sha256: String,
}

/// Hashes a file from its current offset to its end.
///
/// # Errors
/// If it cannot be read.
pub fn digest(mut file: &File) -> io::Result<ContentDigest> {
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(ContentDigest { bytes, sha256: hex::encode(hash.finalize()) }),
            read => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Opens a descriptor that only refers to the file.
#[cfg(target_os = "linux")]
const HELD: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HELD: OFlags = OFlags::RDONLY;

/// Opens a path without following a link anywhere on it.
#[cfg(target_os = "linux")]
fn open_without_links(real: &Path, flags: OFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, real, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(not(target_os = "linux"))]
fn open_without_links(real: &Path, flags: OFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    rustix::fs::open(real, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens without blocking, since the path may be a FIFO by now.
fn open_for_reading(real: &Path) -> rustix::io::Result<rustix::fd::OwnedFd> {
    open_without_links(real, OFlags::RDONLY | OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{HostPath, HostPathError, replace};

    #[test]
    fn a_replaced_file_is_complete_private_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let (record, taken) = (dir.path().join("record.json"), dir.path().join("taken"));
        for content in ["{}", "{\"a\":1}"] {
            replace(&record, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&record).unwrap(), content);
        }
        assert_eq!(record.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        // A file does not replace a directory.
        std::fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, b"x").is_err() && taken.is_dir());
        let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["record.json", "taken"]);
    }

    #[test]
    fn links_are_resolved_once_and_the_handle_stays_on_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let held = HostPath::open(&root.join("link")).unwrap();
        assert_eq!(held.real(), root.join("real"));
        std::fs::rename(root.join("real"), root.join("moved")).unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        assert!(!held.is_same_as(&root.join("real")).unwrap());
        assert!(held.is_same_as(&root.join("moved")).unwrap());
    }

    #[test]
    fn a_second_name_refers_to_the_opened_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (file, name) = (root.join("file"), root.join("name"));
        std::fs::write(&file, "text").unwrap();
        let held = HostPath::open(&file).unwrap();
        assert!(held.hard_link(&name).unwrap().is_same_as(&file).unwrap() && held.is_in_place());
        std::fs::remove_file(&name).unwrap();
        // Another file, and a link to the file itself, which has moved.
        std::fs::rename(&file, root.join("moved")).unwrap();
        std::fs::write(&file, "other").unwrap();
        assert!(held.hard_link(&name).is_err() && !held.is_in_place() && !name.exists());
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("moved", &file).unwrap();
        assert!(held.hard_link(&name).is_err() && !held.is_in_place());
        assert!(name.symlink_metadata().is_err(), "no link was created");
    }

    #[test]
    fn missing_special_or_unprintable_paths_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(HostPath::open(&dir.path().join("gone")), Err(HostPathError::NotFound(_))));
        assert!(matches!(HostPath::open("/dev/null".as_ref()), Err(HostPathError::Special(_))));
        let unusual = dir.path().join("a\nb");
        std::fs::create_dir(&unusual).unwrap();
        assert!(matches!(HostPath::open(&unusual), Err(HostPathError::Name(_))));
    }
}
