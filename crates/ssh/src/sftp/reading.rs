//! A file that a client reads.

use coracle::PersonSession;
use coracle_runtime::link::FileContent;
use coracle_runtime::link::protocol::{FileEntry, FileRef};
use russh_sftp::protocol::StatusCode;
use russh_sftp::server::StatusReply;

use super::status::failed;

/// Bytes of one answer.
const MAX_READ: usize = 256 << 10;

/// A file whose content comes in order. A read elsewhere asks for it from there.
pub(super) struct ReadHandle {
    at: FileRef,
    pub(super) entry: FileEntry,
    content: FileContent,
    /// Where `buffer` begins in the file.
    position: u64,
    buffer: Vec<u8>,
}

impl ReadHandle {
    pub(super) async fn open(session: &PersonSession, at: FileRef) -> Result<Self, StatusReply> {
        let opened = session.link.open_file(at.clone(), 0, u64::MAX).await;
        let (entry, content) = opened.map_err(|err| failed(&err))?;
        Ok(Self { at, entry, content, position: 0, buffer: Vec::new() })
    }

    /// As many bytes as are asked for, fewer only at the end of the file.
    pub(super) async fn read(
        &mut self,
        session: &PersonSession,
        offset: u64,
        len: u32,
    ) -> Result<Vec<u8>, StatusReply> {
        if offset != self.position {
            let opened = session.link.open_file(self.at.clone(), offset, u64::MAX).await;
            (self.entry, self.content) = opened.map_err(|err| failed(&err))?;
            (self.position, self.buffer) = (offset, Vec::new());
        }
        let len = usize::try_from(len).unwrap_or(MAX_READ).min(MAX_READ);
        while self.buffer.len() < len {
            match self.content.next().await.map_err(|err| failed(&err))? {
                Some(piece) => self.buffer.extend(piece),
                None => break,
            }
        }
        let count = len.min(self.buffer.len());
        if count == 0 {
            return Err(StatusCode::Eof.into());
        }
        let bytes: Vec<u8> = self.buffer.drain(..count).collect();
        self.position += count as u64;
        Ok(bytes)
    }
}
