//! Temporary files of a copy. They have no name and do not fill the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::cancel::CancelFlag;
use crate::write_guard::WriteGuard;

/// The directory for temporary files of a copy, and whether the copy is cancelled.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    cancel: CancelFlag,
}

/// A file without a name.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    pub(crate) file: File,
    pub(crate) guard: WriteGuard,
}

impl Scratch {
    /// `dir` has to be in the file system of the store.
    pub(crate) fn new(dir: PathBuf, cancel: CancelFlag) -> Self {
        Self { dir, cancel }
    }

    pub(crate) fn cancel(&self) -> &CancelFlag {
        &self.cancel
    }

    pub(crate) fn create_file(&self) -> io::Result<ScratchFile> {
        let file = tempfile::tempfile_in(&self.dir)?;
        let guard = WriteGuard::begin("the image", &file, self.cancel.clone())?;
        Ok(ScratchFile { file, guard })
    }
}

impl Write for ScratchFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.guard.written(count as u64)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
