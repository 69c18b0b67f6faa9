//! Connections that programs inside make to the host, each on a channel of its own.
//!
//! **Invariant:** a channel ends soon after its [`Tunnel`] is dropped, whatever the program does: a link has few of them.

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

use crate::call::{encoded, not_understood, refused};
use crate::channels::ReplyShape;
use crate::connection::Channel;
use crate::input::InputSource;
use crate::link::Link;

/// Bytes of a connection that wait for who reads it.
const WAITING: usize = 64 << 10;

/// A program has so long to take the last of what it was sent: it may be slow, and would find it cut off.
const LINGER: Duration = Duration::from_secs(60);

/// After all is said a program has so long to close its end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two looks whether it has taken all.
const LOOKS: Duration = Duration::from_millis(50);

/// A connection that a program inside made. To drop it is to end it; a program that is slow still gets all of it if it was
/// shut down before.
#[derive(Debug)]
pub struct Tunnel {
    stream: DuplexStream,
    ends: CloseState,
    _gone: DropGuard,
}

/// What both sides know of the end of a connection.
#[derive(Clone, Debug, Default)]
struct CloseState {
    /// Everything was said on this side.
    finished: Arc<AtomicBool>,
    /// Nobody is there any more on this side.
    gone: CancellationToken,
    /// The channel is no more.
    over: CancellationToken,
}

impl Tunnel {
    /// Cancelled when its channel is no more, which is a while after it was dropped.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        self.ends.over.clone()
    }
}

impl Link {
    /// The next connection that a program inside makes to one of the two ports: its token first, then its own bytes. It
    /// ends with the link. `None` when there is no link now; none is made for it.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused); the link broke.
    pub async fn outlet(&self, port: u16) -> Result<Option<Tunnel>> {
        let Some(connection) = self.current() else { return Ok(None) };
        connection.check_knows(AcceptTunnel::NAME)?;
        let call = AcceptTunnel { port };
        let opened = connection.open(AcceptTunnel::NAME, &encoded(&call)?, ReplyShape::new(&call)).await;
        let mut channel = opened.map_err(|it| it.into_error(AcceptTunnel::NAME))?;
        match channel.next().await.map_err(|it| it.into_error(AcceptTunnel::NAME))? {
            (GuestMessage::Event, _) => {}
            (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
            _ => return Err(not_understood()),
        }
        let ((near, stream), ends) = (duplex(WAITING), CloseState::default());
        let passing = pass(channel, split(near), ends.clone());
        let over = ends.over.clone().drop_guard();
        tokio::spawn(async move {
            passing.await;
            drop(over);
        });
        Ok(Some(Tunnel { stream, _gone: ends.gone.clone().drop_guard(), ends }))
    }
}

/// Until the guest has said its last word, or nobody is there any more on this side and the program had its time.
async fn pass(
    mut channel: Channel,
    (from, mut to): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
    ends: CloseState,
) {
    let sender = channel.sender();
    let mut feed = InputSource::content(Input::Stream(Box::new(from)));
    let all = CancellationToken::new();
    let sending = async {
        let _ = feed.run(&sender).await;
        all.cancel();
        std::future::pending::<()>().await;
    };
    let receiving = async {
        while let Ok((GuestMessage::Data { last }, piece)) = channel.next().await {
            // What nobody listens to any more is let go, since who listens no more may still have said something.
            let _ = to.write_all(&piece).await;
            channel.release(piece.len());
            if last {
                let _ = to.shutdown().await;
            }
        }
    };
    let parting = async {
        ends.gone.cancelled().await;
        let taken = async {
            all.cancelled().await;
            while !sender.all_taken() {
                sleep(LOOKS).await;
            }
        };
        // What was cut off on this side need not be whole on the other.
        if ends.finished.load(Ordering::Relaxed) {
            let _ = timeout(LINGER, taken).await;
        }
        sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
        () = parting => {}
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
