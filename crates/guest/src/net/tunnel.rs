//! Connections of programs inside that reach the host's proxy by its own link: where host and container share no files,
//! or none should lie there.
//!
//! The host keeps some channels waiting. Each takes one connection, and ends with it; when the link breaks, all do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;

use crate::protocol::relay::API_PORT;

/// Limit of the wait for a host without any channel: it opens a new channel for each that is used, up to its limit, and
/// further connections wait in order.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, what goes before its own bytes, and its place among those of its port.
pub(crate) type PendingConnection = (TcpStream, Vec<u8>, OwnedSemaphorePermit);

/// The channels of each port.
#[derive(Debug, Default)]
pub(crate) struct TunnelPorts {
    api: TunnelQueue,
    egress: TunnelQueue,
}

/// Channels that wait, the first one first, and connections that wait for one.
#[derive(Debug, Default)]
pub(crate) struct TunnelQueue {
    waiting: Mutex<VecDeque<oneshot::Sender<PendingConnection>>>,
    more: Notify,
    /// Held by the connection whose turn it is.
    turn: tokio::sync::Mutex<()>,
    /// One reference for each channel that is a connection.
    pub(crate) taken: Arc<()>,
}

impl TunnelPorts {
    /// The channels of that port.
    pub(crate) fn queue(&self, port: u16) -> &TunnelQueue {
        if port == API_PORT { &self.api } else { &self.egress }
    }

    /// Passes a connection to a channel, or closes it if no channel takes it.
    pub(crate) async fn hand(&self, port: u16, handed: PendingConnection) {
        let line = self.queue(port);
        tokio::select! {
            () = line.hand(handed) => {}
            () = line.nobody() => {}
        }
    }
}

impl TunnelQueue {
    /// Adds a channel that waits for a connection.
    pub(crate) fn wait(&self) -> oneshot::Receiver<PendingConnection> {
        let (give, taken) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|it| !it.is_closed());
        waiting.push_back(give);
        self.more.notify_one();
        taken
    }

    /// The next channel that is still there.
    fn next(&self) -> Option<oneshot::Sender<PendingConnection>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|it| !it.is_closed());
        waiting.pop_front()
    }

    async fn hand(&self, mut handed: PendingConnection) {
        // First come, first served.
        let _turn = self.turn.lock().await;
        loop {
            let Some(channel) = self.next() else {
                self.more.notified().await;
                continue;
            };
            match channel.send(handed) {
                Ok(()) => return,
                Err(back) => handed = back,
            }
        }
    }

    /// Until there was no connection for a while: then no host is there that would take another.
    async fn nobody(&self) {
        loop {
            sleep(CHANNEL_TIMEOUT).await;
            if Arc::strong_count(&self.taken) == 1 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt as _;
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
        let outlets = Arc::<TunnelPorts>::default();
        let (gone, other) = (outlets.api.wait(), outlets.egress.wait());
        drop(gone);
        let ((_near, far), handing) = (connection().await, outlets.clone());
        let (places, handed) = place();
        let handed = tokio::spawn(async move { handing.hand(API_PORT, (far, b"first".to_vec(), handed)).await });
        tokio::task::yield_now().await;
        let taken = outlets.api.wait().await.unwrap();
        handed.await.unwrap();
        assert_eq!((taken.1.as_slice(), places.available_permits()), (&b"first"[..], 0));
        drop(taken);
        assert_eq!(places.available_permits(), 1, "its place was held as long as it was there");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_no_channel_takes_is_closed() {
        let outlets = TunnelPorts::default();
        let (mut near, far) = connection().await;
        outlets.hand(API_PORT, (far, Vec::new(), place().1)).await;
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn behind_as_many_as_the_host_takes_connections_wait_in_order() {
        let outlets = Arc::<TunnelPorts>::default();
        // An open connection: the host is connected.
        let goes_on = outlets.api.taken.clone();
        let mut near = Vec::new();
        for name in *b"abc" {
            let ((here, far), handing) = (connection().await, outlets.clone());
            near.push(here);
            tokio::spawn(async move { handing.hand(API_PORT, (far, vec![name], place().1)).await });
            tokio::task::yield_now().await;
        }
        sleep(20 * CHANNEL_TIMEOUT).await;
        for name in *b"abc" {
            assert_eq!(outlets.api.wait().await.unwrap().1, [name]);
        }
        let ((mut here, far), handing) = (connection().await, outlets.clone());
        let handed = tokio::spawn(async move { handing.hand(API_PORT, (far, vec![], place().1)).await });
        drop(goes_on);
        handed.await.unwrap();
        assert_eq!(here.read(&mut [0; 1]).await.unwrap(), 0, "the host went away");
    }
}
