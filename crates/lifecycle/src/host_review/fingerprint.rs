//! What a path holds, in few bytes.

use std::ffi::{CStr, CString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::finding::Change;
use super::limits::ScanLimits;
use crate::record::{Fingerprint, FingerprintKind};

/// A file is read so far; of a longer one its times are taken for its content.
const MAX_FILE: u64 = 1 << 20;

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 20_000;

/// Directories open at once.
const MAX_DEPTH: usize = 32;

impl Fingerprint {
    /// Nothing is there, or something that has no such path any more. Whether the bounds were reached before all was read.
    pub(super) fn read(root: &Path, path: &str, bounds: &mut ScanLimits) -> (Option<Self>, bool) {
        let Some(ResolvedEntry { above, name, seen }) = ResolvedEntry::resolve(root, path) else {
            return (None, false);
        };
        let whole = !is_written_by_git(path) || FileType::from_raw_mode(seen.st_mode) != FileType::Directory;
        let mut sum = TreeHasher { hash: Sha256::new(), left: MAX_ENTRIES, bounds, cut: false };
        let summed = if whole { sum.add(above.as_fd(), &name, &seen, MAX_DEPTH) } else { Some(()) };
        let kind = match FileType::from_raw_mode(seen.st_mode) {
            FileType::RegularFile => FingerprintKind::File,
            FileType::Directory => FingerprintKind::Dir,
            FileType::Symlink => FingerprintKind::Link,
            _ => FingerprintKind::Other,
        };
        let cut = sum.cut;
        let sum = summed.filter(|()| kind != FingerprintKind::Other).map(|()| hex::encode(sum.hash.finalize()));
        (Some(Self { kind, inode: seen.st_ino, sum }), cut)
    }

    /// Whether there is something that its content can be compared with.
    pub(super) fn was_read(&self) -> bool {
        self.sum.is_some() || self.kind == FingerprintKind::Other
    }

    /// Whether something is there. Nothing of it is read.
    pub(super) fn is_there(root: &Path, path: &str) -> bool {
        ResolvedEntry::resolve(root, path).is_some()
    }

    /// How it differs from what was there; nothing when it holds the same, or when that is not known because the bounds were
    /// reached.
    pub(super) fn change_to(&self, now: &Self, cut: bool) -> Option<Change> {
        let same = self.kind == now.kind && (cut || self.sum.is_some() && self.sum == now.sum);
        match self.kind == now.kind && self.inode == now.inode {
            _ if same => None,
            // What was too much to be read is what it was as long as nothing took its place.
            true if !self.was_read() => None,
            true => Some(Change::Changed),
            false => Some(Change::Replaced),
        }
    }
}

/// Whether a directory at that path differs after every command of git's: what counts in it is protected by itself, or is
/// looked for.
fn is_written_by_git(path: &str) -> bool {
    path == ".git" || path == ".jj/repo" || path.ends_with("/worktrees")
}

/// A path that is there, with no link on the way.
struct ResolvedEntry {
    above: OwnedFd,
    name: CString,
    seen: Stat,
}

impl ResolvedEntry {
    fn resolve(root: &Path, path: &str) -> Option<Self> {
        let mut above = opened(CWD, root.to_str()?.as_bytes(), OFlags::DIRECTORY)?;
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        for parent in parents.split('/').filter(|it| !it.is_empty()) {
            above = opened(above.as_fd(), parent.as_bytes(), OFlags::DIRECTORY)?;
        }
        let name = CString::new(name).ok()?;
        let seen = statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self { above, name, seen })
    }
}

fn opened(from: BorrowedFd<'_>, name: &[u8], more: OFlags) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(from, name, flags | more, Mode::empty()).ok()
}

struct TreeHasher<'a> {
    hash: Sha256,
    left: usize,
    bounds: &'a mut ScanLimits,
    /// They were reached.
    cut: bool,
}

impl TreeHasher<'_> {
    /// What is there, with all below it.
    fn add(&mut self, above: BorrowedFd<'_>, name: &CStr, seen: &Stat, depth: usize) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.afford(0)?;
        self.hash.update(seen.st_mode.to_le_bytes());
        match FileType::from_raw_mode(seen.st_mode) {
            FileType::RegularFile => self.file(above, name, seen),
            FileType::Directory => self.dir(above, name, depth.checked_sub(1)?),
            FileType::Symlink => {
                let target = readlinkat(above, name, Vec::new()).ok()?;
                self.field(target.to_bytes());
                Some(())
            }
            _ => Some(()),
        }
    }

    fn afford(&mut self, bytes: u64) -> Option<()> {
        self.cut |= !self.bounds.read(bytes);
        (!self.cut).then_some(())
    }

    fn field(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn file(&mut self, above: BorrowedFd<'_>, name: &CStr, seen: &Stat) -> Option<()> {
        let size = u64::try_from(seen.st_size).ok()?;
        if size > MAX_FILE {
            for part in [seen.st_size, seen.st_mtime, seen.st_ctime] {
                self.hash.update(i128::from(part).to_le_bytes());
            }
            return Some(());
        }
        self.afford(size)?;
        let file = std::fs::File::from(opened(above, name.to_bytes(), OFlags::empty())?);
        if FileType::from_raw_mode(fstat(&file).ok()?.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut content = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut content).ok()?;
        self.field(&content);
        Some(())
    }

    fn dir(&mut self, above: BorrowedFd<'_>, name: &CStr, depth: usize) -> Option<()> {
        let fd = opened(above, name.to_bytes(), OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd).ok()? {
            let name = entry.ok()?.file_name().to_owned();
            if names.len() > self.left {
                return None;
            }
            names.extend(Some(name).filter(|it| !matches!(it.to_bytes(), b"." | b"..")));
        }
        names.sort();
        for name in names {
            self.field(name.to_bytes());
            let seen = statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            self.add(fd.as_fd(), &name, &seen, depth)?;
        }
        self.field(b"");
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn print(root: &Path, path: &str) -> Option<Fingerprint> {
        Fingerprint::read(root, path, &mut ScanLimits::new()).0
    }

    #[test]
    fn what_holds_the_same_did_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let (root, hooks) = (dir.path(), dir.path().join(".git/hooks"));
        fs::create_dir_all(&hooks).unwrap();
        fs::write(hooks.join("a"), "1").unwrap();
        let was = print(root, ".git/hooks").unwrap();
        let change = || was.change_to(&print(root, ".git/hooks").unwrap(), false);
        assert_eq!(change(), None);
        fs::write(hooks.join("a"), "2").unwrap();
        assert_eq!(change(), Some(Change::Changed));
        fs::write(hooks.join("a"), "1").unwrap();
        fs::rename(&hooks, root.join("away")).unwrap();
        assert_eq!(print(root, ".git/hooks"), None);
        fs::create_dir(&hooks).unwrap();
        assert_eq!(change(), Some(Change::Replaced));
        fs::write(hooks.join("a"), "1").unwrap();
        assert_eq!(change(), None, "git rewrites files without a change");
    }

    #[test]
    fn a_link_is_not_followed_and_a_pipe_blocks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let file = print(dir.path(), "file").unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        let link = print(dir.path(), "link").unwrap();
        assert_eq!((link.kind, file.change_to(&link, false)), (FingerprintKind::Link, Some(Change::Replaced)));
        rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(print(dir.path(), "pipe").map(|it| (it.kind, it.sum)), Some((FingerprintKind::Other, None)));
        assert_eq!(print(dir.path(), "link/below"), None);
    }

    #[test]
    fn a_file_that_was_read_partly_is_no_change_and_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("hooks")).unwrap();
        for name in ["a", "b"] {
            fs::write(dir.path().join("hooks").join(name), [b'x'; 600]).unwrap();
        }
        let was = print(dir.path(), "hooks").unwrap();
        let over = ScanLimits { until: std::time::Instant::now(), ..ScanLimits::new() };
        for mut few in [ScanLimits { bytes: 1000, ..ScanLimits::new() }, over] {
            let (now, cut) = Fingerprint::read(dir.path(), "hooks", &mut few);
            let now = now.unwrap();
            assert_eq!((cut, &now.sum, was.change_to(&now, cut)), (true, &None, None));
            assert_eq!((now.was_read(), now.change_to(&was, false)), (false, None), "its earlier content is unknown");
        }
    }
}
