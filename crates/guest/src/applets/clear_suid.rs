//! Removes the set-id bits of root's files in directories of the host, as a command of its own: the filter keeps
//! commands from setting any, and this is for files that got there in another way.

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

/// Goes through directories for files of root's that changed since a time (milliseconds since 1970), and prints the path
/// of each that had a bit, ended by a NUL. Whether there was time for all.
///
/// # Errors
/// When the arguments are no times; when the output is closed.
pub fn sweep(since_ms: &str, within_ms: &str, roots: &[&str]) -> io::Result<bool> {
    let number = |it: &str| it.parse::<u64>().map_err(|_| io::Error::other("no time"));
    let until = Instant::now() + Duration::from_millis(number(within_ms)?);
    let mut sweep = Sweep { since_ms: number(since_ms)?, until, whole: true, swept: Vec::new() };
    roots.iter().for_each(|root| sweep.root(root));
    let mut out = io::stdout().lock();
    for path in &sweep.swept {
        out.write_all(path)?;
        out.write_all(b"\0")?;
    }
    out.flush()?;
    Ok(sweep.whole)
}

struct Sweep {
    since_ms: u64,
    until: Instant,
    whole: bool,
    swept: Vec<Vec<u8>>,
}

impl Sweep {
    fn root(&mut self, root: &str) {
        let Ok(dir) = openat(CWD, root, READ, Mode::empty()) else { return };
        let limits = WalkLimits { mounts: true, ..WalkLimits::everything(self.until) };
        let Ok(mut walk) = TreeWalk::begin(&dir, limits, None, &CancelFlag::default()) else { return };
        while let Some(met) = walk.next(&|_, _| true) {
            let Ok(seen) = statat(&met.dir, met.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_file = FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile;
            if is_file && self.is_meant(&seen) && self.take_off(&met.dir, &met.name) {
                self.swept.push([root.as_bytes(), b"/", &met.path].concat());
            }
        }
        self.whole &= walk.is_complete();
    }

    fn is_meant(&self, seen: &Stat) -> bool {
        let changed_ms = i128::from(seen.st_ctime) * 1000 + i128::from(seen.st_ctime_nsec / 1_000_000);
        seen.st_uid == 0 && seen.st_mode & SET_ID != 0 && changed_ms >= i128::from(self.since_ms)
    }

    /// Changes the open file: the name may be another file's by then.
    fn take_off(&self, dir: impl AsFd, name: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(dir, name, flags, Mode::empty()) else { return false };
        let own = |file: &OwnedFd| format!("/proc/self/fd/{}", file.as_raw_fd());
        match fstat(&file) {
            Ok(seen) if self.is_meant(&seen) => {
                let mode = Mode::from_raw_mode(seen.st_mode & 0o7777 & !SET_ID);
                chmodat(CWD, own(&file), mode, AtFlags::empty()).is_ok()
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
    fn new_files_of_root_lose_their_bits_and_links_and_directories_are_left() {
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
            let mut sweep = Sweep { since_ms, until, whole: true, swept: Vec::new() };
            sweep.root(root);
            assert!(sweep.whole);
            sweep.swept.sort();
            sweep.swept
        };
        assert_eq!(sweep(u64::MAX).len(), 0, "nothing is newer than the end of time");
        assert_eq!(sweep(0), [temporary.as_os_str().as_bytes(), inside.as_os_str().as_bytes()]);
        assert_eq!((mode(&inside), mode(&outside), mode(&dir.path().join("a"))), (0o711, 0o6711, 0o2775));
        let mut late = Sweep { since_ms: 0, until: Instant::now(), whole: true, swept: Vec::new() };
        late.root(root);
        assert!(!late.whole);
    }
}
