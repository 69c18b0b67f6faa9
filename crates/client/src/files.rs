//! Files inside, as the user who asks for them.

use std::fmt;
use std::time::Duration;

use coracle_protocol::{Answer, Ask, At, Entry, MAX_PAYLOAD, Say};
use coracle_types::{Error, Input, Result};
use tokio::time::timeout;

use crate::call::{Again, Kind, Request, not_understood, refused, sendable};
use crate::channels::Talk;
use crate::connection::{Broken, Channel};
use crate::feed::Feed;
use crate::jobs::holding;
use crate::link::Link;

/// A large tree, or a slow disk.
const LONG: Duration = Duration::from_secs(600);

impl Link {
    /// What is at a path.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn stat(&self, at: At) -> Result<Entry> {
        Ok(self.ask(Request::new("stat", holding!(File)), || Ask::Stat(at.clone())).await?.0)
    }

    /// A file and its content from `offset` on, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn get(&self, at: At, offset: u64, limit: u64) -> Result<(Entry, Vec<u8>)> {
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
    pub async fn open_file(&self, at: At, offset: u64, limit: u64) -> Result<(Entry, Content)> {
        let opening = async {
            let mut first = true;
            loop {
                let ask = sendable(Ask::Get { at: at.clone(), offset, limit })?;
                match self.first_of_content(ask, limit).await? {
                    Ok(opened) => return Ok(opened),
                    Err(broken) if first && !broken.full => first = false,
                    Err(broken) => return Err(broken.of("get")),
                }
            }
        };
        timeout(LONG, opening).await.map_err(|_| Error::TimedOut { verb: "get", after: LONG })?
    }

    async fn first_of_content(&self, ask: Ask, limit: u64) -> Result<Result<(Entry, Content), Broken>> {
        let talk = Talk::Content { fits: |it| matches!(it, Answer::File(_)), most: limit };
        let opened = self.connection().await?.open(ask, Vec::new(), talk).await;
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        match channel.next().await {
            Ok((Say::Answer(Answer::File(entry)), _)) => Ok(Ok((entry, Content { channel: Some(channel) }))),
            Ok((Say::Failed(fault), _)) => Err(refused(fault)),
            Ok(_) => Err(not_understood()),
            Err(broken) => Ok(Err(broken)),
        }
    }

    /// Writes a file whole: it is in place when this returns, and as it was before when it fails.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known which of the two.
    pub async fn put(&self, put: Put) -> Result<Entry> {
        let Put { at, mode, exact, parents, replace, content } = put;
        let mut feed = Feed::content(content);
        loop {
            let ask = sendable(Ask::Put { at: at.clone(), mode, exact, parents, replace })?;
            let talk = Talk::Answer { fits: |it| matches!(it, Answer::File(_)), payload: 0 };
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
    pub async fn list(&self, at: At, limit: u64) -> Result<(Vec<Entry>, bool)> {
        let kind = Kind {
            fits: |it| matches!(it, Answer::Entries { .. }),
            take: |it| match it {
                Answer::Entries { more } => Some(more),
                _ => None,
            },
        };
        let request = Request { payload: MAX_PAYLOAD as u64, again: Again::List, ..Request::new("list", kind) };
        let (more, payload) = self.ask(request, || Ask::List { at: at.clone(), limit }).await?;
        let entries = serde_json::from_slice(&payload)
            .map_err(|err| Error::Unreadable { verb: "list", detail: format!("line {}", err.line()) })?;
        Ok((entries, more))
    }

    /// Makes a directory. With `parents` one that is there is no error.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_dir(&self, at: At, mode: u32, parents: bool) -> Result<Entry> {
        let again = if parents { Again::Once } else { Again::Never };
        let request = Request { again, ..Request::new("make_dir", holding!(File)) };
        Ok(self.ask(request, || Ask::MakeDir { at: at.clone(), mode, parents }).await?.0)
    }

    /// Makes a symbolic link. With `replace` one that is there, or a file, gives way; a directory never does. `target` is
    /// text of 1 to 4095 bytes, and may lead anywhere.
    ///
    /// # Errors
    /// [`Error::Refused`]; without `replace` [`Error::GuestLost`] when it is not known whether it was made.
    pub async fn make_link(&self, at: At, target: &str, replace: bool) -> Result<Entry> {
        let again = if replace { Again::Once } else { Again::Never };
        let request = Request { again, ..Request::new("make_link", holding!(File)) };
        let ask = || Ask::Link { at: at.clone(), target: target.to_owned(), replace };
        Ok(self.ask(request, ask).await?.0)
    }

    /// Gives what is at a path another name in the same directory, which must be free. A link is renamed itself.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known which of the names it has.
    pub async fn rename(&self, at: At, name: &str) -> Result<Entry> {
        let request = Request { again: Again::Never, ..Request::new("rename", holding!(File)) };
        Ok(self.ask(request, || Ask::Rename { at: at.clone(), name: name.to_owned() }).await?.0)
    }

    /// Removes a file or an empty directory, or with `recursive` all that is in it.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::GuestLost`] when it is not known how much is gone.
    pub async fn remove(&self, at: At, recursive: bool) -> Result<()> {
        let kind = Kind { fits: |it| *it == Answer::Done, take: |it| (it == Answer::Done).then_some(()) };
        let request = Request { again: Again::Never, patience: LONG, ..Request::new("remove", kind) };
        self.ask(request, || Ask::Remove { at: at.clone(), recursive }).await.map(drop)
    }
}

/// A file to be written.
#[derive(Debug)]
pub struct Put {
    /// Where.
    pub at: At,
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
pub struct Content {
    /// None at its end.
    channel: Option<Channel>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("ended", &self.channel.is_none()).finish()
    }
}

impl Content {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Refused`] when reading failed; [`Error::GuestLost`]: what is missing has to be asked for again.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(channel) = &mut self.channel else { return Ok(None) };
        let heard = timeout(LONG, channel.next()).await.map_err(|_| Error::TimedOut { verb: "get", after: LONG })?;
        match heard? {
            (Say::Data { last }, piece) => {
                channel.took(piece.len());
                if last {
                    self.channel = None;
                }
                Ok((!piece.is_empty()).then_some(piece))
            }
            (Say::Failed(fault), _) => Err(refused(fault)),
            _ => Err(not_understood()),
        }
    }
}

/// Sends the content and waits until it is in place, for as long as something goes on.
async fn write(mut channel: Channel, feed: &mut Feed) -> Result<Result<Entry, Broken>> {
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
            () = tokio::time::sleep(LONG), if fed => {
                return Err(Error::TimedOut { verb: "put", after: LONG });
            }
        }
    };
    match heard {
        Ok((Say::Answer(Answer::File(entry)), _)) if fed => Ok(Ok(entry)),
        Ok((Say::Failed(fault), _)) => Err(refused(fault)),
        Ok(_) => Err(not_understood()),
        Err(broken) => Ok(Err(broken)),
    }
}
