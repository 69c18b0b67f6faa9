//! Sends requests that are longer than one frame.

use std::sync::Arc;

use coracle_protocol::{CHUNK, HostMessage};

use crate::channels::ReplyShape;
use crate::connection::{Channel, Connection, ConnectionLost, Sender};

impl Connection {
    /// Opens a channel and sends the whole request.
    pub(crate) async fn open_whole(
        self: &Arc<Self>,
        call: &'static str,
        body: &[u8],
        shape: ReplyShape,
    ) -> Result<Channel, ConnectionLost> {
        let channel = self.open(call, body, shape).await?;
        if body.len() > CHUNK {
            channel.sender().send_rest(body).await;
        }
        Ok(channel)
    }
}

impl Sender {
    /// Sends the rest of a request after the opening frame. Ends early if the guest refuses: it does not wait for the rest.
    pub(crate) async fn send_rest(&self, body: &[u8]) -> bool {
        for piece in body.chunks(CHUNK).skip(1) {
            if !self.send(HostMessage::PayloadChunk, piece.to_vec()).await {
                return false;
            }
        }
        true
    }
}
