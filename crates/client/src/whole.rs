//! Payloads and contents that are more than one frame.

use std::sync::Arc;

use coracle_protocol::{Answer, Ask, CHUNK, Say};
use coracle_types::Result;

use crate::call::{not_understood, refused};
use crate::channels::Talk;
use crate::connection::{Broken, Channel, Connection};

impl Connection {
    /// Opens a channel and brings a payload of any length.
    pub(crate) async fn bring(self: &Arc<Self>, ask: Ask, payload: &[u8], talk: Talk) -> Result<Channel, Broken> {
        let mut pieces = payload.chunks(CHUNK).map(<[u8]>::to_vec);
        let channel = self.open(ask, pieces.next().unwrap_or_default(), talk).await?;
        let to = channel.sender();
        for piece in pieces {
            // A guest that refuses does not wait for the rest, and says why.
            if !to.send(Ask::More, piece).await {
                break;
            }
        }
        Ok(channel)
    }
}

impl Channel {
    /// The content that follows an answer, to its end, and the answer. How much it may be, and which answer fits, is
    /// said when the channel is opened.
    pub(crate) async fn content(&mut self) -> Result<Result<(Option<Answer>, Vec<u8>), Broken>> {
        let (mut answer, mut content) = (None, Vec::new());
        loop {
            match self.next().await {
                Ok((Say::Answer(it), _)) => answer = Some(it),
                Ok((Say::Credit(_), _)) => {}
                Ok((Say::Data { last }, piece)) => {
                    self.took(piece.len());
                    content.extend(piece);
                    if last {
                        return Ok(Ok((answer, content)));
                    }
                }
                Ok((Say::Failed(fault), _)) => return Err(refused(fault)),
                Ok(_) => return Err(not_understood()),
                Err(broken) => return Ok(Err(broken)),
            }
        }
    }
}
