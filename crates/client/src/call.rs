//! Calls that have one answer.

use std::time::Duration;

use coracle_protocol::{CallReply, ErrorCode, GuestMessage, MAX_HEADER, Request, RpcError};
use coracle_types::{Error, Result};
use tokio::time::timeout;

use crate::channels::ReplyShape;
use crate::connection::{Channel, ConnectionLost};
use crate::link::Link;

impl Link {
    /// Asks something that has one answer.
    pub(crate) async fn ask<T>(&self, request: CallOptions<T>, ask: impl Fn() -> Request) -> Result<(T, Vec<u8>)> {
        let CallOptions { verb, kind, payload, patience, again } = request;
        let once = || async {
            let ask = sendable(ask())?;
            let connection = self.connection().await?;
            // Lists are parsed whole, so only some may come at once.
            let _place = if again == Retry::List { Some(connection.list_place().await?) } else { None };
            let talk = ReplyShape::Answer { fits: kind.fits, payload };
            Ok(match connection.open(ask, Vec::new(), talk).await {
                Ok(mut channel) => answer(&mut channel).await,
                Err(broken) => Err(broken),
            })
        };
        understand(attempt(verb, patience, again, once).await?, kind.take)
    }
}

/// Makes a call within its time, and once more when its connection broke and `again` allows that.
pub(crate) async fn attempt<T, F>(
    verb: &'static str,
    patience: Duration,
    again: Retry,
    once: impl Fn() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Result<T, ConnectionLost>>>,
{
    let both = async {
        match once().await? {
            Err(broken) if !broken.full && (again != Retry::Never || !broken.sent) => once().await,
            outcome => Ok(outcome),
        }
    };
    let outcome = timeout(patience, both).await.map_err(|_| Error::TimedOut { verb, after: patience })??;
    outcome.map_err(|broken| broken.of(verb))
}

/// What is asked.
pub(crate) struct CallOptions<T> {
    pub(crate) verb: &'static str,
    pub(crate) kind: ReplyKind<T>,
    /// Bytes that may come with the answer.
    pub(crate) payload: u64,
    pub(crate) patience: Duration,
    pub(crate) again: Retry,
}

/// Whether something is asked again when the connection broke before its answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It changes nothing, or nothing more.
    Once,
    /// As [`Once`](Self::Once), and its answer is parsed whole.
    List,
    /// Only when the guest cannot have got it.
    Never,
}

/// A kind of answer.
pub(crate) struct ReplyKind<T> {
    pub(crate) fits: fn(&CallReply) -> bool,
    pub(crate) take: fn(CallReply) -> Option<T>,
}

/// A guest that runs answers at once, whatever else it does. A disk may be slow.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl<T> CallOptions<T> {
    pub(crate) fn new(verb: &'static str, kind: ReplyKind<T>) -> Self {
        Self { verb, kind, payload: 0, patience: DEFAULT_TIMEOUT, again: Retry::Once }
    }
}

/// A path or a pattern may be longer than a header can be.
pub(crate) fn sendable(ask: Request) -> Result<Request> {
    let bytes = serde_json::to_vec(&ask).map_or(usize::MAX, |it| it.len());
    if bytes > MAX_HEADER {
        let message = format!("what is asked has {bytes} bytes, above {MAX_HEADER}");
        return Err(Error::Refused(RpcError::new(ErrorCode::TooLong, message)));
    }
    Ok(ask)
}

pub(crate) async fn answer(channel: &mut Channel) -> Result<(GuestMessage, Vec<u8>), ConnectionLost> {
    loop {
        let (say, payload) = channel.next().await?;
        if !matches!(say, GuestMessage::Credit(_)) {
            return Ok((say, payload));
        }
    }
}

pub(crate) fn understand<T>(
    (say, payload): (GuestMessage, Vec<u8>),
    take: fn(CallReply) -> Option<T>,
) -> Result<(T, Vec<u8>)> {
    match say {
        GuestMessage::Answer(answer) => take(answer).map(|it| (it, payload)).ok_or_else(not_understood),
        GuestMessage::Failed(fault) => Err(refused(fault)),
        _ => Err(not_understood()),
    }
}

/// A later version may say what this one does not know, and it may have been the last word.
pub(crate) fn not_understood() -> Error {
    Error::GuestLost { reason: "the guest said something that this version does not know".into(), output: None }
}

pub(crate) fn refused(fault: RpcError) -> Error {
    match fault.code {
        ErrorCode::FilesRemoved => Error::FilesRemoved { missing: fault.message },
        _ => Error::Refused(fault),
    }
}
