//! Accesses files in the container as a user.

use std::fmt;
use std::time::Duration;

use coracle_protocol::body::decode;
use coracle_protocol::call::Call;
use coracle_protocol::{
    ErrorCode, FileEntry, FileRef, GetFile, GuestMessage, ListFiles, MakeDir, MakeLink, PutFile, RemoveFile,
    RenameFile, SetTimes, StatFile,
};
use coracle_types::{Error, Input, Result};
use tokio::time::timeout;

use crate::call::{attempt, encoded, refused, unknown_message};
use crate::channels::ReplyShape;
use crate::connection::{Channel, ConnectionLost};
use crate::input::InputSource;
use crate::link::Link;

impl Link {
    /// Describes the entry at a path.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn stat(&self, at: FileRef) -> Result<FileEntry> {
        self.call(&StatFile { at }).await
    }

    /// A file and its content from `offset` on, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn get(&self, at: FileRef, offset: u64, limit: u64) -> Result<(FileEntry, Vec<u8>)> {
        let (entry, mut content) = self.open_file(at, offset, limit).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await? {
            bytes.extend(piece);
        }
        Ok((entry, bytes))
    }

    /// As [`get`](Self::get), with the content in pieces.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn open_file(&self, at: FileRef, offset: u64, limit: u64) -> Result<(FileEntry, FileContent)> {
        let call = GetFile { at, offset, limit };
        let (body, shape) = (encoded(&call)?, ReplyShape::new(&call));
        attempt(&call, || self.first_of_content(&body, shape, call.timeout())).await
    }

    async fn first_of_content(
        &self,
        body: &[u8],
        shape: ReplyShape,
        idle_timeout: Duration,
    ) -> Result<Result<(FileEntry, FileContent), ConnectionLost>> {
        let opened = self.connection_for::<GetFile>().await?.open_whole(GetFile::NAME, body, shape).await;
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        match channel.next().await {
            Ok((GuestMessage::Event, entry)) => {
                let entry = decode(&entry).map_err(|_| unknown_message())?;
                Ok(Ok((entry, FileContent { channel: Some(channel), idle_timeout })))
            }
            Ok((GuestMessage::Failed(fault), _)) => Err(refused(fault)),
            Ok(_) => Err(unknown_message()),
            Err(broken) => Ok(Err(broken)),
        }
    }

    /// Replaces a file atomically: on success it has the new content, on failure the old one.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] if it is unknown which of the two.
    pub async fn put(&self, put: WriteFile) -> Result<FileEntry> {
        let WriteFile { at, mode, exact, parents, replace, content } = put;
        let mut input = InputSource::content(content);
        let call = PutFile { at, mode, exact, parents, replace };
        let (body, shape) = (encoded(&call)?, ReplyShape::new(&call));
        loop {
            let connection = self.connection_for::<PutFile>().await?;
            let broken = match connection.open_whole(PutFile::NAME, &body, shape).await {
                Ok(channel) => match write(channel, &mut input, call.timeout()).await? {
                    Ok(entry) => return Ok(entry),
                    Err(broken) => broken,
                },
                Err(broken) => broken,
            };
            if broken.sent || broken.full || !input.rewind() {
                return Err(broken.into_error(PutFile::NAME));
            }
        }
    }

    /// Lists the entries of a directory, at most `limit`, and returns whether there are more.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn list(&self, at: FileRef, limit: u64) -> Result<(Vec<FileEntry>, bool)> {
        self.call(&ListFiles { at, limit }).await
    }

    /// Creates a directory. With `parents` an existing one is not an error.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] if it is unknown whether it was created.
    pub async fn make_dir(&self, at: FileRef, mode: u32, parents: bool) -> Result<FileEntry> {
        self.call(&MakeDir { at, mode, parents }).await
    }

    /// Creates a symbolic link. With `replace` it replaces a link or a file, but never a directory. `target` is a text of 1 to
    /// 4095 bytes, and may be any path.
    ///
    /// # Errors
    /// [`Error::Refused`]; without `replace` [`Error::GuestLost`] if it is unknown whether it was created.
    pub async fn make_link(&self, at: FileRef, target: &str, replace: bool) -> Result<FileEntry> {
        self.call(&MakeLink { at, target: target.to_owned(), replace }).await
    }

    /// Renames an entry within its directory; the new name must be free. A link is not followed.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] if it is unknown which name it has.
    pub async fn rename(&self, at: FileRef, name: &str) -> Result<FileEntry> {
        self.call(&RenameFile { at, name: name.to_owned() }).await
    }

    /// Sets the modification times in a tree: paths below it, empty for the tree itself, and seconds since 1970. Errors of
    /// single entries are ignored, and a guest that does not support the call changes nothing.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] if it is unknown how many are set.
    pub async fn set_times(&self, at: FileRef, changed: Vec<(String, i64)>) -> Result<()> {
        match self.call(&SetTimes { at, changed }).await {
            Err(Error::Refused(fault)) if fault.code == ErrorCode::Unsupported => Ok(()),
            done => done,
        }
    }

    /// Removes a file or an empty directory, or with `recursive` a directory with its content.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] if it is unknown how much was removed.
    pub async fn remove(&self, at: FileRef, recursive: bool) -> Result<()> {
        self.call(&RemoveFile { at, recursive }).await
    }
}

/// A file to write.
#[derive(Debug)]
pub struct WriteFile {
    /// Its path and user.
    pub at: FileRef,
    /// Permission bits of a new file; an existing one retains its own, unless `exact`. `None` is 0666 without the umask.
    pub mode: Option<u32>,
    /// Whether an existing file gets `mode`, too.
    pub exact: bool,
    /// Whether missing parents are created.
    pub parents: bool,
    /// Whether an existing file is replaced.
    pub replace: bool,
    /// Its new content.
    pub content: Input,
}

/// The content of a file, read in pieces. Dropping it cancels the transfer.
pub struct FileContent {
    /// `None` at the end.
    channel: Option<Channel>,
    /// Longest time between two pieces.
    idle_timeout: Duration,
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContent").field("ended", &self.channel.is_none()).finish()
    }
}

impl FileContent {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Refused`] if reading failed; [`Error::GuestLost`]: the rest must be requested again.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let after = self.idle_timeout;
        while let Some(channel) = &mut self.channel {
            let message = timeout(after, channel.next()).await;
            match message.map_err(|_| Error::TimedOut { verb: GetFile::NAME, after })?? {
                (GuestMessage::Data { .. }, piece) if piece.is_empty() => {}
                (GuestMessage::Data { .. }, piece) => {
                    channel.release(piece.len());
                    return Ok(Some(piece));
                }
                (GuestMessage::Reply { .. }, _) => self.channel = None,
                (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
                _ => return Err(unknown_message()),
            }
        }
        Ok(None)
    }
}

/// Sends the content and waits until the file is replaced, as long as there is progress.
async fn write(
    mut channel: Channel,
    input: &mut InputSource,
    after: Duration,
) -> Result<Result<FileEntry, ConnectionLost>> {
    let to = channel.sender();
    let sending = input.run(&to);
    tokio::pin!(sending);
    let mut all_sent = false;
    loop {
        tokio::select! {
            biased;
            reply = channel.reply::<PutFile>() => {
                // A reply before everything was sent is invalid.
                return if matches!(&reply, Ok(Ok(_))) && !all_sent { Err(unknown_message()) } else { reply };
            }
            all = &mut sending, if !all_sent => match all {
                Ok(()) => all_sent = true,
                Err(source) => return Err(Error::Host { what: "the content to write cannot be read".into(), source }),
            },
            () = tokio::time::sleep(after), if all_sent => return Err(Error::TimedOut { verb: PutFile::NAME, after }),
        }
    }
}
