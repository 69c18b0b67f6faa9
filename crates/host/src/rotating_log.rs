//! A bounded log of lines that several processes append to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file that only its owner can read. When it is full it is renamed to `<name>.1`, the previous one to `<name>.2`,
/// and so on.
///
/// Each line is appended under a lock of the file, so no line is lost, truncated or mixed with that of another process.
#[derive(Clone, Debug)]
pub struct RotatingLog {
    path: PathBuf,
    max_bytes: u64,
    rotated: u32,
}

impl RotatingLog {
    /// A log at that path: a file of more than `max_bytes` is rotated, and `rotated` of those are retained.
    #[must_use]
    pub fn new(path: PathBuf, max_bytes: u64, rotated: u32) -> Self {
        Self { path, max_bytes, rotated }
    }

    /// The current file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
    }

    /// Appends a line, which ends with a line feed.
    ///
    /// # Errors
    /// If it cannot be written; then no part of it is in the file.
    pub fn append(&self, line: &[u8]) -> io::Result<()> {
        loop {
            let file = self.open()?;
            file.lock()?;
            let is_done = self.append_locked(&file, line);
            // A child that was forked meanwhile has a duplicate, which would keep the lock after this one is closed.
            let _ = file.unlock();
            if is_done? {
                return Ok(());
            }
        }
    }

    /// Appends under the lock. `false` if this file was rotated meanwhile.
    fn append_locked(&self, file: &File, line: &[u8]) -> io::Result<bool> {
        let held = file.metadata()?;
        let current = match self.path.metadata() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        if (held.dev(), held.ino()) != (current.dev(), current.ino()) {
            return Ok(false);
        }
        if held.len() > 0 && held.len() + line.len() as u64 > self.max_bytes {
            self.rotate()?;
            return Ok(false);
        }
        append_whole(file, line).map(|()| true)
    }

    /// Rotates the files. Called only with the lock of the current file.
    fn rotate(&self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.rotated).rev() {
            match std::fs::rename(numbered(number), numbered(number + 1)) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))
    }
}

/// Appends a whole text to a file that no other process writes meanwhile, or none of it: a full disk leaves no partial
/// line.
///
/// # Errors
/// If it cannot be written.
pub fn append_whole(mut file: &File, text: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(text).inspect_err(|_| {
        let _ = file.set_len(before);
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::RotatingLog;

    fn all_lines(dir: &std::path::Path) -> Vec<String> {
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        files
            .flat_map(|file| std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn concurrent_writers_lose_no_line_and_rotate_each_file_once() {
        const LINES: u32 = 400;
        let dir = tempfile::tempdir().unwrap();
        let write = |writer: u32| {
            // Locks belong to an open file, so two threads behave like two processes.
            let log = RotatingLog::new(dir.path().join("log"), 1 << 10, 100);
            for number in 0..LINES {
                log.append(format!("{writer} {number} {}\n", "x".repeat(50)).as_bytes()).unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|writer| drop(scope.spawn(move || write(writer)))));
        let lines = all_lines(dir.path());
        assert_eq!(lines.len(), 4 * LINES as usize);
        assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len());
        let full = |name: String| dir.path().join(name).metadata().map(|it| it.len()).unwrap_or(1 << 10);
        assert!((1..50).all(|number| (900..=1 << 10).contains(&full(format!("log.{number}")))));
    }

    #[test]
    fn the_oldest_file_is_removed_when_the_maximum_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let log = RotatingLog::new(dir.path().join("log"), 4, 2);
        for line in ["a\n", "b\n", "cccc\n", "dddd\n", "eeee\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!([read("log"), read("log.1"), read("log.2")], ["eeee\n", "dddd\n", "cccc\n"]);
        assert_eq!(dir.path().read_dir().unwrap().count(), 3);
    }
}
