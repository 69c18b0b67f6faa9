//! Fingerprints that distinguish file contents.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Stat, fstat};
use sha2::{Digest as _, Sha256};

use crate::files::error::OperationResult;

/// Files up to this size, in bytes, are identified by their content; larger ones by size, time and inode.
pub(super) const MAX_READ: u64 = 8 << 20;

/// Bytes of one read.
const BLOCK: usize = 64 << 10;

/// The fingerprint of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Print {
    pub(super) size: u64,
    pub(super) sha256: Option<[u8; 32]>,
    /// Time of the last write, and inode.
    pub(super) stamp: FileStamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) changed_ns: i128,
    pub(super) inode: u64,
}

impl FileStamp {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        let changed_ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
        Self { changed_ns, inode: stat.st_ino }
    }
}

impl Print {
    /// A fingerprint without reading the content.
    pub(super) fn of_stat(stat: &Stat) -> Self {
        Self { size: u64::try_from(stat.st_size).unwrap_or_default(), sha256: None, stamp: FileStamp::from_stat(stat) }
    }

    /// Reads a file's content.
    pub(super) fn from_file(file: &File) -> OperationResult<Self> {
        let stat = fstat(file)?;
        let mut print = Self::of_stat(&stat);
        if print.size <= MAX_READ {
            let room = usize::try_from(print.size + 1).unwrap_or(BLOCK).min(BLOCK);
            let (mut hash, mut block, mut at) = (Sha256::new(), vec![0; room], 0);
            while at <= MAX_READ {
                let read = match file.read_at(&mut block, at) {
                    Err(err) if err.kind() == std::io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                if read == 0 {
                    break;
                }
                hash.update(&block[..read]);
                at += read as u64;
            }
            print.size = at;
            print.sha256 = Some(hash.finalize().into());
        }
        Ok(print)
    }

    /// A fingerprint of content in memory.
    pub(super) fn of_content(content: &[u8], stat: &Stat) -> Self {
        let size = content.len() as u64;
        let sha256 = (size <= MAX_READ).then(|| Sha256::digest(content).into());
        Self { size, sha256, stamp: FileStamp::from_stat(stat) }
    }

    /// The digest by which the tracker remembers content that a tool has seen.
    pub(super) fn seen(&self) -> [u8; 32] {
        self.sha256.unwrap_or_else(|| {
            let description = format!("{} {} {}", self.size, self.stamp.changed_ns, self.stamp.inode);
            Sha256::digest(description).into()
        })
    }
}
