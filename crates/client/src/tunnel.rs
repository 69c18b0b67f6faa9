//! Connections that programs inside make to the host, each on a separate channel.
//!
//! **Invariant:** a channel ends soon after its [`Tunnel`] is dropped, even if the program does not close: a link has few
//! channels.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use coracle_protocol::GuestMessage;
use coracle_protocol::call::Call as _;
use coracle_protocol::relay::AcceptTunnel;
use coracle_types::{Input, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex, split};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{encoded, refused, unknown_message};
use crate::channels::ReplyShape;
use crate::connection::Channel;
use crate::input::InputSource;
use crate::link::Link;

/// Bytes of a connection that are buffered until they are read.
const WAITING: usize = 64 << 10;

/// Time for a slow program to read the last bytes that were sent to it.
const LINGER: Duration = Duration::from_secs(60);

/// Time for a program to close its end after everything was sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of the checks whether it has read everything.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A connection of a program inside. Dropping it ends the connection; if it was shut down before, a slow program still gets
/// all bytes.
#[derive(Debug)]
pub struct Tunnel {
    stream: DuplexStream,
    ends: CloseState,
    _dropped: DropGuard,
}

/// The closing state that both sides share.
#[derive(Clone, Debug, Default)]
struct CloseState {
    /// Whether this side has sent everything.
    finished: Arc<AtomicBool>,
    /// Cancelled when this side was dropped.
    dropped: CancellationToken,
    /// Cancelled when the channel is closed.
    over: CancellationToken,
}

impl Tunnel {
    /// Cancelled when its channel is closed, which is a while after the value was dropped.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        self.ends.over.clone()
    }
}

impl Link {
    /// The next connection that a program inside makes to one of the two ports: its token first, then its own bytes. It ends
    /// with the link. `None` if the link is not connected; this call does not connect it.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused); an error if the link broke.
    pub async fn accept_tunnel(&self, port: u16) -> Result<Option<Tunnel>> {
        let Some(connection) = self.current() else { return Ok(None) };
        connection.check_knows(AcceptTunnel::NAME)?;
        let call = AcceptTunnel { port };
        let opened = connection.open(AcceptTunnel::NAME, &encoded(&call)?, ReplyShape::new(&call)).await;
        let mut channel = opened.map_err(|it| it.into_error(AcceptTunnel::NAME))?;
        match channel.next().await.map_err(|it| it.into_error(AcceptTunnel::NAME))? {
            (GuestMessage::Event, _) => {}
            (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
            _ => return Err(unknown_message()),
        }
        let ((near, stream), ends) = (duplex(WAITING), CloseState::default());
        let passing = pass(channel, split(near), ends.clone());
        let over = ends.over.clone().drop_guard();
        tokio::spawn(async move {
            passing.await;
            drop(over);
        });
        Ok(Some(Tunnel { stream, _dropped: ends.dropped.clone().drop_guard(), ends }))
    }
}

/// Copies both ways until the guest ends the channel, or this side was dropped and the program had its time.
async fn pass(
    mut channel: Channel,
    (from, mut to): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
    ends: CloseState,
) {
    let sender = channel.sender();
    let mut input = InputSource::content(Input::Stream(Box::new(from)));
    let all_sent = CancellationToken::new();
    let sending = async {
        let _ = input.run(&sender).await;
        all_sent.cancel();
        std::future::pending::<()>().await;
    };
    let receiving = async {
        while let Ok((GuestMessage::Data { last }, piece)) = channel.next().await {
            // Errors are ignored: if this side is dropped, the data is discarded, while the other direction continues.
            let _ = to.write_all(&piece).await;
            channel.release(piece.len());
            if last {
                let _ = to.shutdown().await;
            }
        }
    };
    let closing = async {
        ends.dropped.cancelled().await;
        let taken = async {
            all_sent.cancelled().await;
            while !sender.all_taken() {
                sleep(POLL_INTERVAL).await;
            }
        };
        // Without a shutdown before the drop, the rest need not reach the program.
        if ends.finished.load(Ordering::Relaxed) {
            let _ = timeout(LINGER, taken).await;
        }
        sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
        () = closing => {}
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ends.finished.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
