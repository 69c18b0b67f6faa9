//! Payloads and contents that are more than one frame.

use std::sync::Arc;

use coracle_protocol::{CHUNK, CallReply, GuestMessage, Request};
use coracle_types::Result;

use crate::call::{not_understood, refused};
use crate::channels::ReplyShape;
use crate::connection::{Channel, Connection, ConnectionLost};

impl Connection {
    /// Opens a channel and brings a payload of any length.
    pub(crate) async fn open_with_payload(
        self: &Arc<Self>,
        ask: Request,
        payload: &[u8],
        talk: ReplyShape,
    ) -> Result<Channel, ConnectionLost> {
        let mut pieces = payload.chunks(CHUNK).map(<[u8]>::to_vec);
        let channel = self.open(ask, pieces.next().unwrap_or_default(), talk).await?;
        let to = channel.sender();
        for piece in pieces {
            // A guest that refuses does not wait for the rest, and says why.
            if !to.send(Request::More, piece).await {
                break;
            }
        }
        Ok(channel)
    }
}

impl Channel {
    /// The content that follows an answer, to its end, and the answer. How much it may be, and which answer fits, is
    /// said when the channel is opened.
    pub(crate) async fn content(&mut self) -> Result<Result<(Option<CallReply>, Vec<u8>), ConnectionLost>> {
        let (mut answer, mut content) = (None, Vec::new());
        loop {
            match self.next().await {
                Ok((GuestMessage::Answer(it), _)) => answer = Some(it),
                Ok((GuestMessage::Credit(_), _)) => {}
                Ok((GuestMessage::Data { last }, piece)) => {
                    self.release(piece.len());
                    content.extend(piece);
                    if last {
                        return Ok(Ok((answer, content)));
                    }
                }
                Ok((GuestMessage::Failed(fault), _)) => return Err(refused(fault)),
                Ok(_) => return Err(not_understood()),
                Err(broken) => return Ok(Err(broken)),
            }
        }
    }
}
