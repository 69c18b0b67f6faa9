//! What a call is. [`calls`](crate::calls) has the table of all calls.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ErrorCode, MAX_HEADER, OpenWorkerSocket, RpcError};

/// A request that opens a channel, and what comes back.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    /// Its name on the wire and in errors.
    const NAME: &'static str;
    /// What comes before output and data.
    type Event: Serialize + DeserializeOwned + Send;
    /// What ends the channel.
    type Reply: Serialize + DeserializeOwned + Send;
    /// What a repetition does.
    const EFFECT: Effect;
    /// What else travels on the channel.
    const STREAMS: Streams;
    /// Who may make it.
    const SCOPE: CallScope;
    /// Bytes of the encoded request, at most.
    const REQUEST_LIMIT: usize = MAX_HEADER;
    /// Bytes of the encoded reply, at most.
    const REPLY_LIMIT: usize = MAX_HEADER;

    /// What a repetition of this request does.
    fn effect(&self) -> Effect {
        Self::EFFECT
    }

    /// After so long no reply is expected any more. A guest that runs replies at once; a disk may be slow.
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// Bytes of data that the guest may send.
    fn data_limit(&self) -> u64 {
        u64::MAX
    }

    /// The job that it concerns.
    fn job(&self) -> Option<&str> {
        None
    }

    /// Restricts a request of the worker to the agent's user and directory.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`] when it reaches for something else.
    fn confine(&mut self, _to: &OpenWorkerSocket) -> Result<(), RpcError> {
        Ok(())
    }
}

/// See [`Call::timeout`].
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// What a call does when it is made again, which decides whether it may be when a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    ReadOnly,
    /// It changes nothing more.
    Idempotent,
    /// It changes something each time.
    Once,
}

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallScope {
    /// The host.
    Host,
    /// The host, and the worker as [confined](Call::confine).
    Worker,
}

/// What travels on a channel beside request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Nothing.
    Nothing,
    /// Input to the guest; an event, then output of two streams from it.
    Command,
    /// The same without input.
    Follow,
    /// Data to the guest.
    Upload,
    /// An event, then data from the guest.
    Download,
    /// An event, then data in both directions.
    Tunnel,
}

impl Streams {
    /// Whether the host sends data.
    #[must_use]
    pub fn has_input(self) -> bool {
        matches!(self, Self::Command | Self::Upload | Self::Tunnel)
    }

    /// Whether the guest sends output of a command.
    #[must_use]
    pub fn has_output(self) -> bool {
        matches!(self, Self::Command | Self::Follow)
    }

    /// Whether the guest sends data.
    #[must_use]
    pub fn has_data(self) -> bool {
        matches!(self, Self::Download | Self::Tunnel)
    }

    /// Whether the guest sends an event.
    #[must_use]
    pub fn has_event(self) -> bool {
        self.has_output() || self.has_data()
    }
}

/// What has to be known of a call before its request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// [`Call::NAME`]
    pub name: &'static str,
    /// [`Call::REQUEST_LIMIT`]
    pub request_limit: usize,
    /// [`Call::STREAMS`]
    pub streams: Streams,
    /// [`Call::SCOPE`]
    pub scope: CallScope,
}

impl CallInfo {
    /// What is known of a type of call.
    #[must_use]
    pub const fn new<C: Call>() -> Self {
        Self { name: C::NAME, request_limit: C::REQUEST_LIMIT, streams: C::STREAMS, scope: C::SCOPE }
    }
}

/// Whether an absolute path lies at or below another by its words. Links are resolved where it is used, as the agent.
pub(crate) fn is_beneath(path: &str, root: &str) -> bool {
    let parts = |it: &str| it.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    path.starts_with('/')
        && !path.split('/').any(|it| matches!(it, "." | ".."))
        && parts(path).starts_with(&parts(root))
}

impl OpenWorkerSocket {
    /// Whether its root is a directory below `/`, by its words.
    #[must_use]
    pub fn has_valid_root(&self) -> bool {
        is_beneath(&self.root, "/") && self.root != "/"
    }

    /// Checks that a path lies beneath the root.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`]
    pub(crate) fn check_beneath(&self, path: &str) -> Result<(), RpcError> {
        match is_beneath(path, &self.root) {
            true => Ok(()),
            false => {
                Err(RpcError::new(ErrorCode::Denied, format!("only what lies beneath `{}` is reached", self.root)))
            }
        }
    }
}
