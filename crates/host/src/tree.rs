//! Directories of the host, traversed by descriptors: no link is followed, even if entries are replaced concurrently.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use coracle_types::Ids;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, flock, fstat,
    fsync, mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::fs::HostPath;
use super::temporary;

/// An open directory.
#[derive(Clone, Debug)]
pub struct DirHandle(Arc<OwnedFd>);

/// The kind of an entry; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device.
    Other,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// Its content.
    pub file: File,
    /// Its size.
    pub size: u64,
    /// Permission bits, including set-id bits.
    pub mode: u32,
    /// The identity of the file, and its last change.
    pub stamp: FileIdentity,
}

/// Identifies a version of a file: it changes when the file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
    status_changed: (i64, i64),
}

/// Maximum number of nested directories that a removal has open. Deeper ones are moved up first, since names can be
/// nested without limit.
const DEEPEST: usize = 64;

/// Maximum number of passes of a removal, each to that depth.
const MAX_ATTEMPTS: usize = 4096;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl DirHandle {
    /// Opens the directory of a path that was opened before.
    ///
    /// # Errors
    /// If it is not a directory or cannot be read.
    pub fn from_path(path: &HostPath) -> io::Result<Self> {
        Ok(Self::from(path.dir()?.into_std_file()))
    }

    /// Lists its entries, sorted by name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entries(&self) -> io::Result<Vec<(OsString, Node)>> {
        let mut found = Vec::new();
        self.visit(|name, node| {
            found.push((name, node));
            Ok(())
        })?;
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// Calls `each` for each entry as it is read, in no order, until `each` fails: for untrusted directories, which may
    /// be too large for memory.
    ///
    /// If it cannot be read, and errors of `each`. When it cannot be read, and those of `each`.
    pub fn visit(&self, mut each: impl FnMut(OsString, Node) -> io::Result<()>) -> io::Result<()> {
        for entry in Dir::new(openat(&*self.0, ".", DIR, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let node = match entry.file_type() {
                FileType::Unknown => self.entry_kind(&name)?,
                kind => Some(node(kind)),
            };
            if let Some(node) = node {
                each(name, node)?;
            }
        }
        Ok(())
    }

    /// The kind of an entry; `None` for a free name.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub fn entry_kind(&self, name: &OsStr) -> io::Result<Option<Node>> {
        match statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(node(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// If there is no directory of that name; a link is not followed.
    pub fn enter(&self, name: &OsStr) -> io::Result<Self> {
        plain(name)?;
        Ok(Self(Arc::new(openat(&*self.0, name, DIR, Mode::empty())?)))
    }

    /// Opens a subdirectory by several names.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter).
    pub fn descend<'a>(&self, parts: impl IntoIterator<Item = &'a OsStr>) -> io::Result<Self> {
        parts.into_iter().try_fold(self.clone(), |here, part| here.enter(part))
    }

    /// Opens a subdirectory, which is created if the name is free.
    ///
    /// # Errors
    /// If something else has the name.
    pub fn enter_or_make(&self, name: &OsStr) -> io::Result<Self> {
        plain(name)?;
        match mkdirat(&*self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a subdirectory.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; if it was replaced just after it was created.
    pub fn create_dir(&self, name: &OsStr) -> io::Result<Self> {
        plain(name)?;
        mkdirat(&*self.0, name, Mode::from_raw_mode(0o777))?;
        let made = self.enter(name)?;
        let is_mine = fstat(made.0.as_fd())?.st_uid == rustix::process::geteuid().as_raw();
        // It may be given to another user next, so it must not be one that another process moved there.
        if is_mine && made.entries()?.is_empty() { Ok(made) } else { Err(io::Error::other("it was replaced")) }
    }

    /// Opens a regular file for reading. Never blocks: a pipe is refused immediately.
    ///
    /// # Errors
    /// If there is no regular file with that name.
    pub fn open(&self, name: &OsStr) -> io::Result<OpenFile> {
        plain(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.0, name, flags, Mode::empty())?);
        let stat = fstat(&file)?;
        if node(FileType::from_raw_mode(stat.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        Ok(OpenFile { file, size, mode: stat.st_mode as u32 & 0o7777, stamp: FileIdentity::from_stat(&stat) })
    }

    /// The size of a regular file.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn size(&self, name: &OsStr) -> io::Result<u64> {
        let stat = statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if node(FileType::from_raw_mode(stat.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(u64::try_from(stat.st_size).unwrap_or_default())
    }

    /// The identity of a file; `None` for a free name.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub fn stamp(&self, name: &OsStr) -> io::Result<Option<FileIdentity>> {
        match statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileIdentity::from_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The target of a link, as written.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(OsString::from_vec(readlinkat(&*self.0, name, Vec::new())?.into_bytes()))
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    pub fn create_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        plain(name)?;
        Ok(symlinkat(target, &*self.0, name)?)
    }

    /// Replaces a file atomically: readers see its old content or its new one. File and name are synced to disk when
    /// this returns.
    ///
    /// # Errors
    /// If it cannot be written; then the temporary file is removed.
    pub fn replace(&self, name: &OsStr, mode: u32, content: &mut dyn io::Read) -> io::Result<()> {
        self.replace_as(name, (mode, None), content)
    }

    /// Replaces a file that belongs to `owner` before it gets its name, so that no other file can be mistaken for it.
    ///
    /// # Errors
    /// Those of [`replace`](Self::replace); if its owner cannot be changed.
    pub fn replace_as(
        &self,
        name: &OsStr,
        (mode, owner): (u32, Option<Ids>),
        content: &mut dyn io::Read,
    ) -> io::Result<()> {
        plain(name)?;
        let temporary = temporary::name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.0, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        temporary::mark_in_use(&file);
        let mut written = || {
            io::copy(content, &mut file)?;
            file.flush()?;
            owner.map_or(Ok(()), |it| set_owner(&file, it))?;
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            fsync(&file)?;
            io::Result::Ok(renameat(&*self.0, &temporary, &*self.0, name)?)
        };
        let done = written();
        if done.is_err() {
            let _ = unlinkat(&*self.0, &temporary, AtFlags::empty());
        }
        temporary::unmark(&file);
        done.and_then(|()| self.sync())
    }

    /// Syncs the names of its entries to disk.
    ///
    /// # Errors
    /// If its disk fails.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&*self.0)?)
    }

    /// Writes a small new file. File and name are synced to disk when this returns.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; if it cannot be written, and then it is removed.
    pub fn write_new(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        plain(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.0, name, flags, Mode::from_raw_mode(0o666))?);
        file.write_all(content).and_then(|()| file.sync_all()).inspect_err(|_| {
            let _ = unlinkat(&*self.0, name, AtFlags::empty());
        })?;
        self.sync()
    }

    /// Overwrites a file in place, for processes that have it open, if its content is still `was`. For small files,
    /// since a reader may see part of it. Returns whether it was overwritten and synced to disk.
    ///
    /// # Errors
    /// If there is no regular file of that name, or it cannot be written; then it has its old content.
    pub fn write_over(&self, name: &OsStr, was: &[u8], content: &[u8]) -> io::Result<bool> {
        plain(name)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.0, name, flags, Mode::empty())?);
        if node(FileType::from_raw_mode(fstat(&file)?.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut now = Vec::new();
        (&file).take(was.len() as u64 + 1).read_to_end(&mut now)?;
        if now != was {
            return Ok(false);
        }
        let mut overwrite = |content: &[u8]| {
            file.rewind()?;
            file.write_all(content)?;
            file.set_len(content.len() as u64)?;
            file.sync_all()
        };
        let done = overwrite(content);
        if done.is_err() {
            // The disk space of the old content is still allocated.
            let _ = overwrite(was);
        }
        done.map(|()| true)
    }

    /// Changes the owner of the directory, if necessary.
    ///
    /// # Errors
    /// If that is not permitted.
    pub fn set_owner(&self, to: Ids) -> io::Result<()> {
        set_owner(&*self.0, to)
    }

    /// Distinguishes a file from earlier and later ones of its name: its inode, and when that was created, since inode
    /// numbers are reused.
    ///
    /// # Errors
    /// If there is no file of that name.
    pub fn birth(&self, name: &OsStr) -> io::Result<(u64, i64, u32)> {
        birth(&self.0, name)
    }

    /// Removes a file.
    ///
    /// If it cannot be removed. When it cannot be removed.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        plain(name)?;
        Ok(unlinkat(&*self.0, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If it is not empty, or cannot be removed.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        plain(name)?;
        Ok(unlinkat(&*self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a directory with its content: the one that has the name now, even if the name is reused during the
    /// removal.
    ///
    /// # Errors
    /// If there is none of that name, or part of it cannot be removed.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        let top = self.enter(name)?;
        for _ in 0..MAX_ATTEMPTS {
            let done = top.clear(&top, 0).and_then(|()| self.remove_dir(name));
            match done {
                Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::DirectoryNotEmpty.into())
    }

    fn clear(&self, top: &Self, depth: usize) -> io::Result<()> {
        for entry in Dir::new(openat(&*self.0, ".", DIR, Mode::empty())?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match self.entry_kind(name)? {
                Some(Node::Dir) if depth == DEEPEST => {
                    renameat(&*self.0, name, &*top.0, temporary::name())?;
                }
                Some(Node::Dir) => {
                    self.enter(name)?.clear(top, depth + 1)?;
                    self.remove_dir(name)?;
                }
                Some(_) => self.remove(name)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Whether a file or directory of this user has not changed for so long, and is not locked by a process.
    pub(crate) fn is_abandoned(&self, name: &OsStr, age: Duration) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.0, name, flags, Mode::empty())?);
        let meta = file.metadata()?;
        let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(meta.ctime()).unwrap_or_default());
        let is_old = changed.elapsed().is_ok_and(|since| since >= age);
        let is_own = meta.uid() == rustix::process::geteuid().as_raw();
        Ok(is_own && is_old && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
    }

    /// Renames an entry to a free name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; if there is nothing to rename.
    pub fn rename(&self, name: &OsStr, to: &OsStr) -> io::Result<()> {
        plain(name)?;
        plain(to)?;
        match renameat_with(&*self.0, name, &*self.0, to, RenameFlags::NOREPLACE) {
            // Not every file system can check that by itself.
            Err(Errno::INVAL | Errno::NOSYS) if self.entry_kind(to)?.is_none() => {
                Ok(renameat(&*self.0, name, &*self.0, to)?)
            }
            Err(Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::AlreadyExists.into()),
            done => Ok(done?),
        }
    }

    /// Device and inode, which identify the directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(self.0.as_fd())?;
        Ok((stat.st_dev as u64, stat.st_ino))
    }
}

impl From<File> for DirHandle {
    fn from(file: File) -> Self {
        Self(Arc::new(file.into()))
    }
}

impl FileIdentity {
    #[expect(clippy::unnecessary_cast, reason = "these are of another type on other machines")]
    fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            status_changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

#[cfg(target_os = "linux")]
fn birth(dir: &OwnedFd, name: &OsStr) -> io::Result<(u64, i64, u32)> {
    use rustix::fs::{StatxFlags, statx};
    let it = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME)?;
    Ok((it.stx_ino, it.stx_btime.tv_sec, it.stx_btime.tv_nsec))
}

#[cfg(not(target_os = "linux"))]
fn birth(dir: &OwnedFd, name: &OsStr) -> io::Result<(u64, i64, u32)> {
    let it = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((it.st_ino, it.st_birthtime, u32::try_from(it.st_birthtime_nsec).unwrap_or(0)))
}

/// Changes the owner of an open file, if necessary.
fn set_owner(open: impl AsFd, to: Ids) -> io::Result<()> {
    let stat = fstat(&open)?;
    if (stat.st_uid, stat.st_gid) == (to.uid, to.gid) {
        return Ok(());
    }
    Ok(fchown(&open, Some(Uid::from_raw(to.uid)), Some(Gid::from_raw(to.gid)))?)
}

fn node(kind: FileType) -> Node {
    match kind {
        FileType::RegularFile => Node::File,
        FileType::Directory => Node::Dir,
        FileType::Symlink => Node::Link,
        _ => Node::Other,
    }
}

/// Accepts only a single name, so that no call leaves the directory.
fn plain(name: &OsStr) -> io::Result<()> {
    let bytes = name.as_bytes();
    let is_invalid =
        bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|it| matches!(it, b'/' | 0));
    if is_invalid { Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no name")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;

    fn tree(dir: &Path) -> DirHandle {
        DirHandle::from_path(&HostPath::open(dir).unwrap()).unwrap()
    }

    #[test]
    fn links_and_pipes_are_neither_entered_nor_opened() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("secret"), "s").unwrap();
        symlink(other.path(), dir.path().join("dir")).unwrap();
        symlink(other.path().join("secret"), dir.path().join("file")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let tree = tree(dir.path());
        assert!(tree.enter("dir".as_ref()).is_err() && tree.open("file".as_ref()).is_err());
        assert!(tree.open("pipe".as_ref()).is_err(), "it does not wait for a writer");
        assert!(tree.enter("..".as_ref()).is_err() && tree.open("dir/secret".as_ref()).is_err());
        assert!(tree.enter_or_make("dir".as_ref()).is_err());
        let found: Vec<_> = tree.entries().unwrap().into_iter().map(|it| it.1).collect();
        assert_eq!(found, [Node::Link, Node::Link, Node::Other]);
    }

    #[test]
    fn a_file_is_replaced_atomically_and_a_link_itself_is_replaced() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("target"), "unchanged").unwrap();
        symlink(other.path().join("target"), dir.path().join("a")).unwrap();
        tree(dir.path()).replace("a".as_ref(), 0o6755, &mut "new".as_bytes()).unwrap();
        let made = dir.path().join("a").symlink_metadata().unwrap();
        assert!(made.is_file() && made.permissions().mode() & 0o7777 == 0o755, "{made:?}");
        assert_eq!(std::fs::read(other.path().join("target")).unwrap(), b"unchanged");
        struct Fails;
        impl io::Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no"))
            }
        }
        assert!(tree(dir.path()).replace("a".as_ref(), 0o644, &mut Fails).is_err());
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"new");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn the_opened_directory_is_removed_and_not_one_that_gets_its_name() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(dir.path().join("here/old/a")).unwrap();
        std::fs::create_dir_all(other.path().join("old")).unwrap();
        std::fs::write(other.path().join("old/file"), "").unwrap();
        let held = tree(&dir.path().join("here"));
        // A link in the removed directory is removed, and not its target.
        symlink(other.path(), dir.path().join("here/old/a/link")).unwrap();
        std::fs::rename(dir.path().join("here"), dir.path().join("away")).unwrap();
        symlink(other.path(), dir.path().join("here")).unwrap();
        held.remove_all("old".as_ref()).unwrap();
        assert!(!dir.path().join("away/old").exists() && other.path().join("old/file").exists());
        assert!(tree(dir.path()).remove_all("here".as_ref()).is_err(), "a link is no directory");
        assert!(held.remove_all("..".as_ref()).is_err());
    }

    #[test]
    fn a_directory_is_removed_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let top = tree(dir.path());
        let mut here = top.create_dir("deep".as_ref()).unwrap();
        for _ in 0..DEEPEST * 3 {
            here.replace("file".as_ref(), 0o400, &mut "x".as_bytes()).unwrap();
            here = here.create_dir("d".as_ref()).unwrap();
        }
        top.remove_all("deep".as_ref()).unwrap();
        assert_eq!(top.entries().unwrap(), []);
    }

    #[test]
    fn a_taken_name_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let top = tree(dir.path());
        top.create_dir("a".as_ref()).unwrap();
        let taken = |it: io::Result<()>| it.unwrap_err().kind() == io::ErrorKind::AlreadyExists;
        assert!(taken(top.create_dir("a".as_ref()).map(drop)));
        top.create_dir("b".as_ref()).unwrap();
        assert!(taken(top.rename("b".as_ref(), "a".as_ref())), "an empty one, too");
        top.rename("b".as_ref(), "c".as_ref()).unwrap();
        assert_eq!(top.entry_kind("b".as_ref()).unwrap(), None);
    }

    #[test]
    fn a_file_with_other_content_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (file, top) = (dir.path().join("a"), tree(dir.path()));
        std::fs::write(&file, "was, and more").unwrap();
        assert!(!top.write_over("a".as_ref(), b"was", b"new").unwrap());
        std::fs::write(&file, "was").unwrap();
        assert!(top.write_over("a".as_ref(), b"was", b"n").unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"n");
    }
}
