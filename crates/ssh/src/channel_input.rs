//! A channel's input from the client, until the container reads it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::input_gate::InputGate;

/// The sending end, for the connection. Dropping it ends the input.
#[derive(Debug)]
pub(crate) struct ChannelInputSender {
    pieces: UnboundedSender<Vec<u8>>,
    gate: Arc<InputGate>,
}

/// The receiving end. The gate limits the waiting bytes.
#[derive(Debug)]
pub(crate) struct ChannelInput {
    pieces: UnboundedReceiver<Vec<u8>>,
    gate: Arc<InputGate>,
    piece: Vec<u8>,
    read: usize,
}

/// Both ends of a channel's input.
pub(crate) fn channel_input(gate: &Arc<InputGate>) -> (ChannelInputSender, ChannelInput) {
    let (sender, pieces) = unbounded_channel();
    let input = ChannelInput { pieces, gate: gate.clone(), piece: Vec::new(), read: 0 };
    (ChannelInputSender { pieces: sender, gate: gate.clone() }, input)
}

impl ChannelInputSender {
    /// Adds a piece; `false` if too many bytes wait.
    pub(crate) fn send(&self, piece: &[u8]) -> bool {
        let fits = self.gate.add(piece.len());
        if !fits || self.pieces.send(piece.to_vec()).is_err() {
            self.gate.remove(piece.len());
        }
        fits
    }
}

impl ChannelInput {
    /// The gate of its connection.
    pub(crate) fn gate(&self) -> Arc<InputGate> {
        self.gate.clone()
    }
}

impl AsyncRead for ChannelInput {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.read == self.piece.len() {
            let Some(piece) = ready!(self.pieces.poll_recv(cx)) else { return Poll::Ready(Ok(())) };
            (self.piece, self.read) = (piece, 0);
        }
        let count = buf.remaining().min(self.piece.len() - self.read);
        buf.put_slice(&self.piece[self.read..self.read + count]);
        self.read += count;
        self.gate.remove(count);
        Poll::Ready(Ok(()))
    }
}

impl Drop for ChannelInput {
    fn drop(&mut self) {
        self.pieces.close();
        let mut left = self.piece.len() - self.read;
        while let Ok(piece) = self.pieces.try_recv() {
            left += piece.len();
        }
        self.gate.remove(left);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::input_gate::MAX_WAITING;

    #[tokio::test]
    async fn dropped_input_makes_room() {
        let gate = Arc::new(InputGate::default());
        let (sender, mut input) = channel_input(&gate);
        assert!(sender.send(b"one") && sender.send(b"two"));
        assert_eq!(input.read_u8().await.unwrap(), b'o');
        drop(input);
        assert!(sender.send(b"after the end"));
        assert!(gate.add(MAX_WAITING), "bytes that do not wait are counted");
    }
}
