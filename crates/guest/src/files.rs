//! File requests of the host.
//!
//! Everything here blocks, and belongs on a thread that may.
//!
//! **Invariant:** the kernel decides what the caller's user may: each call runs with the ids of that user.
//! **Invariant:** a path is resolved once, beneath the root, to a descriptor; checks and changes use that descriptor.
//! Swapping names concurrently leads to an error or a harmless answer.
//! **Invariant:** nothing of `/proc`, `/sys` and `/.coracle` is opened, listed or changed, and no device, pipe or
//! socket is opened.

pub(crate) mod dir;
mod entry;
pub(crate) mod error;
pub(crate) mod gitignore;
mod link;
mod list;
mod parent;
mod put;
mod remove;
mod requested_path;
pub(crate) mod resolve;
mod scan;
mod secret_matcher;
#[cfg(test)]
mod tests;
pub(crate) mod walk;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, fstat, mkdirat, openat, utimensat};
use rustix::io::Errno;

use self::entry::{entry, permissions};
pub(crate) use self::parent::{FinalLink, MAX_DISTURBED, enter, reopen};
use self::parent::{ParentAndName, Root};
pub(crate) use self::put::{AtomicWriter, WriteOptions};
pub(crate) use self::remove::TreeRemoval as Removal;
use self::requested_path::RequestedPath;
pub(crate) use self::scan::Scan;
use self::scan::ScanRoot;
pub(crate) use self::secret_matcher::SecretMatcher;
use crate::os::as_user::as_user;
use crate::os::atomic::{Leftovers, rename_new};
use crate::os::machine::Ids;
use crate::protocol::{ErrorCode, FileEntry, FileRef, RpcError, ScanRequest, UserSpec};

/// The files beneath a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    leftovers: Leftovers,
}

impl Files {
    /// Opens the files beneath that directory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: Root::open(root)?, leftovers: Leftovers::of_earlier_guests() })
    }

    /// Describes the entry at a path.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], [`ErrorCode::Denied`], and what reading can come to.
    pub(crate) fn stat(&self, ids: &Ids, at: &FileRef) -> Result<FileEntry, RpcError> {
        let asked = RequestedPath::there(at)?;
        act(ids, || {
            let there = self.root.find(&asked, FinalLink::from_file_ref(at))?;
            entry(asked.name().as_bytes(), &there).map_err(|it| asked.fault(it))
        })
    }

    /// A regular file, open for reading from that byte on.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] for anything that is no regular file, and as for [`Files::stat`].
    pub(crate) fn get(&self, ids: &Ids, at: &FileRef, offset: u64) -> Result<(FileEntry, File), RpcError> {
        let asked = RequestedPath::there(at)?;
        act(ids, || {
            let there = self.root.find(&asked, FinalLink::from_file_ref(at))?;
            let entry = entry(asked.name().as_bytes(), &there).map_err(|it| asked.fault(it))?;
            asked.expect_file(entry.kind)?;
            // A lease held by a process inside must not block the guest: hence `NONBLOCK`, which regular files
            // otherwise ignore.
            let fd = reopen(&there, OFlags::RDONLY | OFlags::NONBLOCK).map_err(|it| asked.fault(it))?;
            let mut file = File::from(fd);
            let positioned = file.seek(SeekFrom::Start(offset));
            positioned.map_err(|_| RpcError::new(ErrorCode::Invalid, format!("no file has a byte {offset}")))?;
            Ok((entry, file))
        })
    }

    /// Begins to write a file whole. What [`AtomicWriter`] gets appears at the path when it is committed, and not before.
    ///
    /// A regular file that is there keeps its permission bits, unless `exact`, and its owner where the caller may give
    /// files away. With `follow` a link at the end of the path stays, and what it leads to is written; else the link is
    /// replaced.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] without `replace`; [`ErrorCode::WrongKind`] for a directory or a special file; and as for
    /// [`Files::stat`].
    pub(crate) fn put(&self, ids: &Ids, at: &FileRef, how: WriteOptions) -> Result<AtomicWriter, RpcError> {
        let asked = RequestedPath::made(at)?;
        act(ids, || {
            if asked.path().ends_with('/') {
                return Err(asked.wrong("names a directory"));
            }
            let spot = self.root.spot(&asked, FinalLink::from_file_ref(at), how.parents)?;
            self.leftovers.clear(&spot.dir);
            AtomicWriter::begin(ids.clone(), asked.clone(), spot, how)
        })
    }

    /// Begins to go through what is below a directory, for files that hold one of these values if some are given.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] for what is no directory, and as for [`Files::stat`].
    pub(crate) fn scan(&self, walk: &ScanRequest, sought: Option<SecretMatcher>) -> Result<Scan, RpcError> {
        let at = FileRef { user: UserSpec::Ids { uid: 0, gid: None }, path: walk.root.clone(), follow: false };
        let asked = RequestedPath::there(&at)?;
        let there = self.root.find(&asked, FinalLink::Itself)?;
        let inside = self.root.inside(&asked, there.as_fd())?;
        let stat = fstat(&there).map_err(|it| asked.fault(it))?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(asked.wrong("is no directory"));
        }
        Scan::begin(ScanRoot { dir: &there, path: asked.path(), inside }, walk, sought).map_err(|it| asked.fault(it))
    }

    /// The entries of a directory by name, at most `limit` or 100,000, and whether there are more.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] for what is no directory, and as for [`Files::stat`].
    pub(crate) fn list(&self, ids: &Ids, at: &FileRef, limit: u64) -> Result<(Vec<FileEntry>, bool), RpcError> {
        let asked = RequestedPath::there(at)?;
        act(ids, || {
            let there = self.root.find(&asked, FinalLink::from_file_ref(at))?;
            let stat = fstat(&there).map_err(|it| asked.fault(it))?;
            if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                return Err(asked.wrong("is no directory"));
            }
            list::list(&there, usize::try_from(limit).unwrap_or(usize::MAX)).map_err(|it| asked.fault(it))
        })
    }

    /// Makes a directory with exactly these permission bits. One that is there already stays as it is.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] when it is there and `parents` is not set; [`ErrorCode::WrongKind`] when something else is;
    /// and as for [`Files::stat`].
    pub(crate) fn make_dir(&self, ids: &Ids, at: &FileRef, mode: u32, parents: bool) -> Result<FileEntry, RpcError> {
        let asked = RequestedPath::made(at)?;
        act(ids, || match self.root.find(&asked, FinalLink::from_file_ref(at)) {
            Ok(_) if !parents => Err(asked.exists()),
            Ok(there) => {
                let entry = entry(asked.name().as_bytes(), &there).map_err(|it| asked.fault(it))?;
                asked.expect_dir(entry.kind).map(|()| entry)
            }
            Err(fault) if fault.code == ErrorCode::NotFound => self.new_dir(ids, &asked, mode, parents),
            Err(fault) => Err(fault),
        })
    }

    fn new_dir(&self, ids: &Ids, asked: &RequestedPath, mode: u32, parents: bool) -> Result<FileEntry, RpcError> {
        let spot = self.root.spot(asked, FinalLink::Itself, parents)?;
        let (mode, fault) = (permissions(mode), |it| asked.fault(it));
        mkdirat(&spot.dir, &spot.name, mode | Mode::RWXU).map_err(fault)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&spot.dir, &spot.name, flags, Mode::empty()).map_err(fault)?;
        // Its name may lead to another directory by now; one of another user's is not ours to change.
        if fstat(&made).map_err(fault)?.st_uid != ids.uid {
            return Err(asked.denied("was replaced meanwhile"));
        }
        fchmod(&made, mode).map_err(fault)?;
        entry(asked.name().as_bytes(), &made).map_err(fault)
    }

    /// Makes a symbolic link. What it leads to is not looked at. With `replace` a file or a link gives way to it at once.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] without `replace`; [`ErrorCode::WrongKind`] for a directory or a special file that is there;
    /// [`ErrorCode::Invalid`] for what no link can say; and as for [`Files::stat`].
    pub(crate) fn make_link(
        &self,
        ids: &Ids,
        at: &FileRef,
        target: &str,
        replace: bool,
    ) -> Result<FileEntry, RpcError> {
        let asked = RequestedPath::made(at)?;
        link::check(target)?;
        act(ids, || {
            if asked.path().ends_with('/') {
                return Err(asked.wrong("names a directory"));
            }
            let spot = self.root.spot(&asked, FinalLink::Itself, false)?;
            self.leftovers.clear(&spot.dir);
            link::create(&asked, &spot, target, replace)?;
            let made = self.root.find_in(&asked, &spot)?;
            entry(asked.name().as_bytes(), &made).map_err(|it| asked.fault(it))
        })
    }

    /// Gives what is at a path another name in the same directory. A link is renamed itself.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] when the name is taken; [`ErrorCode::Invalid`] for what is no name; and as for
    /// [`Files::stat`].
    pub(crate) fn rename(&self, ids: &Ids, at: &FileRef, name: &str) -> Result<FileEntry, RpcError> {
        let asked = RequestedPath::there(at)?;
        let renamed = asked.beside(name)?;
        act(ids, || {
            let spot = self.root.spot(&asked, FinalLink::Itself, false)?;
            self.root.find_in(&asked, &spot)?;
            let to = self.root.beside(&renamed, spot.dir.as_fd())?;
            rename_new(&spot.dir, &spot.name, &to).map_err(|errno| match errno {
                Errno::EXIST | Errno::NOTEMPTY => renamed.exists(),
                errno => asked.fault(errno),
            })?;
            let there = self.root.find_in(&renamed, &ParentAndName { dir: spot.dir, name: to })?;
            entry(renamed.name().as_bytes(), &there).map_err(|it| renamed.fault(it))
        })
    }

    /// Sets the times of a tree and of what is in it, in seconds. What cannot be changed keeps its own.
    ///
    /// # Errors
    /// When the caller's user cannot be taken on.
    pub(crate) fn set_times(&self, ids: &Ids, at: &FileRef, changed: &[(String, i64)]) -> Result<(), RpcError> {
        act(ids, || {
            for (below, seconds) in changed {
                let path = if below.is_empty() { at.path.clone() } else { format!("{}/{below}", at.path) };
                let path = RequestedPath::there(&FileRef { path, ..at.clone() });
                let Ok(spot) = path.and_then(|path| self.root.spot(&path, FinalLink::Itself, false)) else {
                    continue;
                };
                let time = Timespec { tv_sec: *seconds, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                // One of another user's keeps its time.
                let _ = utimensat(&spot.dir, spot.name.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW);
            }
            Ok(())
        })
    }

    /// Removes a file or directory. A link is removed itself, whatever the value of `follow`.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] for a directory that is not empty without `recursive`; and as for [`Files::stat`].
    pub(crate) fn remove(&self, ids: &Ids, at: &FileRef, recursive: bool) -> Result<(), RpcError> {
        let asked = RequestedPath::there(at)?;
        act(ids, || {
            let spot = self.root.spot(&asked, FinalLink::Itself, false)?;
            self.root.find_in(&asked, &spot)?;
            remove::remove(&spot.dir, &spot.name, recursive).map_err(|it| asked.fault(it))
        })
    }
}

fn act<T>(ids: &Ids, act: impl FnOnce() -> Result<T, RpcError>) -> Result<T, RpcError> {
    as_user(ids, act).unwrap_or_else(|errno| {
        Err(RpcError::new(ErrorCode::Denied, format!("cannot act as user {}: {}", ids.uid, error::words(errno))))
    })
}
