//! What the host says.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::relay;
use super::relay::{Probe, Relay};
#[cfg(doc)]
use super::{Answer, Entry, FaultCode, MAX_SESSION, Match, Say, Walked};
use super::{At, Exec, Hello, Read, Search, Secret, Settle, Show, Size, Wait, Walk, Worker, space};

/// What the host says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Opens the connection, on channel 0.
    Hello(Hello),
    /// Room for that many more bytes of output or data on this channel.
    Credit(u64),
    /// Runs a command. Payload: its words, then its environment (`NAME=value`), each ended by a NUL.
    Exec(Exec),
    /// Payload: the next part of a command's words and environment, of a session's variables, or of a secret file.
    More,
    /// What all commands find in their environment from now on, above the guest's own and below theirs, in place of what
    /// was said before: [`Answer::Done`]. Payload: `NAME=value`, each ended by a NUL.
    Session {
        /// Bytes in the payload and what follows by [`Ask::More`], at most [`MAX_SESSION`].
        bytes: u32,
    },
    /// Writes a file below `/.coracle/run`, where no file call reaches: [`Answer::Done`]. Payload: its content.
    Secret(Secret),
    /// Payload: input of the command, or content of the file.
    Data {
        /// Nothing comes after it.
        last: bool,
    },
    /// Ends the command of this channel, with its tree; [`Say::End`] follows.
    Cancel,
    /// The terminal has another size.
    Resize(Size),
    /// Nobody waits for this channel any more. A foreground command is ended; a job goes on. Nothing is answered, and
    /// the number is free when the guest has said the channel's last word.
    Leave,
    /// Follows a command that was begun on an earlier connection; [`Say::Begun`] follows.
    Attach {
        /// Which.
        job: String,
        /// Bytes of its standard output that were received.
        stdout: u64,
        /// Bytes of its standard error that were received.
        stderr: u64,
        /// As in [`Exec::show`].
        show: Show,
    },
    /// [`Answer::Jobs`]
    Jobs,
    /// [`Answer::Job`]
    Job {
        /// Which.
        job: String,
    },
    /// Ends a job with its tree: [`Answer::Cancelled`], when it is gone.
    CancelJob {
        /// Which.
        job: String,
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// [`Answer::Page`], with the bytes as payload.
    Read(Read),
    /// The last lines of both streams in order of arrival: [`Answer::Page`], with the bytes as payload.
    Tail {
        /// Which.
        job: String,
        /// How many lines.
        lines: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// [`Answer::Found`], with the matches as payload: JSON, an array of [`Match`].
    Search(Search),
    /// [`Answer::Waited`], when it is so, with the last lines as payload if they are asked for.
    Wait(Wait),
    /// Makes sure of a user and a directory: [`Answer::Settled`].
    Settle(Settle),
    /// Opens a socket inside for a worker, once in the life of a guest: [`Answer::Done`]. The same again changes nothing.
    Worker(Worker),
    /// [`Answer::File`] for a path.
    Stat(At),
    /// [`Answer::File`], then the content as [`Say::Data`].
    Get {
        /// Of what.
        at: At,
        /// From this byte on.
        offset: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// Writes a file whole, from [`Ask::Data`]: [`Answer::File`] when it is in place.
    Put {
        /// Where.
        at: At,
        /// Permission bits of a new file; an existing one keeps its own, unless `exact`. `None` is 0666 without the umask.
        mode: Option<u32>,
        /// A file that is there gets `mode`, too.
        #[serde(default)]
        exact: bool,
        /// Make missing parents.
        parents: bool,
        /// Replace a file that is there.
        replace: bool,
    },
    /// [`Answer::Entries`], with the entries as payload: JSON, an array of [`Entry`].
    List {
        /// Which directory.
        at: At,
        /// At most so many entries.
        limit: u64,
    },
    /// Makes a directory: [`Answer::File`].
    MakeDir {
        /// Where.
        at: At,
        /// Permission bits.
        mode: u32,
        /// Make missing parents; one that is there already is no error.
        parents: bool,
    },
    /// Makes a symbolic link: [`Answer::File`].
    Link {
        /// Where.
        at: At,
        /// What it says, which need not be there: 1 to 4095 bytes without a NUL.
        target: String,
        /// Replace a file or a link that is there.
        replace: bool,
    },
    /// Gives what is there another name in the same directory, which has to be free: [`Answer::File`].
    Rename {
        /// What. A link is renamed itself.
        at: At,
        /// One part of a path.
        name: String,
    },
    /// Removes a file or an empty directory: [`Answer::Done`].
    Remove {
        /// What.
        at: At,
        /// With all that is in it.
        recursive: bool,
    },
    /// Looks for files below a directory: [`Answer::Walked`], then the entries as [`Say::Data`]: JSON, an array of
    /// [`Walked`]. Payload: what is searched for.
    Walk(Walk),
    /// Does something with the files of a workspace: [`Answer::Space`], then [`space::Done`] as [`Say::Data`] (JSON).
    /// Payload: what the act takes.
    Space(space::Space),
    /// Listens on two ports of the container's loopback and relays what comes there to the host's proxy, from now on with this
    /// token: [`Answer::Done`]. Payload: the token, then a text.
    Relay(Relay),
    /// [`Answer::Probed`]
    Probe(Probe),
    /// Waits for the next connection to a port that is relayed by channels: [`Answer::Done`] when there is one. Then its
    /// bytes are [`Say::Data`], the token before them, and what it is sent is [`Ask::Data`]; each side says when nothing
    /// more comes, and a second [`Answer::Done`] is the last word.
    /// The port is [`relay::API_PORT`] or [`relay::EGRESS_PORT`].
    Outlet(u16),
    /// A request that this version does not know is answered with [`FaultCode::Unsupported`]. On channel 0, or on a channel
    /// that is open, it is counted and skipped.
    #[default]
    Unknown,
}
