//! What host and guest say to each other.
//!
//! A [`Frame`](crate::codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection's
//! own: [`Ask::Hello`] and its answer come first. Every other channel is opened by one [`Ask`] and ended by the guest
//! with exactly one of [`Say::End`], [`Say::Answer`] and [`Say::Failed`]; until then the number is taken. Bytes of any
//! kind (arguments, environment, data) are payload, never header.
//!
//! Flow control: a sender of data may have [`WINDOW`] bytes of payload under way on a channel, and gets room back by
//! [`Ask::Credit`] or [`Say::Credit`].

pub mod relay;
pub mod space;
mod walk;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::walk::{Holding, Walk, Walked};

/// Version of what is said. A guest of another version is not spoken to.
pub const VERSION: u32 = 1;

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

/// Frames of an unknown type that a connection survives.
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
    /// [`Answer::Waited`], when it is so.
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
    /// A type that this version does not know. It is counted and skipped.
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
    /// Why not. The last word of its channel.
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

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Its id: 8 hex digits that the host chose. One that is in use is [`FaultCode::JobTaken`], so nothing runs twice.
    pub job: String,
    /// The only word is a script for `/bin/sh`.
    pub shell: bool,
    /// Bytes of words in the payload and what follows by [`Ask::More`].
    pub words: u32,
    /// Bytes of environment behind them. It is added to the environment of the guest itself, unless `bare`.
    pub env: u32,
    /// Bytes behind these that the program reads from its descriptor 3, at most [`MAX_SECRET`]. Not with `shell`.
    #[serde(default)]
    pub secret: u32,
    /// Its environment is what was sent, and nothing else.
    #[serde(default)]
    pub bare: bool,
    /// Names of [`Secret`] files that are there for it alone: gone when it has ended, or does not begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// A caller inside asked for it. Set where it is heard, and never sent.
    #[serde(skip)]
    pub inside: bool,
    /// As whom.
    pub user: Who,
    /// Where: an absolute path beneath the root.
    pub cwd: String,
    /// Input follows by [`Ask::Data`]; without it there is an end of file at once.
    pub stdin: bool,
    /// On a terminal of that size; both outputs are one then.
    pub terminal: Option<Size>,
    /// When it is ended.
    pub limits: Limits,
    /// What becomes of it when the channel is left, or a limit is reached.
    pub life: Life,
    /// What of its output is sent.
    pub show: Show,
    /// Bytes of each stream that the caller passes on: a command that printed more is kept, so that the rest can be had.
    #[serde(default)]
    pub cut: u64,
    /// Refused when so many jobs run that were begun as [`Life::Job`].
    pub most: Option<u32>,
}

/// A file on the container's own tmpfs, gone with the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Its path below `/.coracle/run`: parts of letters, digits, `.`, `_` and `-`. The first one is none that the guest
    /// uses itself: it neither begins with a dot nor is `sock` or `shell` or ends with `.sock`.
    pub name: String,
    /// Whose it is, and the directories on the way.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// 0400 or 0600.
    pub mode: u32,
    /// Bytes in the payload and what follows by [`Ask::More`], at most [`MAX_SESSION`].
    pub bytes: u32,
}

/// What becomes of a command when nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// It is ended at a limit, and when its connection has been gone for 5 s.
    Foreground,
    /// At a limit [`End`] is said and it goes on as a job; so it does when its connection is gone.
    Keep,
    /// [`End`] is said at once and it goes on. A limit ends it.
    Job,
}

/// What of a command's output is sent by [`Say::Out`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// All, as it comes. A slow receiver slows the command.
    All,
    /// Of each stream so many bytes from its start as they come, and as many from its end when it ended.
    Ends {
        /// Bytes of each end.
        bytes: u64,
    },
    /// Nothing.
    Nothing,
}

/// Who does something inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Numbers. The group is that of the passwd entry when missing, else the same number.
    Ids {
        /// User.
        uid: u32,
        /// Group.
        gid: Option<u32>,
    },
    /// A name of the passwd file.
    Name(String),
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// When a command is ended before its end, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Total time.
    pub total_ms: Option<u64>,
    /// Time without a byte on either stream.
    pub silence_ms: Option<u64>,
    /// Time between TERM and KILL.
    pub grace_ms: u64,
}

/// One of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which kept output is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Both streams in order of arrival.
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// How a command ended, or that it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How far it is.
    pub state: State,
    /// Exit code, 128 + n when signal n ended it; none while it runs.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Bytes printed to standard output.
    pub stdout: u64,
    /// Bytes printed to standard error.
    pub stderr: u64,
    /// Bytes of both that are not kept any more.
    pub dropped: u64,
    /// Processes that it left behind.
    pub left: u32,
    /// After a limit or a cancel: nothing of its tree is left. `None` when nothing had to be ended.
    pub tree_ended: Option<bool>,
    /// It did not end well, and meanwhile the kernel ended a process of the container for memory.
    #[serde(default)]
    pub oom: bool,
    /// From start to end.
    pub ms: u64,
    /// Its output can be asked for by its id.
    pub kept: bool,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs.
    Running,
    /// It ended by itself, or by a signal of somebody else's.
    Exited,
    /// Its total time ended it. With [`Life::Keep`] and no code: it was reached, and the command goes on.
    TotalTime,
    /// Silence ended it. With [`Life::Keep`] as for the total time.
    Silence,
    /// It was cancelled.
    Cancelled,
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

/// A command that the guest remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// The first 200 characters of its words, joined by blanks.
    pub command: String,
    /// It runs as uid 0.
    pub root: bool,
    /// Somebody waits for it, or waited.
    pub foreground: bool,
    /// Milliseconds since 1970.
    pub began_ms: u64,
    /// Milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// Where it stands.
    pub end: End,
}

/// Asks for a piece of kept output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Of which job.
    pub job: String,
    /// Which output.
    pub part: Part,
    /// From where.
    pub from: From,
    /// At most so many bytes.
    pub limit: u64,
}

/// A place in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// A byte; negative counts from the end.
    Offset(i64),
    /// A line, from 1.
    Line(u64),
}

/// Where a piece of kept output lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Where the payload begins.
    pub offset: u64,
    /// Where it ends.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The command runs.
    pub running: bool,
}

/// Looks for lines in kept output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Of which job.
    pub job: String,
    /// Which output.
    pub part: Part,
    /// From where.
    pub from: From,
    /// A regular expression, matched against each line without its end.
    pub pattern: String,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match.
    pub context: u32,
    /// At most so many matches.
    pub most: u32,
}

/// Lines that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// In order. Not in the header: they are the payload.
    #[serde(skip)]
    pub matches: Vec<Match>,
    /// There are more.
    pub more: bool,
    /// Where the search stands: to go on from.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The command runs.
    pub running: bool,
}

/// A line that matches. Lines are cut at 4 KiB and hold what UTF-8 can say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// Where the line begins.
    pub offset: u64,
    /// Its number, from 1.
    pub line: u64,
    /// Without its end.
    pub text: String,
    /// Lines before.
    pub before: Vec<String>,
    /// Lines after.
    pub after: Vec<String>,
}

/// Waits for the first of some events; the end of the job is always one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For which job.
    pub job: String,
    /// A line matches, as in [`Search`].
    pub pattern: Option<String>,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Where lines are looked at from, in [`Part::All`]; none is what comes from now on.
    pub from: Option<i64>,
    /// A connection to `host:port` from inside succeeds.
    pub port: Option<String>,
    /// Milliseconds without output.
    pub idle_ms: Option<u64>,
    /// Milliseconds after which nobody waits any longer.
    pub limit_ms: u64,
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Why it ended.
    pub reason: Reason,
    /// The line that matched.
    pub found: Option<Match>,
    /// The job as it is.
    pub job: Job,
    /// Milliseconds waited.
    pub ms: u64,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The job ended.
    Exit,
    /// A line matched.
    Pattern,
    /// The port takes connections.
    Port,
    /// It has been silent.
    Idle,
    /// The limit.
    Limit,
}

/// Makes sure that a user has an entry and a home, and that a directory is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A directory to be made for the user when it is missing.
    pub workdir: String,
    /// What is not the container's own: nothing at or below one of these gets another owner.
    #[serde(default)]
    pub bound: Vec<String>,
}

/// A program inside that may use this guest, as far as another user's files and commands go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Who connects: user and group.
    pub worker: (u32, u32),
    /// Whose files and commands they are: user and group.
    pub agent: (u32, u32),
    /// The directory beneath which all of it lies.
    pub root: String,
}

/// A user, and what it may do: seen by a process of that user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Name.
    pub name: String,
    /// Home.
    pub home: String,
    /// Login shell; `/bin/sh` when the image has none at all.
    pub shell: String,
    /// Uid that the process saw.
    pub uid: u32,
    /// Gid that the process saw.
    pub gid: u32,
    /// It can read and enter the directory.
    pub readable: bool,
    /// It can write there.
    pub writable: bool,
}

/// A path, and who asks for it. It is resolved beneath the root; `/proc`, `/sys` and `/.coracle` are not reachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// As whom.
    pub user: Who,
    /// An absolute path.
    pub path: String,
    /// What a link at its end leads to, not the link itself.
    pub follow: bool,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Last part of the path, as text.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Where a link leads.
    pub link: Option<String>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device.
    Special,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What a caller can tell apart.
    pub code: FaultCode,
    /// A sentence without a final period.
    pub message: String,
    /// What the sentence is about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
}

/// Bytes of a fault's message, at most.
const LONGEST_MESSAGE: usize = 4 << 10;

impl Fault {
    /// A fault without details. What is said beyond 4 KiB is cut: it may quote anything, and goes into a header.
    #[must_use]
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        Self { code, message, about: BTreeMap::new() }
    }
}

/// Faults that a caller can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// What was asked for makes no sense.
    Invalid,
    /// The work directory is missing, or no directory.
    NoDirectory,
    /// A script needs `/bin/sh`, and there is none.
    NoShell,
    /// The program is missing or cannot be executed; only for a job.
    NoProgram,
    /// No such user.
    NoUser,
    /// The kernel takes no command of that length.
    TooLong,
    /// No job of that id.
    NoJob,
    /// A job of that id is there already.
    JobTaken,
    /// As many jobs run as may.
    TooMany,
    /// The process could not be started, by no fault of the command.
    CannotStart,
    /// The path is missing.
    NotFound,
    /// The path is there already.
    Exists,
    /// The user may not.
    Denied,
    /// It is a directory, or none, or no regular file.
    WrongKind,
    /// Reading or writing failed.
    Io,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}
