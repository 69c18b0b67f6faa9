//! Directories of the host, gone through by descriptors: no link on the way is followed, whatever somebody swaps.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::fs::{
    Gid, Uid, chownat, fchmod, fchown, fstat, fsync, mkdirat, openat, readlinkat, renameat, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::fs::HostPath;
use crate::{Ids, random_hex};

/// A directory that is held open.
#[derive(Clone, Debug)]
pub struct Tree(Arc<OwnedFd>);

/// What a name stands for, itself.
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
pub struct Opened {
    /// Its content.
    pub file: File,
    /// Bytes.
    pub size: u64,
    /// Permission bits, with those for set-id.
    pub mode: u32,
    /// Which file this is, and since when.
    pub stamp: Stamp,
}

/// What is another one when a file was written or exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
    status_changed: (i64, i64),
}

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Tree {
    /// A directory that was opened before.
    ///
    /// # Errors
    /// When it is none or may not be read.
    pub fn of(path: &HostPath) -> io::Result<Self> {
        Ok(Self::from(path.dir()?.into_std_file()))
    }

    /// What is in it, sorted by name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn entries(&self) -> io::Result<Vec<(OsString, Node)>> {
        let mut found = Vec::new();
        for entry in Dir::new(openat(&*self.0, ".", DIR, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let node = match entry.file_type() {
                FileType::Unknown => self.look(&name)?,
                kind => Some(node(kind)),
            };
            found.extend(node.map(|it| (name, it)));
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// What a name stands for; nothing when it is free.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Node>> {
        match statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(node(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A directory in it.
    ///
    /// # Errors
    /// When there is none of that name; a link is none.
    pub fn enter(&self, name: &OsStr) -> io::Result<Self> {
        plain(name)?;
        Ok(Self(Arc::new(openat(&*self.0, name, DIR, Mode::empty())?)))
    }

    /// A directory below it, part by part.
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    pub fn descend<'a>(&self, parts: impl IntoIterator<Item = &'a OsStr>) -> io::Result<Self> {
        parts.into_iter().try_fold(self.clone(), |here, part| here.enter(part))
    }

    /// A directory in it, made when the name is free.
    ///
    /// # Errors
    /// When something else has the name.
    pub fn enter_or_make(&self, name: &OsStr) -> io::Result<Self> {
        plain(name)?;
        match mkdirat(&*self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A regular file in it, for reading. Nobody is waited for: a pipe is refused at once.
    ///
    /// # Errors
    /// When there is no regular file of that name.
    pub fn open(&self, name: &OsStr) -> io::Result<Opened> {
        plain(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.0, name, flags, Mode::empty())?);
        let stat = fstat(&file)?;
        if node(FileType::from_raw_mode(stat.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        Ok(Opened { file, size, mode: stat.st_mode as u32 & 0o7777, stamp: Stamp::of(&stat) })
    }

    /// Bytes of a regular file in it.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn size(&self, name: &OsStr) -> io::Result<u64> {
        let stat = statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if node(FileType::from_raw_mode(stat.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(u64::try_from(stat.st_size).unwrap_or_default())
    }

    /// Which file has a name; nothing when it is free.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn stamp(&self, name: &OsStr) -> io::Result<Option<Stamp>> {
        match statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What a link says.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(OsString::from_vec(readlinkat(&*self.0, name, Vec::new())?.into_bytes()))
    }

    /// Writes a file whole, in the place of one that is there: it has its old content or its new one.
    ///
    /// # Errors
    /// When it cannot be written; then nothing is left of it.
    pub fn replace(&self, name: &OsStr, mode: u32, content: &mut dyn io::Read) -> io::Result<()> {
        plain(name)?;
        let temporary = format!(".coracle-{}.tmp", random_hex::<8>());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.0, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let mut written = || {
            io::copy(content, &mut file)?;
            file.flush()?;
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            fsync(&file)?;
            io::Result::Ok(renameat(&*self.0, &temporary, &*self.0, name)?)
        };
        let done = written();
        if done.is_err() {
            let _ = unlinkat(&*self.0, &temporary, AtFlags::empty());
        }
        done
    }

    /// Writes a file in the place where it lies, for those who hold that very file. Small ones, since somebody may read half.
    ///
    /// # Errors
    /// When there is no regular file of that name, or it cannot be written.
    pub fn write_over(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        plain(name)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.0, name, flags, Mode::empty())?);
        if node(FileType::from_raw_mode(fstat(&file)?.st_mode)) != Node::File {
            return Err(io::Error::other("it is no regular file"));
        }
        file.write_all(content)?;
        file.set_len(content.len() as u64)?;
        file.sync_all()
    }

    /// Gives the directory to somebody, if it is another's.
    ///
    /// # Errors
    /// When that may not be.
    pub fn give(&self, to: Ids) -> io::Result<()> {
        let stat = fstat(self.0.as_fd())?;
        if (stat.st_uid, stat.st_gid) == (to.uid, to.gid) {
            return Ok(());
        }
        Ok(fchown(&*self.0, Some(Uid::from_raw(to.uid)), Some(Gid::from_raw(to.gid)))?)
    }

    /// Gives something in it to somebody, if it is another's: a link itself.
    ///
    /// # Errors
    /// When that may not be.
    pub fn give_file(&self, name: &OsStr, to: Ids) -> io::Result<()> {
        plain(name)?;
        let stat = statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (stat.st_uid, stat.st_gid) == (to.uid, to.gid) {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
        Ok(chownat(&*self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// What tells what has a name, itself, from whatever had it before or has it later: its inode, and when that was made,
    /// since numbers of inodes come again.
    ///
    /// # Errors
    /// When nothing has it.
    pub fn birth(&self, name: &OsStr) -> io::Result<(u64, i64, u32)> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let it = statx(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        Ok((it.stx_ino, it.stx_btime.tv_sec, it.stx_btime.tv_nsec))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        plain(name)?;
        Ok(unlinkat(&*self.0, name, AtFlags::empty())?)
    }

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// When it is not, or cannot be removed.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        plain(name)?;
        Ok(unlinkat(&*self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Device and inode: the same for the same directory.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(self.0.as_fd())?;
        Ok((stat.st_dev as u64, stat.st_ino))
    }
}

impl From<File> for Tree {
    fn from(file: File) -> Self {
        Self(Arc::new(file.into()))
    }
}

impl Stamp {
    #[expect(clippy::unnecessary_cast, reason = "these are of another type on other machines")]
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            status_changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

fn node(kind: FileType) -> Node {
    match kind {
        FileType::RegularFile => Node::File,
        FileType::Directory => Node::Dir,
        FileType::Symlink => Node::Link,
        _ => Node::Other,
    }
}

/// One name, so that no call leads anywhere else.
fn plain(name: &OsStr) -> io::Result<()> {
    let bytes = name.as_bytes();
    let odd = bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|it| matches!(it, b'/' | 0));
    if odd { Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no name")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;

    fn tree(dir: &Path) -> Tree {
        Tree::of(&HostPath::open(dir).unwrap()).unwrap()
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
        assert!(tree.open("pipe".as_ref()).is_err(), "nobody waits for a writer");
        assert!(tree.enter("..".as_ref()).is_err() && tree.open("dir/secret".as_ref()).is_err());
        assert!(tree.enter_or_make("dir".as_ref()).is_err());
        let found: Vec<_> = tree.entries().unwrap().into_iter().map(|it| it.1).collect();
        assert_eq!(found, [Node::Link, Node::Link, Node::Other]);
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_gives_way_itself() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("kept"), "kept").unwrap();
        symlink(other.path().join("kept"), dir.path().join("a")).unwrap();
        tree(dir.path()).replace("a".as_ref(), 0o6755, &mut "new".as_bytes()).unwrap();
        let made = dir.path().join("a").symlink_metadata().unwrap();
        assert!(made.is_file() && made.permissions().mode() & 0o7777 == 0o755, "{made:?}");
        assert_eq!(std::fs::read(other.path().join("kept")).unwrap(), b"kept");
        struct Fails;
        impl io::Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no"))
            }
        }
        assert!(tree(dir.path()).replace("a".as_ref(), 0o644, &mut Fails).is_err());
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"new");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left over");
    }
}
