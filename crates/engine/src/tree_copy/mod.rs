//! Copies an upper directory in two passes. The second one skips what has not changed since the first.

mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode, Stat, linkat, mkdirat, statat, unlinkat, utimensat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use self::file::times;
pub(crate) use self::file::{EntryAt, FileCopy, copy_attributes, has_same_attributes, has_same_content};
use crate::store::{is_dir, names, open_beneath};

/// A file that changed this shortly before it was copied may have changed again during the copy with the same change time:
/// kernels record it with a resolution of up to 10 ms.
const SETTLING: Duration = Duration::from_millis(50);

/// The source and the destination of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyRequest<'a> {
    pub(crate) from: &'a Path,
    /// An empty directory, before the first pass.
    pub(crate) to: &'a Path,
    /// Absolute paths inside, which are omitted with everything below them.
    pub(crate) left_out: &'a [&'a str],
}

/// Whether files change while they are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyPass {
    /// They may change. Files that cannot be copied now are left to the next pass.
    Running,
    /// They may change, since no control group can freeze the container. Files that are removed meanwhile are not copied.
    Unfrozen,
    Still,
}

/// The result of the first pass.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CopyState {
    /// Copied files, sorted by path, so that the next pass, for which processes wait, has nothing to prepare.
    copied: Vec<(Vec<u8>, Fingerprint)>,
    /// The number of copied names of each inode, sorted by inode.
    names: Vec<(u64, u64)>,
    /// Whether the first pass has run.
    begun: bool,
}

impl CopyState {
    fn new(mut copied: Vec<(Vec<u8>, Fingerprint)>) -> Self {
        copied.sort_by(|one, other| one.0.cmp(&other.0));
        let mut names = BTreeMap::new();
        for (_, fingerprint) in &copied {
            *names.entry(fingerprint.inode).or_default() += 1;
        }
        Self { copied, names: names.into_iter().collect(), begun: true }
    }

    fn fingerprint(&self, path: &[u8]) -> Option<Fingerprint> {
        let found = self.copied.binary_search_by(|it| it.0.as_slice().cmp(path));
        found.ok().map(|at| self.copied[at].1)
    }

    fn names_of(&self, inode: u64) -> u64 {
        self.names.binary_search_by_key(&inode, |it| it.0).map_or(0, |at| self.names[at].1)
    }
}

/// Identifies a state of an entry: it differs after each change of the entry, its content or its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    inode: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
    /// A long write changes the time at its start only.
    #[serde(default)]
    size: i64,
}

impl Fingerprint {
    #[expect(clippy::unnecessary_cast, reason = "of another type on other machines")]
    pub(crate) fn new(stat: &Stat) -> Self {
        Self { inode: stat.st_ino, changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64), size: stat.st_size }
    }

    /// Whether a change at `time` would have resulted in another change time.
    pub(crate) fn is_settled_at(self, time: Duration) -> bool {
        let changed =
            Duration::new(u64::try_from(self.changed.0).unwrap_or(0), u32::try_from(self.changed.1).unwrap_or(0));
        changed < time.saturating_sub(SETTLING)
    }
}

/// Runs one pass, as the owner of the files.
pub(crate) fn copy_tree(request: &CopyRequest<'_>, pass: CopyPass, before: CopyState) -> io::Result<CopyState> {
    let mut it = TreeCopy::new(request, pass, before)?;
    while let Some(path) = it.pending.pop() {
        let done = it.directory(&path);
        it.forgive(done)?;
    }
    it.finish_directories()?;
    Ok(CopyState::new(it.copied))
}

struct TreeCopy<'a> {
    from: OwnedFd,
    to: OwnedFd,
    left_out: &'a [&'a str],
    pass: CopyPass,
    before: CopyState,
    began: Duration,
    files: FileCopy,
    /// The first name of each file with several names, and its state when it was copied.
    links: HashMap<u64, (Vec<u8>, Fingerprint)>,
    pending: Vec<Vec<u8>>,
    directories: Vec<(Vec<u8>, Stat)>,
    /// Directories of the copy whose entries this pass changed.
    touched: HashSet<Vec<u8>>,
    copied: Vec<(Vec<u8>, Fingerprint)>,
}

/// A directory and its copy.
struct DirectoryPair<'a> {
    path: &'a [u8],
    from: OwnedFd,
    to: OwnedFd,
}

impl<'a> TreeCopy<'a> {
    fn new(request: &CopyRequest<'a>, pass: CopyPass, before: CopyState) -> io::Result<Self> {
        let from: OwnedFd = File::open(request.from)?.into();
        let root = statat(&from, c".", AtFlags::SYMLINK_NOFOLLOW)?;
        let to: OwnedFd = File::open(request.to)?.into();
        Ok(Self {
            from,
            files: FileCopy::new(&to)?,
            to,
            left_out: request.left_out,
            pass,
            before,
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            links: HashMap::new(),
            pending: vec![Vec::new()],
            directories: vec![(Vec::new(), root)],
            touched: HashSet::new(),
            copied: Vec::new(),
        })
    }

    /// Ignores errors that are due to files that were removed or replaced during the copy.
    fn forgive(&self, done: io::Result<()>) -> io::Result<()> {
        match (self.pass, done) {
            // The next pass would not have space, either.
            (CopyPass::Running, Err(err)) if err.kind() == io::ErrorKind::StorageFull => Err(err),
            (CopyPass::Running, _) => Ok(()),
            // It was removed, or another file has its name now.
            (CopyPass::Unfrozen, Err(err))
                if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) =>
            {
                Ok(())
            }
            (_, done) => done,
        }
    }

    fn directory(&mut self, path: &[u8]) -> io::Result<()> {
        let at = if path.is_empty() { b"." } else { path };
        let pair =
            DirectoryPair { path, from: open_beneath(self.from.as_fd(), at)?, to: open_beneath(self.to.as_fd(), at)? };
        let names = names(&pair.from)?;
        self.remove_others(&pair, &names)?;
        for name in names {
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            if self.left_out.iter().any(|it| it.as_bytes().strip_prefix(b"/") == Some(path.as_slice())) {
                continue;
            }
            let done = self.entry(&pair, &name, &path).map_err(|err| at_path(&path, &err));
            self.forgive(done)?;
        }
        Ok(())
    }

    /// Removes from the copy what no longer exists. Does nothing if the directory has not changed.
    fn remove_others(&mut self, pair: &DirectoryPair<'_>, present: &[std::ffi::CString]) -> io::Result<()> {
        let stat = statat(&pair.from, c".", AtFlags::SYMLINK_NOFOLLOW)?;
        if !self.before.begun || self.is_unchanged(pair.path, &stat) {
            return Ok(());
        }
        for name in names(&pair.to)? {
            if present.binary_search(&name).is_err() {
                self.remove(pair, &name)?;
            }
        }
        Ok(())
    }

    fn is_unchanged(&self, path: &[u8], stat: &Stat) -> bool {
        self.before.fingerprint(path) == Some(Fingerprint::new(stat))
    }

    /// Whether the copy of a file is up to date. Of a file with several names, all or none must be.
    fn is_done(&self, path: &[u8], stat: &Stat) -> bool {
        #[expect(clippy::unnecessary_cast, reason = "of another type on other machines")]
        let names = stat.st_nlink as u64;
        self.is_unchanged(path, stat) && (names == 1 || self.before.names_of(stat.st_ino) == names)
    }

    fn entry(&mut self, pair: &DirectoryPair<'_>, name: &CStr, path: &[u8]) -> io::Result<()> {
        let stat = statat(&pair.from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_dir(stat.st_mode) {
            self.make_directory(pair, name)?;
            self.pending.push(path.to_vec());
            self.directories.push((path.to_vec(), stat));
            return Ok(());
        }
        if self.is_done(path, &stat) {
            return Ok(());
        }
        if self.before.begun {
            self.remove(pair, name)?;
        }
        self.touched.insert(pair.path.to_vec());
        let mut fingerprint = Fingerprint::new(&stat);
        if let Some((first, then)) = self.links.get(&stat.st_ino).filter(|_| stat.st_nlink > 1) {
            linkat(&self.to, first.as_slice(), &pair.to, name, AtFlags::empty())?;
            fingerprint = *then;
        } else {
            let (from, to) = (pair.from.as_fd(), pair.to.as_fd());
            self.files.copy(EntryAt { dir: from, name }, EntryAt { dir: to, name }, &stat)?;
            if stat.st_nlink > 1 {
                self.links.insert(stat.st_ino, (path.to_vec(), fingerprint));
            }
        }
        self.record(path, fingerprint);
        Ok(())
    }

    fn record(&mut self, path: &[u8], fingerprint: Fingerprint) {
        if fingerprint.is_settled_at(self.began) {
            self.copied.push((path.to_vec(), fingerprint));
        }
    }

    fn make_directory(&mut self, pair: &DirectoryPair<'_>, name: &CStr) -> io::Result<()> {
        match mkdirat(&pair.to, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) if is_dir(statat(&pair.to, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) => return Ok(()),
            Err(Errno::EXIST) => {
                self.remove(pair, name)?;
                mkdirat(&pair.to, name, Mode::from_raw_mode(0o700))?;
            }
            made => made?,
        }
        self.touched.insert(pair.path.to_vec());
        Ok(())
    }

    /// Removes an entry of the copy, if it exists.
    fn remove(&mut self, pair: &DirectoryPair<'_>, name: &CStr) -> io::Result<()> {
        self.touched.insert(pair.path.to_vec());
        match unlinkat(&pair.to, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let dir = format!("/proc/self/fd/{}", pair.to.as_raw_fd());
                std::fs::remove_dir_all(Path::new(&dir).join(std::ffi::OsStr::from_bytes(name.to_bytes())))
            }
            Err(Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Sets attributes of directories that creating entries changed.
    fn finish_directories(&mut self) -> io::Result<()> {
        for (path, stat) in std::mem::take(&mut self.directories) {
            let done = self.finish_directory(&path, &stat).map_err(|err| at_path(&path, &err));
            self.forgive(done)?;
        }
        Ok(())
    }

    fn finish_directory(&mut self, path: &[u8], stat: &Stat) -> io::Result<()> {
        let at: &[u8] = if path.is_empty() { b"." } else { path };
        if self.is_unchanged(path, stat) {
            if self.touched.contains(path) {
                utimensat(&self.to, at, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            return Ok(());
        }
        let (from, to) = (open_beneath(self.from.as_fd(), at)?, open_beneath(self.to.as_fd(), at)?);
        copy_attributes(from.as_fd(), to.as_fd(), stat)?;
        self.record(path, Fingerprint::new(stat));
        Ok(())
    }
}

fn at_path(path: &[u8], err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("`{}`: {err}", path.escape_ascii()))
}
