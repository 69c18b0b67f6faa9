//! What the guest says.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{Ask, Show};
use super::{Begun, End, Entry, Fault, Found, Hello, Job, Page, Settled, Stream, Waited, relay};

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
