//! The trait of a call. [`calls`](crate::calls) has the table of all calls.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ErrorCode, MAX_HEADER, OpenWorkerSocket, RpcError};

/// A request that opens a channel, with its reply.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    /// Its name on the wire and in errors.
    const NAME: &'static str;
    /// The event that precedes output and data.
    type Event: Serialize + DeserializeOwned + Send;
    /// The reply that ends the channel.
    type Reply: Serialize + DeserializeOwned + Send;
    /// The effect of a repetition.
    const EFFECT: Effect;
    /// What else is sent on the channel.
    const STREAMS: Streams;
    /// Who may make it.
    const SCOPE: CallScope;
    /// Longest encoded request in bytes.
    const REQUEST_LIMIT: usize = MAX_HEADER;
    /// Longest encoded reply in bytes.
    const REPLY_LIMIT: usize = MAX_HEADER;

    /// The effect of repeating this request.
    fn effect(&self) -> Effect {
        Self::EFFECT
    }

    /// How long to wait for the reply. A guest replies at once, but a disk may be slow.
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// Bytes of data that the guest may send.
    fn data_limit(&self) -> u64 {
        u64::MAX
    }

    /// The job that the call refers to.
    fn job(&self) -> Option<&str> {
        None
    }

    /// Restricts a request of the worker to the agent's user and directory.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`] if it refers to anything else.
    fn confine(&mut self, _to: &OpenWorkerSocket) -> Result<(), RpcError> {
        Ok(())
    }
}

/// See [`Call::timeout`].
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The effect of repeating a call, which decides whether it is repeated after a broken connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call changes nothing.
    ReadOnly,
    /// A repetition changes nothing more.
    Idempotent,
    /// Each repetition changes something.
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

/// What is sent on a channel besides request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Nothing.
    Nothing,
    /// Input to the guest; an event, then output of two streams from it.
    Command,
    /// As `Command`, without input.
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

/// The properties of a call that are needed before its request is read.
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
    /// The properties of a call's type.
    #[must_use]
    pub const fn new<C: Call>() -> Self {
        Self { name: C::NAME, request_limit: C::REQUEST_LIMIT, streams: C::STREAMS, scope: C::SCOPE }
    }
}

/// Whether an absolute path is textually at or below another. Links are resolved later, with the agent's permissions.
pub(crate) fn is_beneath(path: &str, root: &str) -> bool {
    let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    path.starts_with('/')
        && !path.split('/').any(|it| matches!(it, "." | ".."))
        && parts(path).starts_with(&parts(root))
}

impl OpenWorkerSocket {
    /// Whether its root is textually a directory below `/`.
    #[must_use]
    pub fn has_valid_root(&self) -> bool {
        is_beneath(&self.root, "/") && self.root != "/"
    }

    /// Checks that a path is below the root.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`]
    pub(crate) fn check_beneath(&self, path: &str) -> Result<(), RpcError> {
        match is_beneath(path, &self.root) {
            true => Ok(()),
            false => {
                Err(RpcError::new(ErrorCode::Denied, format!("only paths beneath `{}` are accessible", self.root)))
            }
        }
    }
}
