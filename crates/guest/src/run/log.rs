//! Copies the program's output to the log file, and retains only its end.
//!
//! The file only grows. Its beginning is freed by punching holes, so offsets do not change for readers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::pipe::{PipeFlags, pipe_with};

/// Holes begin and end at blocks of this size.
const BLOCK: u64 = 1 << 16;

/// Copies a pipe to a file.
#[derive(Debug)]
pub(super) struct Log {
    pipe: File,
    file: File,
    /// How many bytes are retained, from the end.
    max: u64,
    written: u64,
    /// Everything before this is a hole.
    freed: u64,
}

impl Log {
    /// Returns a log, and standard output and error for a program. Both are the same pipe, so that lines stay in order.
    ///
    /// # Errors
    /// Fails if the kernel refuses a call.
    pub(super) fn new(file: File, max: u64) -> io::Result<(Self, [Stdio; 2])> {
        let written = file.metadata()?.len();
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
        let copy = theirs.try_clone()?;
        Ok((Self { pipe: ours.into(), file, max, written, freed: 0 }, [theirs.into(), copy.into()]))
    }

    /// Copies what the pipe contains, at most twice its capacity. Returns whether the pipe is still open.
    pub(super) fn copy(&mut self) -> bool {
        let mut bytes = [0; 1 << 14];
        for _ in 0..8 {
            match self.pipe.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.append(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        true
    }

    /// Whether the pipe has unread bytes.
    pub(super) fn has_more(&self) -> bool {
        rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|it| it > 0)
    }

    /// If the disk is full, output is lost and the program continues.
    fn append(&mut self, bytes: &[u8]) {
        if self.file.write_all(bytes).is_ok() {
            self.written += bytes.len() as u64;
        }
        let retained_from = self.written.saturating_sub(self.max) / BLOCK * BLOCK;
        // Frees many blocks at once, so that it happens rarely.
        if retained_from >= self.freed + self.max.clamp(BLOCK, 1 << 20) {
            self.free(retained_from);
        }
    }

    fn free(&mut self, to: u64) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, hole, 0, to).is_err() && self.file.set_len(0).is_ok() {
            // The file system does not support holes.
            self.written = 0;
        }
        self.freed = to.min(self.written);
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_uses_disk_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = File::options().append(true).create(true).open(&path).unwrap();
        let (mut log, outputs) = Log::new(file, 1 << 20).unwrap();
        for number in 0..1_000_000 {
            log.append(format!("{number:09}\n").as_bytes());
        }
        let text = std::fs::read(&path).unwrap();
        assert_eq!(text.len(), 10_000_000);
        assert!(text.ends_with(b"\n000999999\n"));
        assert!(text[text.len() - (1 << 20)..].iter().all(|it| *it != 0));
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 3 << 20);
        assert!(log.copy());
        drop(outputs);
        assert!(!log.copy());
    }
}
