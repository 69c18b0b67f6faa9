//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::packet::{Fields, SftpError};

/// Bytes copied per step.
const PIECE: usize = 256 << 10;

/// The open files and directories of a client, by handle. The kernel's limit on open files applies.
#[derive(Debug, Default)]
pub(super) struct Handles {
    open: HashMap<u32, OpenHandle>,
    next: u32,
}

#[derive(Debug)]
pub(super) enum OpenHandle {
    File(File),
    Dir(Dir),
}

impl Handles {
    pub(super) fn add(&mut self, handle: OpenHandle) -> [u8; 4] {
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.open.insert(self.next, handle);
        let number = self.next.to_be_bytes();
        self.next = self.next.wrapping_add(1);
        number
    }

    pub(super) fn close(&mut self, fields: &mut Fields<'_>) -> Result<(), SftpError> {
        self.open.remove(&number(fields)?).map(drop).ok_or_else(|| Errno::BADF.into())
    }

    pub(super) fn file(&self, fields: &mut Fields<'_>) -> Result<&File, SftpError> {
        self.file_at(number(fields)?)
    }

    fn file_at(&self, number: u32) -> Result<&File, SftpError> {
        match self.open.get(&number) {
            Some(OpenHandle::File(file)) => Ok(file),
            _ => Err(Errno::BADF.into()),
        }
    }

    pub(super) fn dir(&mut self, fields: &mut Fields<'_>) -> Result<&mut Dir, SftpError> {
        match self.open.get_mut(&number(fields)?) {
            Some(OpenHandle::Dir(dir)) => Ok(dir),
            _ => Err(Errno::BADF.into()),
        }
    }

    /// `copy-data`: copies `length` bytes, or all to the end, from an offset of one file to an offset of another.
    pub(super) fn copy_data(&self, fields: &mut Fields<'_>) -> Result<(), SftpError> {
        let (from, mut read_at, length) = (number(fields)?, fields.u64()?, fields.u64()?);
        let (to, mut write_at) = (number(fields)?, fields.u64()?);
        if from == to {
            return Err(SftpError::failure("cannot copy a file onto itself"));
        }
        let (from, to) = (self.file_at(from)?, self.file_at(to)?);
        let mut left = if length == 0 { u64::MAX } else { length };
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let count = from.read_at(&mut piece[..wanted], read_at)?;
            if count == 0 {
                return Ok(());
            }
            to.write_all_at(&piece[..count], write_at)?;
            let count = count as u64;
            (read_at, write_at, left) = (read_at + count, write_at + count, left - count);
        }
        Ok(())
    }
}

fn number(fields: &mut Fields<'_>) -> Result<u32, SftpError> {
    fields.bytes()?.try_into().map(u32::from_be_bytes).map_err(|_| Errno::BADF.into())
}
