//! A file that a client writes, from its start to its end. It is in place when it is closed, and not before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use coracle::PersonSession;
use coracle_runtime::link::WriteFile;
use coracle_runtime::link::protocol::{FileEntry, FileRef};
use coracle_runtime::{Input, Result as GuestResult};
use russh_sftp::protocol::FileAttributes;
use russh_sftp::server::StatusReply;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use super::attributes;
use super::status::{failed, failure};

/// Pieces on their way to the guest.
const PIECES: usize = 16;

/// Bytes of zeros in a piece.
const ZEROS: usize = 64 << 10;

/// How a file is written.
pub(super) struct UploadOptions {
    pub(super) at: FileRef,
    pub(super) mode: Option<u32>,
    pub(super) replace: bool,
    /// Bytes of the file that is there and whose content stays where nothing is written.
    pub(super) kept: u64,
}

/// A file under way.
pub(super) struct WriteHandle {
    pub(super) path: String,
    at: FileRef,
    /// Of a new file, if the client says so.
    pub(super) mode: Option<u32>,
    kept: u64,
    position: u64,
    pieces: Sender<UploadChunk>,
    /// `None` once the guest has answered.
    written: Option<JoinHandle<GuestResult<FileEntry>>>,
    /// What is to be set when it is in place: a size only if it ends elsewhere by then.
    pub(super) after: FileAttributes,
}

enum UploadChunk {
    Bytes(Vec<u8>),
    End,
}

impl WriteHandle {
    pub(super) fn open(session: &PersonSession, options: UploadOptions) -> Self {
        let UploadOptions { at, mode, replace, kept } = options;
        let (pieces, receiver) = channel(PIECES);
        let content = PieceReader { pieces: receiver, piece: Vec::new(), read: 0, ended: false };
        let content = Input::Stream(Box::new(content));
        let put = WriteFile { at: at.clone(), mode, exact: false, parents: false, replace, content };
        let link = session.link.clone();
        let written = Some(tokio::spawn(async move { link.put(put).await }));
        let path = at.path.clone();
        Self { path, at, mode, kept, position: 0, pieces, written, after: FileAttributes::default() }
    }

    /// Where the next write goes, if it appends.
    pub(super) fn end(&self) -> u64 {
        self.after.size.unwrap_or_else(|| self.content_end())
    }

    /// Where what is written ends, or what is kept behind it.
    fn content_end(&self) -> u64 {
        self.position.max(self.kept)
    }

    /// Sets what it has when it is closed, and the size that it has now.
    pub(super) fn set(&mut self, attrs: &FileAttributes) -> Result<(), StatusReply> {
        attrs.size.map_or(Ok(()), |it| self.set_size(it))?;
        attributes::merge(&mut self.after, attrs);
        Ok(())
    }

    /// Sets the size that it has now. Later writes make it longer again.
    fn set_size(&mut self, size: u64) -> Result<(), StatusReply> {
        if self.is_cut_off() && self.end() < size {
            return Err(failure("a file that was cut off does not become longer"));
        }
        self.kept = self.kept.min(size);
        self.after.size = (size != self.content_end()).then_some(size);
        Ok(())
    }

    /// Whether a part of what is written will be cut off.
    fn is_cut_off(&self) -> bool {
        self.end() < self.position
    }

    pub(super) async fn write(
        &mut self,
        session: &PersonSession,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), StatusReply> {
        if offset < self.position || self.is_cut_off() {
            return Err(failure("a file is written from its start to its end"));
        }
        self.fill_to(session, offset).await?;
        self.send(bytes).await?;
        self.after.size = self.after.size.filter(|it| *it > self.content_end());
        Ok(())
    }

    /// Puts the file in place.
    pub(super) async fn close(mut self, session: &PersonSession) -> Result<(), StatusReply> {
        self.fill_to(session, self.content_end()).await?;
        let _ = self.pieces.send(UploadChunk::End).await;
        self.answer().await
    }

    /// What is between the last write and this place: the old content, and zeros after its end.
    async fn fill_to(&mut self, session: &PersonSession, offset: u64) -> Result<(), StatusReply> {
        let old = self.kept.min(offset).saturating_sub(self.position);
        if old > 0 {
            let opened = session.link.open_file(self.at.clone(), self.position, old).await;
            let (_, mut content) = opened.map_err(|err| failed(&err))?;
            while let Some(piece) = content.next().await.map_err(|err| failed(&err))? {
                self.send(piece).await?;
            }
        }
        while self.position < offset {
            let count = usize::try_from(offset - self.position).unwrap_or(ZEROS).min(ZEROS);
            self.send(vec![0; count]).await?;
        }
        Ok(())
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), StatusReply> {
        self.position += bytes.len() as u64;
        if self.pieces.send(UploadChunk::Bytes(bytes)).await.is_ok() {
            return Ok(());
        }
        // The guest takes no more: it says why.
        self.answer().await?;
        Err(failure("the file was closed"))
    }

    /// What the guest says of the whole file.
    async fn answer(&mut self) -> Result<(), StatusReply> {
        match self.written.take() {
            Some(written) => match written.await {
                Ok(answer) => answer.map(drop).map_err(|err| failed(&err)),
                Err(err) => Err(failure(&err.to_string())),
            },
            None => Err(failure("an earlier write failed")),
        }
    }
}

/// The content as the guest's call reads it. Where it breaks off, the call fails, and the file stays as it was.
struct PieceReader {
    pieces: Receiver<UploadChunk>,
    piece: Vec<u8>,
    read: usize,
    ended: bool,
}

impl AsyncRead for PieceReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.read == self.piece.len() && !self.ended {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(UploadChunk::Bytes(piece)) => (self.piece, self.read) = (piece, 0),
                Some(UploadChunk::End) => self.ended = true,
                None => return Poll::Ready(Err(io::Error::other("the client left before the file was complete"))),
            }
        }
        let count = buf.remaining().min(self.piece.len() - self.read);
        buf.put_slice(&self.piece[self.read..self.read + count]);
        self.read += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::link::protocol::UserSpec;

    use super::*;

    /// A file with 100 bytes that are kept, of which 10 are written anew.
    fn half_written() -> WriteHandle {
        let at = FileRef { user: UserSpec::Name("me".to_owned()), path: "/file".to_owned(), follow: true };
        let (pieces, _) = channel(1);
        let after = FileAttributes::default();
        WriteHandle { path: at.path.clone(), at, mode: None, kept: 100, position: 10, pieces, written: None, after }
    }

    #[test]
    fn a_size_is_that_of_the_moment_in_which_it_is_set() {
        let sized = |size| {
            let mut file = half_written();
            file.set_size(size).unwrap();
            (file.content_end(), file.after.size, file.end())
        };
        assert_eq!(sized(10), (10, None, 10));
        assert_eq!(sized(50), (50, None, 50));
        assert_eq!(sized(200), (100, Some(200), 200));
        assert_eq!(sized(4), (10, Some(4), 4));
        let mut file = half_written();
        file.set_size(4).unwrap();
        assert!(file.set_size(8).is_err() && file.set_size(2).is_ok());
    }
}
