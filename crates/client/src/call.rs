//! Calls that have one reply.

use std::sync::Arc;
use std::time::Duration;

use coracle_protocol::body::{decode, encode};
use coracle_protocol::call::{Call, Effect};
use coracle_protocol::{CHUNK, ErrorCode, GuestMessage, RpcError};
use coracle_types::{Error, Result};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::channels::ReplyShape;
use crate::connection::{Channel, Connection, ConnectionLost};

pub(crate) async fn call_once_on<C: Call>(
    connection: &Arc<Connection>,
    body: &[u8],
    shape: ReplyShape,
) -> Result<Result<C::Reply, ConnectionLost>> {
    match connection.open_whole(C::NAME, body, shape).await {
        Ok(mut channel) => channel.reply::<C>().await,
        Err(broken) => Ok(Err(broken)),
    }
}

/// Makes a call on a given connection, which no other call uses yet.
pub(crate) async fn call_on<C: Call>(connection: &Arc<Connection>, call: &C) -> Result<C::Reply> {
    let (body, shape) = (encoded(call)?, ReplyShape::new(call));
    attempt::<C, _, _>(call, || call_once_on::<C>(connection, &body, shape)).await
}

/// Makes a call within its timeout, and repeats it once if its connection broke and its effect allows that.
pub(crate) async fn attempt<C: Call, T, F>(call: &C, once: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<Result<T, ConnectionLost>>>,
{
    let both = async {
        match once().await? {
            Err(broken) if !broken.full && (call.effect() != Effect::Once || !broken.sent) => once().await,
            outcome => Ok(outcome),
        }
    };
    let after = call.timeout();
    let outcome = timeout(after, both).await.map_err(|_| Error::TimedOut { verb: C::NAME, after })??;
    outcome.map_err(|broken| broken.into_error(C::NAME))
}

/// Encodes a request, and checks its length.
///
/// # Errors
/// [`Error::Refused`] with [`ErrorCode::TooLong`].
pub(crate) fn encoded<C: Call>(call: &C) -> Result<Zeroizing<Vec<u8>>> {
    let body = Zeroizing::new(encode(call));
    if body.len() > C::REQUEST_LIMIT {
        let message = format!("the request has {} bytes; the limit is {}", body.len(), C::REQUEST_LIMIT);
        return Err(too_long(message));
    }
    Ok(body)
}

impl Channel {
    /// Receives the reply.
    pub(crate) async fn reply<C: Call>(&mut self) -> Result<Result<C::Reply, ConnectionLost>> {
        match self.next().await {
            Ok((GuestMessage::Reply { bytes }, first)) => self.rest_of_reply::<C>(bytes as usize, first).await,
            Ok((GuestMessage::Failed(fault), _)) => Err(refused(fault)),
            Ok(_) => Err(unknown_message()),
            Err(broken) => Ok(Err(broken)),
        }
    }

    async fn rest_of_reply<C: Call>(
        &mut self,
        bytes: usize,
        mut body: Vec<u8>,
    ) -> Result<Result<C::Reply, ConnectionLost>> {
        // A long reply is decoded as a whole, so the number of concurrent ones is limited.
        let _permit = if bytes > CHUNK { Some(self.reply_permit().await?) } else { None };
        while body.len() < bytes {
            match self.next().await {
                Ok((GuestMessage::PayloadChunk, piece)) => {
                    self.release(piece.len());
                    body.extend(piece);
                }
                Ok((GuestMessage::Failed(fault), _)) => return Err(refused(fault)),
                Ok(_) => return Err(unknown_message()),
                Err(broken) => return Ok(Err(broken)),
            }
        }
        decode(&body).map(Ok).map_err(|_| unknown_message())
    }
}

/// The error for a message of an unexpected type.
pub(crate) fn unknown_message() -> Error {
    Error::GuestLost { reason: "the guest sent a message that this version does not know".into(), output: None }
}

pub(crate) fn too_long(message: String) -> Error {
    Error::Refused(RpcError::new(ErrorCode::TooLong, message))
}

pub(crate) fn refused(fault: RpcError) -> Error {
    match fault.code {
        ErrorCode::FilesRemoved => Error::FilesRemoved { missing: fault.message },
        _ => Error::Refused(fault),
    }
}

/// Longest time until a command reports its start.
pub(crate) const DEFAULT_TIMEOUT: Duration = coracle_protocol::call::DEFAULT_TIMEOUT;
