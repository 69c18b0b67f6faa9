//! Files inside, as the user who asks for them.

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

use crate::call::{attempt, encoded, not_understood, refused};
use crate::channels::ReplyShape;
use crate::connection::{Channel, ConnectionLost};
use crate::input::InputSource;
use crate::link::Link;

impl Link {
    /// What is at a path.
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

    /// As [`get`](Self::get), with the content in pieces, as they are asked for.
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
        patience: Duration,
    ) -> Result<Result<(FileEntry, FileContent), ConnectionLost>> {
        let opened = self.connection_for::<GetFile>().await?.open_whole(GetFile::NAME, body, shape).await;
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        match channel.next().await {
            Ok((GuestMessage::Event, entry)) => {
                let entry = decode(&entry).map_err(|_| not_understood())?;
                Ok(Ok((entry, FileContent { channel: Some(channel), patience })))
            }
            Ok((GuestMessage::Failed(fault), _)) => Err(refused(fault)),
            Ok(_) => Err(not_understood()),
            Err(broken) => Ok(Err(broken)),
        }
    }

    /// Writes a file whole: it is in place when this returns, and as it was before when it fails.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known which of the two.
    pub async fn put(&self, put: WriteFile) -> Result<FileEntry> {
        let WriteFile { at, mode, exact, parents, replace, content } = put;
        let mut feed = InputSource::content(content);
        let call = PutFile { at, mode, exact, parents, replace };
        let (body, shape) = (encoded(&call)?, ReplyShape::new(&call));
        loop {
            let connection = self.connection_for::<PutFile>().await?;
            let broken = match connection.open_whole(PutFile::NAME, &body, shape).await {
                Ok(channel) => match write(channel, &mut feed, call.timeout()).await? {
                    Ok(entry) => return Ok(entry),
                    Err(broken) => broken,
                },
                Err(broken) => broken,
            };
            if broken.sent || broken.full || !feed.rewind() {
                return Err(broken.into_error(PutFile::NAME));
            }
        }
    }

    /// The entries of a directory, at most `limit`, and whether there are more.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn list(&self, at: FileRef, limit: u64) -> Result<(Vec<FileEntry>, bool)> {
        self.call(&ListFiles { at, limit }).await
    }

    /// Makes a directory. With `parents` one that is there is no error.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_dir(&self, at: FileRef, mode: u32, parents: bool) -> Result<FileEntry> {
        self.call(&MakeDir { at, mode, parents }).await
    }

    /// Makes a symbolic link. With `replace` one that is there, or a file, gives way; a directory never does. `target` is
    /// text of 1 to 4095 bytes, and may lead anywhere.
    ///
    /// # Errors
    /// [`Error::Refused`]; without `replace` [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_link(&self, at: FileRef, target: &str, replace: bool) -> Result<FileEntry> {
        self.call(&MakeLink { at, target: target.to_owned(), replace }).await
    }

    /// Gives what is at a path another name in the same directory, which must be free. A link is renamed itself.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known which of the names it has.
    pub async fn rename(&self, at: FileRef, name: &str) -> Result<FileEntry> {
        self.call(&RenameFile { at, name: name.to_owned() }).await
    }

    /// Sets the times of the last change in a tree: paths below it, empty for the tree itself, and seconds since 1970. What
    /// cannot be changed keeps its own, and so does everything where the guest is too old for the call.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known how many are set.
    pub async fn set_times(&self, at: FileRef, changed: Vec<(String, i64)>) -> Result<()> {
        match self.call(&SetTimes { at, changed }).await {
            Err(Error::Refused(fault)) if fault.code == ErrorCode::Unsupported => Ok(()),
            done => done,
        }
    }

    /// Removes a file or an empty directory, or with `recursive` all that is in it.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known how much is gone.
    pub async fn remove(&self, at: FileRef, recursive: bool) -> Result<()> {
        self.call(&RemoveFile { at, recursive }).await
    }
}

/// A file to be written.
#[derive(Debug)]
pub struct WriteFile {
    /// Where.
    pub at: FileRef,
    /// Permission bits of a new file; an existing one keeps its own, unless `exact`. `None` is 0666 without the umask.
    pub mode: Option<u32>,
    /// A file that is there gets `mode`, too.
    pub exact: bool,
    /// Make missing parents.
    pub parents: bool,
    /// Replace a file that is there.
    pub replace: bool,
    /// What will be in it.
    pub content: Input,
}

/// Content of a file that comes as it is asked for. To drop it is to want no more.
pub struct FileContent {
    /// None at its end.
    channel: Option<Channel>,
    /// Between two pieces.
    patience: Duration,
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
    /// [`Error::Refused`] when reading failed; [`Error::GuestLost`]: what is missing has to be asked for again.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let after = self.patience;
        while let Some(channel) = &mut self.channel {
            let heard = timeout(after, channel.next()).await;
            match heard.map_err(|_| Error::TimedOut { verb: GetFile::NAME, after })?? {
                (GuestMessage::Data { .. }, piece) if piece.is_empty() => {}
                (GuestMessage::Data { .. }, piece) => {
                    channel.release(piece.len());
                    return Ok(Some(piece));
                }
                (GuestMessage::Reply { .. }, _) => self.channel = None,
                (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
                _ => return Err(not_understood()),
            }
        }
        Ok(None)
    }
}

/// Sends the content and waits until it is in place, for as long as something goes on.
async fn write(
    mut channel: Channel,
    feed: &mut InputSource,
    after: Duration,
) -> Result<Result<FileEntry, ConnectionLost>> {
    let to = channel.sender();
    let feeding = feed.run(&to);
    tokio::pin!(feeding);
    let mut fed = false;
    loop {
        tokio::select! {
            biased;
            reply = channel.reply::<PutFile>() => {
                // A reply before all was sent is none.
                return if matches!(&reply, Ok(Ok(_))) && !fed { Err(not_understood()) } else { reply };
            }
            all = &mut feeding, if !fed => match all {
                Ok(()) => fed = true,
                Err(source) => return Err(Error::Host { what: "what is to be written cannot be read".into(), source }),
            },
            () = tokio::time::sleep(after), if fed => return Err(Error::TimedOut { verb: PutFile::NAME, after }),
        }
    }
}
