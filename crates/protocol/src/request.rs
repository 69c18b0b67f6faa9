//! What the host says.

use serde::{Deserialize, Serialize};

use super::mux::{Continue, Continues};
#[cfg(doc)]
use super::relay;
use super::relay::{OpenProxyPorts, ProbeEgress};
#[cfg(doc)]
use super::{CallReply, ErrorCode, FileEntry, GuestMessage, LineMatch, MAX_SESSION, ScanEntry};
use super::{
    EnsureUser, ExecRequest, FileRef, Hello, OpenWorkerSocket, OutputMode, PutSecret, ReadRequest, ScanRequest,
    SearchRequest, TerminalSize, WaitRequest, workspace,
};

/// What the host says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Opens the connection, on channel 0.
    Hello(Hello),
    /// Room for that many more bytes of output or data on this channel.
    Credit(u64),
    /// Runs a command. Payload: its words, then its environment (`NAME=value`), each ended by a NUL.
    Exec(ExecRequest),
    /// Payload: the next part of a command's words and environment, of a session's variables, or of a secret file.
    More,
    /// What all commands find in their environment from now on, above the guest's own and below theirs, in place of what
    /// was said before: [`CallReply::Done`]. Payload: `NAME=value`, each ended by a NUL.
    Session {
        /// Bytes in the payload and what follows by [`Request::More`], at most [`MAX_SESSION`].
        bytes: u32,
    },
    /// Writes a file below `/.coracle/run`, where no file call reaches: [`CallReply::Done`]. Payload: its content.
    Secret(PutSecret),
    /// Payload: input of the command, or content of the file.
    Data {
        /// Nothing comes after it.
        last: bool,
    },
    /// Ends the command of this channel, with its tree; [`GuestMessage::End`] follows.
    Cancel,
    /// The terminal has another size.
    Resize(TerminalSize),
    /// Nobody waits for this channel any more. A foreground command is ended; a job goes on. Nothing is answered, and
    /// the number is free when the guest has said the channel's last word.
    Leave,
    /// Follows a command that was begun on an earlier connection; [`GuestMessage::Begun`] follows.
    Attach {
        /// Which.
        job: String,
        /// Bytes of its standard output that were received.
        stdout: u64,
        /// Bytes of its standard error that were received.
        stderr: u64,
        /// As in [`ExecRequest::show`].
        show: OutputMode,
    },
    /// [`CallReply::Jobs`]
    Jobs,
    /// [`CallReply::Job`]
    Job {
        /// Which.
        job: String,
    },
    /// Ends a job with its tree: [`CallReply::Cancelled`], when it is gone.
    CancelJob {
        /// Which.
        job: String,
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// [`CallReply::Page`], with the bytes as payload.
    Read(ReadRequest),
    /// The last lines of both streams in order of arrival: [`CallReply::Page`], with the bytes as payload.
    Tail {
        /// Which.
        job: String,
        /// How many lines.
        lines: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// [`CallReply::Found`], with the matches as payload: JSON, an array of [`LineMatch`].
    Search(SearchRequest),
    /// [`CallReply::Waited`], when it is so, with the last lines as payload if they are asked for.
    Wait(WaitRequest),
    /// Makes sure of a user and a directory: [`CallReply::Settled`].
    Settle(EnsureUser),
    /// Opens a socket inside for a worker, once in the life of a guest: [`CallReply::Done`]. The same again changes nothing.
    Worker(OpenWorkerSocket),
    /// [`CallReply::File`] for a path.
    Stat(FileRef),
    /// [`CallReply::File`], then the content as [`GuestMessage::Data`].
    Get {
        /// Of what.
        at: FileRef,
        /// From this byte on.
        offset: u64,
        /// At most so many bytes.
        limit: u64,
    },
    /// Writes a file whole, from [`Request::Data`]: [`CallReply::File`] when it is in place.
    Put {
        /// Where.
        at: FileRef,
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
    /// [`CallReply::Entries`], with the entries as payload: JSON, an array of [`FileEntry`].
    List {
        /// Which directory.
        at: FileRef,
        /// At most so many entries.
        limit: u64,
    },
    /// Makes a directory: [`CallReply::File`].
    MakeDir {
        /// Where.
        at: FileRef,
        /// Permission bits.
        mode: u32,
        /// Make missing parents; one that is there already is no error.
        parents: bool,
    },
    /// Makes a symbolic link: [`CallReply::File`].
    Link {
        /// Where.
        at: FileRef,
        /// What it says, which need not be there: 1 to 4095 bytes without a NUL.
        target: String,
        /// Replace a file or a link that is there.
        replace: bool,
    },
    /// Gives what is there another name in the same directory, which has to be free: [`CallReply::File`].
    Rename {
        /// What. A link is renamed itself.
        at: FileRef,
        /// One part of a path.
        name: String,
    },
    /// Removes a file or an empty directory: [`CallReply::Done`].
    Remove {
        /// What.
        at: FileRef,
        /// With all that is in it.
        recursive: bool,
    },
    /// Looks for files below a directory: [`CallReply::Walked`], then the entries as [`GuestMessage::Data`]: JSON, an array of
    /// [`ScanEntry`]. Payload: what is searched for.
    Walk(ScanRequest),
    /// Does something with the files of a workspace: [`CallReply::Space`], then [`workspace::WorkspaceReply`] as [`GuestMessage::Data`] (JSON).
    /// Payload: what the act takes.
    Space(workspace::WorkspaceRequest),
    /// Listens on two ports of the container's loopback and relays what comes there to the host's proxy, from now on with this
    /// token: [`CallReply::Done`]. Payload: the token, then a text.
    Relay(OpenProxyPorts),
    /// [`CallReply::Probed`]
    Probe(ProbeEgress),
    /// Waits for the next connection to a port that is relayed by channels: [`CallReply::Done`] when there is one. Then its
    /// bytes are [`GuestMessage::Data`], the token before them, and what it is sent is [`Request::Data`]; each side says when nothing
    /// more comes, and a second [`CallReply::Done`] is the last word.
    /// The port is [`relay::API_PORT`] or [`relay::EGRESS_PORT`].
    Outlet(u16),
    /// A request that this version does not know is answered with [`ErrorCode::Unsupported`]. On channel 0, or on a channel
    /// that is open, it is counted and skipped.
    #[default]
    Unknown,
}

impl Continues for Request {
    fn is_only_bytes(&self) -> bool {
        matches!(self, Self::Data { last: false } | Self::More)
    }

    fn join(&mut self, bytes: usize, next: &Self) -> Continue {
        match (self, next) {
            (Self::Data { last: before @ false }, Self::Data { last }) if bytes > 0 => *before = *last,
            (Self::More, Self::More) => {}
            // The latest size is the one that counts.
            (Self::Resize(before), Self::Resize(size)) => *before = *size,
            _ => return Continue::No,
        }
        Continue::Joined
    }
}
