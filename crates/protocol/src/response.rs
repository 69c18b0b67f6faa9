//! What the guest says.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::OutputMode;
use super::mux::{Continue, Continues};
use super::{
    ExecStarted, ExecStatus, FileEntry, Hello, JobInfo, OutputPage, RpcError, SearchResult, Stream, UserInfo,
    WaitResult, relay,
};

/// What the guest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestMessage {
    /// The answer to [`Request::Hello`](crate::Request::Hello).
    Hello(Hello),
    /// Room for that many more bytes of data on this channel.
    Credit(u64),
    /// The command runs.
    Begun(ExecStarted),
    /// Payload: output of the command. Between two pieces there may be a gap, where [`OutputMode::Ends`] leaves out.
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
    End(ExecStatus),
    /// The answer. The last word of its channel, but for `Get`, `ScanRequest`, `WorkspaceRequest` and `Outlet`, where data follows.
    Answer(CallReply),
    /// Why not. The last word of its channel; on channel 0 that of the connection: what the host did against the protocol.
    Failed(RpcError),
    /// A type that this version does not know. It is counted and skipped.
    #[default]
    Unknown,
}

/// An answer to what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallReply {
    /// All jobs, oldest first.
    Jobs(Vec<JobInfo>),
    /// One job.
    Job(JobInfo),
    /// A job that had to be ended, or had ended before.
    Cancelled {
        /// It ran, and this call ended it.
        now: bool,
        /// As it is.
        job: JobInfo,
    },
    /// A piece of kept output; the bytes are the payload.
    Page(OutputPage),
    /// Matches.
    Found(SearchResult),
    /// What a wait came to.
    Waited(WaitResult),
    /// The user.
    Settled(UserInfo),
    /// A file.
    File(FileEntry),
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
    Probed(relay::EgressReport),
    /// It is done.
    Done,
}

impl Continues for GuestMessage {
    fn is_only_bytes(&self) -> bool {
        matches!(self, Self::Out { .. } | Self::Data { last: false })
    }

    fn join(&mut self, bytes: usize, next: &Self) -> Continue {
        match (self, next) {
            (Self::Out { stream, offset }, Self::Out { stream: same, offset: next }) => {
                match (stream == same, offset.checked_add(bytes as u64) == Some(*next)) {
                    (false, _) => Continue::OtherStream,
                    (true, true) => Continue::Joined,
                    (true, false) => Continue::No,
                }
            }
            (Self::Data { last: before @ false }, Self::Data { last }) => {
                *before = *last;
                Continue::Joined
            }
            _ => Continue::No,
        }
    }
}
