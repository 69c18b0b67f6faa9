//! Handles the host's file requests.
//!
//! All of this code blocks, so it must run on a thread for blocking calls.
//!
//! **Invariant:** the kernel decides what the caller's user may do: each call runs with the ids of that user.
//! **Invariant:** a path is resolved once, beneath the root, to a descriptor; checks and changes use that descriptor.
//! Swapping names concurrently causes an error or a harmless reply.
//! **Invariant:** no file in `/proc`, `/sys` and `/.coracle` is opened, listed or changed, and no device, pipe or
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
use crate::atomic::{Leftovers, rename_new};
use crate::os::as_user::as_user;
use crate::os::machine::Ids;
use crate::protocol::{ErrorCode, FileEntry, FileRef, RpcError, ScanRequest, UserSpec};

/// The files beneath a root directory.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    leftovers: Leftovers,
}

impl Files {
    ///
    /// # Errors
    /// Fails if the root directory cannot be opened.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: Root::open(root)?, leftovers: Leftovers::of_earlier_guests() })
    }

    /// Describes the entry at a path.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], [`ErrorCode::Denied`], and errors of reading.
    pub(crate) fn stat(&self, ids: &Ids, at: &FileRef) -> Result<FileEntry, RpcError> {
        let requested = RequestedPath::existing(at)?;
        act(ids, || {
            let found = self.root.find(&requested, FinalLink::from_file_ref(at))?;
            entry(requested.name().as_bytes(), &found).map_err(|it| requested.error(it))
        })
    }

    /// Opens a regular file for reading, at that byte offset.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] if it is not a regular file, and as for [`Files::stat`].
    pub(crate) fn get(&self, ids: &Ids, at: &FileRef, offset: u64) -> Result<(FileEntry, File), RpcError> {
        let requested = RequestedPath::existing(at)?;
        act(ids, || {
            let found = self.root.find(&requested, FinalLink::from_file_ref(at))?;
            let entry = entry(requested.name().as_bytes(), &found).map_err(|it| requested.error(it))?;
            requested.expect_file(entry.kind)?;
            // A lease held by a process inside must not block the guest: hence `NONBLOCK`, which regular files
            // otherwise ignore.
            let fd = reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK).map_err(|it| requested.error(it))?;
            let mut file = File::from(fd);
            let positioned = file.seek(SeekFrom::Start(offset));
            positioned.map_err(|_| RpcError::new(ErrorCode::Invalid, format!("invalid offset {offset}")))?;
            Ok((entry, file))
        })
    }

    /// Starts to replace a file. The bytes that [`AtomicWriter`] gets appear at the path only when it is committed.
    ///
    /// An existing regular file retains its permission bits, unless `exact`, and its owner if the caller may give files
    /// away. With `follow`, a link at the end of the path is followed and its target is written; otherwise the link is
    /// replaced.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] without `replace`; [`ErrorCode::WrongKind`] for a directory or a special file; and as for
    /// [`Files::stat`].
    pub(crate) fn put(&self, ids: &Ids, at: &FileRef, options: WriteOptions) -> Result<AtomicWriter, RpcError> {
        let requested = RequestedPath::to_create(at)?;
        act(ids, || {
            if requested.path().ends_with('/') {
                return Err(requested.wrong_kind("is a path of a directory"));
            }
            let location = self.root.locate(&requested, FinalLink::from_file_ref(at), options.parents)?;
            self.leftovers.clear(&location.dir);
            AtomicWriter::begin(ids.clone(), requested.clone(), location, options)
        })
    }

    /// Starts to scan a directory, for files that contain one of the values if some are given.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] if it is not a directory, and as for [`Files::stat`].
    pub(crate) fn scan(&self, walk: &ScanRequest, matcher: Option<SecretMatcher>) -> Result<Scan, RpcError> {
        let at = FileRef { user: UserSpec::Ids { uid: 0, gid: None }, path: walk.root.clone(), follow: false };
        let requested = RequestedPath::existing(&at)?;
        let found = self.root.find(&requested, FinalLink::Itself)?;
        let inside = self.root.inside(&requested, found.as_fd())?;
        let stat = fstat(&found).map_err(|it| requested.error(it))?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(requested.wrong_kind("is not a directory"));
        }
        Scan::begin(ScanRoot { dir: &found, path: requested.path(), inside }, walk, matcher)
            .map_err(|it| requested.error(it))
    }

    /// Lists the entries of a directory by name, at most `limit` or 100,000, and returns whether there are more.
    ///
    /// # Errors
    /// [`ErrorCode::WrongKind`] if it is not a directory, and as for [`Files::stat`].
    pub(crate) fn list(&self, ids: &Ids, at: &FileRef, limit: u64) -> Result<(Vec<FileEntry>, bool), RpcError> {
        let requested = RequestedPath::existing(at)?;
        act(ids, || {
            let found = self.root.find(&requested, FinalLink::from_file_ref(at))?;
            let stat = fstat(&found).map_err(|it| requested.error(it))?;
            if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                return Err(requested.wrong_kind("is not a directory"));
            }
            list::list(&found, usize::try_from(limit).unwrap_or(usize::MAX)).map_err(|it| requested.error(it))
        })
    }

    /// Creates a directory with exactly these permission bits. An existing one does not change.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] if it exists and `parents` is not set; [`ErrorCode::WrongKind`] if the entry is not a directory; and
    /// as for [`Files::stat`].
    pub(crate) fn make_dir(&self, ids: &Ids, at: &FileRef, mode: u32, parents: bool) -> Result<FileEntry, RpcError> {
        let requested = RequestedPath::to_create(at)?;
        act(ids, || match self.root.find(&requested, FinalLink::from_file_ref(at)) {
            Ok(_) if !parents => Err(requested.exists()),
            Ok(found) => {
                let entry = entry(requested.name().as_bytes(), &found).map_err(|it| requested.error(it))?;
                requested.expect_dir(entry.kind).map(|()| entry)
            }
            Err(error) if error.code == ErrorCode::NotFound => self.new_dir(ids, &requested, mode, parents),
            Err(error) => Err(error),
        })
    }

    fn new_dir(&self, ids: &Ids, requested: &RequestedPath, mode: u32, parents: bool) -> Result<FileEntry, RpcError> {
        let location = self.root.locate(requested, FinalLink::Itself, parents)?;
        let (mode, error) = (permissions(mode), |it| requested.error(it));
        mkdirat(&location.dir, &location.name, mode | Mode::RWXU).map_err(error)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&location.dir, &location.name, flags, Mode::empty()).map_err(error)?;
        // The name may refer to another directory by now; one of another user must not be changed.
        if fstat(&made).map_err(error)?.st_uid != ids.uid {
            return Err(requested.denied("was replaced concurrently"));
        }
        fchmod(&made, mode).map_err(error)?;
        entry(requested.name().as_bytes(), &made).map_err(error)
    }

    /// Creates a symbolic link with any target. With `replace` it atomically replaces a file or a link.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] without `replace`; [`ErrorCode::WrongKind`] if a directory or a special file exists;
    /// [`ErrorCode::Invalid`] for an invalid target; and as for [`Files::stat`].
    pub(crate) fn make_link(
        &self,
        ids: &Ids,
        at: &FileRef,
        target: &str,
        replace: bool,
    ) -> Result<FileEntry, RpcError> {
        let requested = RequestedPath::to_create(at)?;
        link::check(target)?;
        act(ids, || {
            if requested.path().ends_with('/') {
                return Err(requested.wrong_kind("is a path of a directory"));
            }
            let location = self.root.locate(&requested, FinalLink::Itself, false)?;
            self.leftovers.clear(&location.dir);
            link::create(&requested, &location, target, replace)?;
            let made = self.root.find_in(&requested, &location)?;
            entry(requested.name().as_bytes(), &made).map_err(|it| requested.error(it))
        })
    }

    /// Renames an entry within its directory. A link is not followed.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] if the name is taken; [`ErrorCode::Invalid`] for an invalid name; and as for [`Files::stat`].
    pub(crate) fn rename(&self, ids: &Ids, at: &FileRef, name: &str) -> Result<FileEntry, RpcError> {
        let requested = RequestedPath::existing(at)?;
        let renamed = requested.sibling(name)?;
        act(ids, || {
            let location = self.root.locate(&requested, FinalLink::Itself, false)?;
            self.root.find_in(&requested, &location)?;
            let to = self.root.sibling(&renamed, location.dir.as_fd())?;
            rename_new(&location.dir, &location.name, &to).map_err(|errno| match errno {
                Errno::EXIST | Errno::NOTEMPTY => renamed.exists(),
                errno => requested.error(errno),
            })?;
            let found = self.root.find_in(&renamed, &ParentAndName { dir: location.dir, name: to })?;
            entry(renamed.name().as_bytes(), &found).map_err(|it| renamed.error(it))
        })
    }

    /// Sets the times of a tree and of entries in it, in seconds. Errors of single entries are ignored.
    ///
    /// # Errors
    /// Fails if this process cannot act as the caller's user.
    pub(crate) fn set_times(&self, ids: &Ids, at: &FileRef, changed: &[(String, i64)]) -> Result<(), RpcError> {
        act(ids, || {
            for (below, seconds) in changed {
                let path = if below.is_empty() { at.path.clone() } else { format!("{}/{below}", at.path) };
                let path = RequestedPath::existing(&FileRef { path, ..at.clone() });
                let Ok(location) = path.and_then(|path| self.root.locate(&path, FinalLink::Itself, false)) else {
                    continue;
                };
                let time = Timespec { tv_sec: *seconds, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                // Only the owner may set the time.
                let _ = utimensat(&location.dir, location.name.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW);
            }
            Ok(())
        })
    }

    /// Removes a file or directory. A link itself is removed, regardless of `follow`.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`] without `recursive` for a directory that is not empty; and as for [`Files::stat`].
    pub(crate) fn remove(&self, ids: &Ids, at: &FileRef, recursive: bool) -> Result<(), RpcError> {
        let requested = RequestedPath::existing(at)?;
        act(ids, || {
            let location = self.root.locate(&requested, FinalLink::Itself, false)?;
            self.root.find_in(&requested, &location)?;
            remove::remove(&location.dir, &location.name, recursive).map_err(|it| requested.error(it))
        })
    }
}

fn act<T>(ids: &Ids, act: impl FnOnce() -> Result<T, RpcError>) -> Result<T, RpcError> {
    as_user(ids, act).unwrap_or_else(|errno| {
        Err(RpcError::new(ErrorCode::Denied, format!("cannot act as user {}: {}", ids.uid, error::words(errno))))
    })
}
