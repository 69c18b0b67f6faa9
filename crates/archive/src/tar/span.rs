//! Parts of a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A part of a file, read without moving the file's offset.
#[derive(Clone, Debug)]
pub struct FileSpan {
    file: Arc<File>,
    start: u64,
    at: u64,
    end: u64,
}

impl FileSpan {
    /// The current content of a file.
    ///
    /// # Errors
    /// If its size cannot be read.
    pub fn whole(file: impl Into<Arc<File>>) -> io::Result<Self> {
        let file = file.into();
        let end = file.metadata()?.len();
        Ok(Self { file, start: 0, at: 0, end })
    }

    /// The length of the span.
    pub(super) fn total(&self) -> u64 {
        self.end - self.start
    }

    /// A part of this span. The caller has checked that it is within the span.
    pub(super) fn part(&self, start: u64, size: u64) -> Self {
        let start = self.start + start;
        Self { file: Arc::clone(&self.file), start, at: start, end: start + size }
    }

    /// Unread bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for FileSpan {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.size()).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for FileSpan {
    /// Unlike in a file, the position cannot be beyond the end.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(offset) => self.start.checked_add(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
            SeekFrom::End(offset) => self.end.checked_add_signed(offset),
        };
        let within = at.filter(|at| (self.start..=self.end).contains(at));
        self.at = within.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(self.at - self.start)
    }
}
