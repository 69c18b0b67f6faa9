//! Connections of programs inside that reach the host's proxy by its own link: where host and container share no files,
//! or none should lie there.
//!
//! The host keeps some channels waiting. Each takes one connection, and ends with it; when the link breaks, all do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

use crate::codec::Frame;
use crate::command::{Piece, pump};
use crate::serve::{Inbox, Outbox, PIECE};
use crate::supervisor::Supervisor;
use crate::wire::relay::{API_PORT, EGRESS_PORT};
use crate::wire::{Answer, Ask, Fault, FaultCode, Say};

/// A connection waits so long for a channel: the host opens another one for each that is taken.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection, what goes before its own bytes, and its place among those of its port.
type Handed = (TcpStream, Vec<u8>, OwnedSemaphorePermit);

/// Channels that wait, the first one first.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    waiting: Mutex<VecDeque<(u16, oneshot::Sender<Handed>)>>,
    more: Notify,
}

impl Outlets {
    fn wait(&self, port: u16) -> oneshot::Receiver<Handed> {
        let (give, taken) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(_, it)| !it.is_closed());
        waiting.push_back((port, give));
        self.more.notify_waiters();
        taken
    }

    /// The next channel for a port that is still there.
    fn next(&self, port: u16) -> Option<oneshot::Sender<Handed>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().position(|(of, it)| *of == port && !it.is_closed())?;
        waiting.remove(at).map(|(_, it)| it)
    }

    /// Gives a connection to a channel. Nobody takes it: it is closed.
    pub(crate) async fn hand(&self, port: u16, mut handed: Handed) {
        let handing = async {
            loop {
                // Before the look, so that no channel comes between it and the wait.
                let mut more = std::pin::pin!(self.more.notified());
                more.as_mut().enable();
                let Some(channel) = self.next(port) else {
                    more.await;
                    continue;
                };
                match channel.send(handed) {
                    Ok(()) => return,
                    Err(back) => handed = back,
                }
            }
        };
        let _ = timeout(PATIENCE, handing).await;
    }
}

/// A channel that waits for a connection, and then is one.
pub(crate) async fn outlet(supervisor: &Arc<Supervisor>, port: u16, mut inbox: Inbox, out: &Outbox) {
    if ![API_PORT, EGRESS_PORT].contains(&port) {
        return out.say_result(Err(Fault::new(FaultCode::Invalid, "that is no port of a relay"))).await;
    }
    let waiting = supervisor.relays.outlets.wait(port);
    let handed = tokio::select! {
        handed = waiting => handed.ok(),
        // Nothing is said to it before: the host wants it no more, or is gone.
        _ = inbox.recv() => None,
    };
    let Some((stream, preamble, _place)) = handed else {
        return out.say_result(Err(Fault::new(FaultCode::Invalid, "the channel was left"))).await;
    };
    out.say(Say::Answer(Answer::Done)).await;
    let (from, to) = stream.into_split();
    let (data, pieces) = mpsc::unbounded_channel();
    let all = Notify::new();
    let sending = async {
        if send(from, preamble, out).await {
            all.notified().await;
        }
    };
    let writing = async {
        pump(Box::new(to), pieces, out).await;
        all.notify_one();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sending => {}
        () = writing => {}
        () = hear(inbox, data) => {}
    }
    out.say(Say::Answer(Answer::Done)).await;
}

/// What the program says, to its end. Whether all of it was heard.
async fn send(mut from: OwnedReadHalf, preamble: Vec<u8>, out: &Outbox) -> bool {
    let mut heard = out.say_data(Say::Data { last: false }, preamble).await;
    let (mut piece, mut last) = (vec![0; PIECE], false);
    while heard && !last {
        let read = from.read(&mut piece).await.unwrap_or(0);
        last = read == 0;
        heard = out.say_data(Say::Data { last }, piece[..read].to_vec()).await;
    }
    heard
}

/// A program that does not read must not keep the end of the channel from being heard, so what it is sent goes another way:
/// never more than a window of it.
async fn hear(mut inbox: Inbox, data: mpsc::UnboundedSender<Piece>) {
    while let Some(Frame { head: Ask::Data { last }, payload, .. }) = inbox.recv().await {
        let _ = data.send(Piece { bytes: payload, last });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(at), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn place() -> (Arc<Semaphore>, OwnedSemaphorePermit) {
        let places = Arc::new(Semaphore::new(1));
        let place = places.clone().try_acquire_owned().unwrap();
        (places, place)
    }

    #[tokio::test]
    async fn a_connection_goes_to_a_channel_of_its_port_that_is_still_there() {
        let outlets = Arc::<Outlets>::default();
        let (gone, other) = (outlets.wait(API_PORT), outlets.wait(EGRESS_PORT));
        drop(gone);
        let ((_near, far), handing) = (connection().await, outlets.clone());
        let (places, handed) = place();
        let handed = tokio::spawn(async move { handing.hand(API_PORT, (far, b"first".to_vec(), handed)).await });
        tokio::task::yield_now().await;
        let taken = outlets.wait(API_PORT).await.unwrap();
        handed.await.unwrap();
        assert_eq!((taken.1.as_slice(), places.available_permits()), (&b"first"[..], 0));
        drop(taken);
        assert_eq!(places.available_permits(), 1, "its place was held as long as it was there");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_no_channel_takes_is_closed() {
        let outlets = Outlets::default();
        let (mut near, far) = connection().await;
        outlets.hand(API_PORT, (far, Vec::new(), place().1)).await;
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
