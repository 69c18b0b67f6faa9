//! What host and guest say to each other.
//!
//! A [`Frame`](crate::codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection's
//! own: [`Ask::Hello`] and its answer come first. Every other channel is opened by one [`Ask`] and ended by the guest
//! with exactly one of [`Say::End`], [`Say::Answer`] and [`Say::Failed`]; until then the number is taken. Bytes of any
//! kind (arguments, environment, data) are payload, never header.
//!
//! Flow control: a sender of data may have [`WINDOW`] bytes of payload under way on a channel, and gets room back by
//! [`Ask::Credit`] or [`Say::Credit`]. A request that announces bytes may send these and no more. The guest reserves both
//! when the channel is opened, and refuses with [`FaultCode::Busy`] when they would be too many.

mod command;
mod fault;
mod file;
mod job;
pub mod relay;
pub mod space;
mod user;
mod walk;

use serde::{Deserialize, Serialize};

pub use self::command::{Begun, End, Exec, Life, Limits, Show, Size, State, Stream};
pub use self::fault::{Fault, FaultCode};
pub use self::file::{At, Entry, Kind};
pub use self::job::{Found, From, Job, LastLines, Match, Page, Part, Read, Reason, Search, Wait, Waited};
pub use self::user::{Secret, Settle, Settled, Who, Worker};
pub use self::walk::{Holding, Walk, Walked};

/// Version of what is said. Both sides compare it in their hello, and neither speaks to another version.
pub const VERSION: u32 = 1;

/// What a program that the host runs inside says when nobody listens there any more.
pub const SOCKET_GONE: &str = "the socket of the guest was removed";

/// What PID 1 ends with when nobody was there for as long as it waits.
pub const LEFT_ALONE: u8 = 75;

/// Bytes of a header, at most.
pub const MAX_HEADER: usize = 64 << 10;

/// Bytes of a payload, at most.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Channels that are open at once on a connection; more asks wait with the host.
pub const MAX_CHANNELS: usize = 256;

/// Bytes of data under way on a channel, at most.
pub const WINDOW: u64 = 256 << 10;

/// Words and environment of one command together, at most.
pub const MAX_COMMAND: usize = 8 << 20;

/// Bytes of a session's variables together, each with a NUL, and of a secret file, at most.
pub const MAX_SESSION: usize = 1 << 20;

/// Bytes of one variable with its name and a NUL, at most: the kernel's own limit.
pub const MAX_VARIABLE: usize = 128 << 10;

/// Bytes of what a walk tells, at most.
pub const MAX_WALKED: usize = 8 << 20;

/// Bytes that a program is given on a descriptor, at most: they wait in a socket until they are read.
pub const MAX_SECRET: usize = 16 << 10;

/// Frames of an unknown type that open no channel and that a connection survives.
pub const MAX_UNKNOWN: usize = 16;

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
    Relay(relay::Relay),
    /// [`Answer::Probed`]
    Probe(relay::Probe),
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

/// What the guest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Say {
    /// The answer to [`Ask::Hello`].
    Hello(Hello),
    /// Room for that many more bytes of data on this channel.
    Credit(u64),
    /// The command runs.
    Begun(Begun),
    /// Payload: output of the command. Between two pieces there may be a gap, where [`Show::Ends`] leaves out.
    Out {
        /// Where it was printed.
        stream: Stream,
        /// Bytes of that stream before it.
        offset: u64,
    },
    /// Payload: content of a file.
    Data {
        /// Nothing comes after it.
        last: bool,
    },
    /// The command ended, or is left to run. The last word of its channel.
    End(End),
    /// The answer. The last word of its channel, but for `Get`, `Walk`, `Space` and `Outlet`, where data follows.
    Answer(Answer),
    /// Why not. The last word of its channel; on channel 0 that of the connection: what the host did against the protocol.
    Failed(Fault),
    /// A type that this version does not know. It is counted and skipped.
    #[default]
    Unknown,
}

/// The first words of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`]
    pub version: u32,
    /// 32 hex digits that the host chose; the guest gives them back.
    pub nonce: String,
    /// Random, of this run of the guest: a container that was started anew has another one. Empty from the host.
    #[serde(default)]
    pub run: String,
    /// How output is kept. Only the host says it.
    #[serde(default)]
    pub keep: Option<Keep>,
}

/// How much of what commands print is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Bytes of each job.
    pub bytes: u64,
    /// Bytes of all jobs together; the oldest finished one goes first.
    pub total: u64,
    /// Seconds after the end of a job.
    pub for_s: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { bytes: 64 << 20, total: 512 << 20, for_s: 3600 }
    }
}

/// An answer to what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// All jobs, oldest first.
    Jobs(Vec<Job>),
    /// One job.
    Job(Job),
    /// A job that had to be ended, or had ended before.
    Cancelled {
        /// It ran, and this call ended it.
        now: bool,
        /// As it is.
        job: Job,
    },
    /// A piece of kept output; the bytes are the payload.
    Page(Page),
    /// Matches.
    Found(Found),
    /// What a wait came to.
    Waited(Waited),
    /// The user.
    Settled(Settled),
    /// A file.
    File(Entry),
    /// The entries of a directory are the payload.
    Entries {
        /// There are more.
        more: bool,
    },
    /// What a walk met follows as data.
    Walked {
        /// A limit was reached, or something could not be looked at: there may be more.
        more: bool,
    },
    /// What came of an act in a workspace follows as data.
    Space,
    /// What could be reached.
    Probed(relay::Probed),
    /// It is done.
    Done,
}
