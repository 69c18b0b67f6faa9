//! Removes the set-id bits of root's files in directories of the host, as a separate command. The seccomp filter
//! prevents commands from setting them; this is for files that got them in another way.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, fstat, openat, statat};

use crate::files::dir::READ;
use crate::files::walk::{TreeWalk, WalkLimits};
use crate::os::blocking::CancelFlag;

/// Exit code of an unfinished scan.
pub const CUT: u8 = 75;

const SET_ID: u32 = 0o6000;

/// Scans directories for files of root that changed since a time (milliseconds since 1970), clears their set-id bits,
/// and prints the path of each, with a NUL after it. Returns whether the scan finished in time.
///
/// # Errors
/// Fails if the arguments are no times, or if the output is closed.
pub fn sweep(since_ms: &str, within_ms: &str, roots: &[&str]) -> io::Result<bool> {
    let number = |it: &str| it.parse::<u64>().map_err(|_| io::Error::other("invalid time"));
    let until = Instant::now() + Duration::from_millis(number(within_ms)?);
    let mut sweep = Sweep { since_ms: number(since_ms)?, until, is_complete: true, cleared: Vec::new() };
    roots.iter().for_each(|root| sweep.scan_root(root));
    let mut out = io::stdout().lock();
    for path in &sweep.cleared {
        out.write_all(path)?;
        out.write_all(b"\0")?;
    }
    out.flush()?;
    Ok(sweep.is_complete)
}

struct Sweep {
    since_ms: u64,
    until: Instant,
    is_complete: bool,
    cleared: Vec<Vec<u8>>,
}

impl Sweep {
    fn scan_root(&mut self, root: &str) {
        let Ok(dir) = openat(CWD, root, READ, Mode::empty()) else { return };
        let limits = WalkLimits { mounts: true, ..WalkLimits::everything(self.until) };
        let Ok(mut walk) = TreeWalk::begin(&dir, limits, None, &CancelFlag::default()) else { return };
        while let Some(entry) = walk.next(&|_, _| true) {
            let Ok(stat) = statat(&entry.dir, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_file && self.must_clear(&stat) && self.clear(&entry.dir, &entry.name) {
                self.cleared.push([root.as_bytes(), b"/", &entry.path].concat());
            }
        }
        self.is_complete &= walk.is_complete();
    }

    fn must_clear(&self, stat: &Stat) -> bool {
        let changed_ms = i128::from(stat.st_ctime) * 1000 + i128::from(stat.st_ctime_nsec / 1_000_000);
        stat.st_uid == 0 && stat.st_mode & SET_ID != 0 && changed_ms >= i128::from(self.since_ms)
    }

    /// Changes the open file, because the name may belong to another file by then.
    fn clear(&self, dir: impl AsFd, name: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(dir, name, flags, Mode::empty()) else { return false };
        let proc_path = |file: &OwnedFd| format!("/proc/self/fd/{}", file.as_raw_fd());
        match fstat(&file) {
            Ok(stat) if self.must_clear(&stat) => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 & !SET_ID);
                chmodat(CWD, proc_path(&file), mode, AtFlags::empty()).is_ok()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &std::path::Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_new_regular_files_of_root_lose_their_set_id_bits() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let (inside, outside) = (dir.path().join("a/b/tool"), other.path().join("tool"));
        // Users can give a file such a name.
        let temporary = dir.path().join("a/b/.coracle-0123456789abcdef.tmp");
        for path in [&inside, &outside, &temporary] {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o6711)).unwrap();
        }
        fs::set_permissions(dir.path().join("a"), Permissions::from_mode(0o2775)).unwrap();
        std::os::unix::fs::symlink(&outside, dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("linked")).unwrap();
        let root = dir.path().to_str().unwrap();
        let sweep = |since_ms| {
            let until = Instant::now() + Duration::from_secs(5);
            let mut sweep = Sweep { since_ms, until, is_complete: true, cleared: Vec::new() };
            sweep.scan_root(root);
            assert!(sweep.is_complete);
            sweep.cleared.sort();
            sweep.cleared
        };
        assert_eq!(sweep(u64::MAX).len(), 0, "no file is newer than the latest time");
        assert_eq!(sweep(0), [temporary.as_os_str().as_bytes(), inside.as_os_str().as_bytes()]);
        assert_eq!((mode(&inside), mode(&outside), mode(&dir.path().join("a"))), (0o711, 0o6711, 0o2775));
        let mut late = Sweep { since_ms: 0, until: Instant::now(), is_complete: true, cleared: Vec::new() };
        late.scan_root(root);
        assert!(!late.is_complete);
    }
}
