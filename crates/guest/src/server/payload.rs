//! What follows a channel's first frame: the rest of its payload, and data.

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::protocol::{ErrorCode, MAX_SESSION, Request, RpcError};
use crate::server::channel::{Inbox, ReplySender};

/// What a first frame began and [`Request::More`] goes on with: exactly so many bytes.
pub(crate) async fn whole(mut bytes: Vec<u8>, all: usize, inbox: &mut Inbox) -> Result<Vec<u8>, RpcError> {
    let invalid = |what: &str| RpcError::new(ErrorCode::Invalid, what);
    while bytes.len() < all {
        match inbox.recv().await {
            Some((Request::More, payload)) if !payload.is_empty() => bytes.extend(payload),
            _ => return Err(invalid("what was to follow broke off")),
        }
    }
    if bytes.len() > all {
        return Err(invalid("more came than was said"));
    }
    Ok(bytes)
}

/// All bytes that were announced, if they are not too many.
pub(crate) async fn within(first: Vec<u8>, bytes: u32, inbox: &mut Inbox) -> Result<Vec<u8>, RpcError> {
    let all = bytes as usize;
    if all > MAX_SESSION {
        return Err(RpcError::new(ErrorCode::TooLong, format!("{all} bytes, above {MAX_SESSION}")));
    }
    whole(first, all, inbox).await
}

/// Writes input as the command takes it. One that does not want all of it loses the rest, which is no fault of anybody.
pub(crate) async fn pump(stdin: Box<dyn AsyncWrite + Send + Unpin>, mut pieces: Inbox, out: &ReplySender) {
    let mut stdin = Some(stdin);
    while let Some((Request::Data { last }, bytes)) = pieces.recv().await {
        if let Some(pipe) = &mut stdin {
            let written = pipe.write_all(&bytes).await;
            let closed = if last { pipe.shutdown().await } else { Ok(()) };
            if last || written.is_err() || closed.is_err() {
                stdin = None;
            }
        }
        out.credit(bytes.len()).await;
        if last {
            return;
        }
    }
}
