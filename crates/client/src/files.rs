//! Files inside, as the user who asks for them.

use std::fmt;
use std::time::Duration;

use coracle_protocol::{CallReply, FileEntry, FileRef, GuestMessage, MAX_PAYLOAD, Request};
use coracle_types::{Error, Input, Result};
use tokio::time::timeout;

use crate::call::{CallOptions, ReplyKind, Retry, attempt, not_understood, refused, sendable};
use crate::channels::ReplyShape;
use crate::connection::{Channel, ConnectionLost};
use crate::input::InputSource;
use crate::jobs::holding;
use crate::link::Link;

/// A large tree, or a slow disk.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

impl Link {
    /// What is at a path.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn stat(&self, at: FileRef) -> Result<FileEntry> {
        Ok(self.ask(CallOptions::new("stat", holding!(File)), || Request::Stat(at.clone())).await?.0)
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
        let ask = sendable(Request::Get { at, offset, limit })?;
        attempt("get", TRANSFER_TIMEOUT, Retry::Once, || self.first_of_content(ask.clone(), limit)).await
    }

    async fn first_of_content(
        &self,
        ask: Request,
        limit: u64,
    ) -> Result<Result<(FileEntry, FileContent), ConnectionLost>> {
        let talk = ReplyShape::Content { fits: |it| matches!(it, CallReply::File(_)), most: limit };
        let opened = self.connection().await?.open(ask, Vec::new(), talk).await;
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        match channel.next().await {
            Ok((GuestMessage::Answer(CallReply::File(entry)), _)) => {
                Ok(Ok((entry, FileContent { channel: Some(channel) })))
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
        loop {
            let ask = sendable(Request::Put { at: at.clone(), mode, exact, parents, replace })?;
            let talk = ReplyShape::Answer { fits: |it| matches!(it, CallReply::File(_)), payload: 0 };
            let broken = match self.connection().await?.open(ask, Vec::new(), talk).await {
                Ok(channel) => match write(channel, &mut feed).await? {
                    Ok(entry) => return Ok(entry),
                    Err(broken) => broken,
                },
                Err(broken) => broken,
            };
            if broken.sent || broken.full || !feed.rewind() {
                return Err(broken.of("put"));
            }
        }
    }

    /// The entries of a directory, at most `limit`, and whether there are more.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn list(&self, at: FileRef, limit: u64) -> Result<(Vec<FileEntry>, bool)> {
        let kind = ReplyKind {
            fits: |it| matches!(it, CallReply::Entries { .. }),
            take: |it| match it {
                CallReply::Entries { more } => Some(more),
                _ => None,
            },
        };
        let request = CallOptions { payload: MAX_PAYLOAD as u64, again: Retry::List, ..CallOptions::new("list", kind) };
        let (more, payload) = self.ask(request, || Request::List { at: at.clone(), limit }).await?;
        let entries = serde_json::from_slice(&payload)
            .map_err(|err| Error::Unreadable { verb: "list", detail: format!("line {}", err.line()) })?;
        Ok((entries, more))
    }

    /// Makes a directory. With `parents` one that is there is no error.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_dir(&self, at: FileRef, mode: u32, parents: bool) -> Result<FileEntry> {
        let again = if parents { Retry::Once } else { Retry::Never };
        let request = CallOptions { again, ..CallOptions::new("make_dir", holding!(File)) };
        Ok(self.ask(request, || Request::MakeDir { at: at.clone(), mode, parents }).await?.0)
    }

    /// Makes a symbolic link. With `replace` one that is there, or a file, gives way; a directory never does. `target` is
    /// text of 1 to 4095 bytes, and may lead anywhere.
    ///
    /// # Errors
    /// [`Error::Refused`]; without `replace` [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_link(&self, at: FileRef, target: &str, replace: bool) -> Result<FileEntry> {
        let again = if replace { Retry::Once } else { Retry::Never };
        let request = CallOptions { again, ..CallOptions::new("make_link", holding!(File)) };
        let ask = || Request::Link { at: at.clone(), target: target.to_owned(), replace };
        Ok(self.ask(request, ask).await?.0)
    }

    /// Gives what is at a path another name in the same directory, which must be free. A link is renamed itself.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known which of the names it has.
    pub async fn rename(&self, at: FileRef, name: &str) -> Result<FileEntry> {
        let request = CallOptions { again: Retry::Never, ..CallOptions::new("rename", holding!(File)) };
        Ok(self.ask(request, || Request::Rename { at: at.clone(), name: name.to_owned() }).await?.0)
    }

    /// Removes a file or an empty directory, or with `recursive` all that is in it.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known how much is gone.
    pub async fn remove(&self, at: FileRef, recursive: bool) -> Result<()> {
        let kind = ReplyKind { fits: |it| *it == CallReply::Done, take: |it| (it == CallReply::Done).then_some(()) };
        let request =
            CallOptions { again: Retry::Never, patience: TRANSFER_TIMEOUT, ..CallOptions::new("remove", kind) };
        self.ask(request, || Request::Remove { at: at.clone(), recursive }).await.map(drop)
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
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("ended", &self.channel.is_none()).finish()
    }
}

impl FileContent {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Refused`] when reading failed; [`Error::GuestLost`]: what is missing has to be asked for again.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(channel) = &mut self.channel else { return Ok(None) };
        let heard = timeout(TRANSFER_TIMEOUT, channel.next())
            .await
            .map_err(|_| Error::TimedOut { verb: "get", after: TRANSFER_TIMEOUT })?;
        match heard? {
            (GuestMessage::Data { last }, piece) => {
                channel.release(piece.len());
                if last {
                    self.channel = None;
                }
                Ok((!piece.is_empty()).then_some(piece))
            }
            (GuestMessage::Failed(fault), _) => Err(refused(fault)),
            _ => Err(not_understood()),
        }
    }
}

/// Sends the content and waits until it is in place, for as long as something goes on.
async fn write(mut channel: Channel, feed: &mut InputSource) -> Result<Result<FileEntry, ConnectionLost>> {
    let to = channel.sender();
    let feeding = feed.run(&to);
    tokio::pin!(feeding);
    let mut fed = false;
    let heard = loop {
        tokio::select! {
            biased;
            heard = channel.next() => break heard,
            all = &mut feeding, if !fed => match all {
                Ok(()) => fed = true,
                Err(source) => return Err(Error::Host { what: "what is to be written cannot be read".into(), source }),
            },
            () = tokio::time::sleep(TRANSFER_TIMEOUT), if fed => {
                return Err(Error::TimedOut { verb: "put", after: TRANSFER_TIMEOUT });
            }
        }
    };
    match heard {
        Ok((GuestMessage::Answer(CallReply::File(entry)), _)) if fed => Ok(Ok(entry)),
        Ok((GuestMessage::Failed(fault), _)) => Err(refused(fault)),
        Ok(_) => Err(not_understood()),
        Err(broken) => Ok(Err(broken)),
    }
}
