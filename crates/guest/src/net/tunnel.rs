//! Connections of programs inside that reach the host's proxy through the host's connection to the guest: for hosts that
//! share no files with the container, or must not put a socket there.
//!
//! The host provides waiting channels. Each takes one connection and ends with it; if the link breaks, all of them end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;

use crate::protocol::relay::API_PORT;

/// How long to wait for a host without any channel. A host opens a new channel for each used one, up to its limit;
/// further connections wait in order.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, the bytes to send before its own, and the permit that counts it among those of its port.
pub(crate) type PendingConnection = (TcpStream, Vec<u8>, OwnedSemaphorePermit);

/// The channels of each port.
#[derive(Debug, Default)]
pub(crate) struct TunnelPorts {
    api: TunnelQueue,
    egress: TunnelQueue,
}

/// Waiting channels in order, and connections that wait for one.
#[derive(Debug, Default)]
pub(crate) struct TunnelQueue {
    waiting: Mutex<VecDeque<oneshot::Sender<PendingConnection>>>,
    more: Notify,
    /// Held by the connection that is next.
    turn: tokio::sync::Mutex<()>,
    /// Each channel with a connection holds one reference.
    pub(crate) taken: Arc<()>,
}

impl TunnelPorts {
    pub(crate) fn queue(&self, port: u16) -> &TunnelQueue {
        if port == API_PORT { &self.api } else { &self.egress }
    }

    /// Passes a connection to a channel, or closes it if no channel takes it.
    pub(crate) async fn dispatch(&self, port: u16, connection: PendingConnection) {
        let queue = self.queue(port);
        tokio::select! {
            () = queue.dispatch(connection) => {}
            () = queue.wait_until_unused() => {}
        }
    }
}

impl TunnelQueue {
    /// Adds a channel that waits for a connection.
    pub(crate) fn wait(&self) -> oneshot::Receiver<PendingConnection> {
        let (sender, taken) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|it| !it.is_closed());
        waiting.push_back(sender);
        self.more.notify_one();
        taken
    }

    /// The next channel that is not closed.
    fn next(&self) -> Option<oneshot::Sender<PendingConnection>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|it| !it.is_closed());
        waiting.pop_front()
    }

    async fn dispatch(&self, mut connection: PendingConnection) {
        // Serves connections in order of arrival.
        let _turn = self.turn.lock().await;
        loop {
            let Some(channel) = self.next() else {
                self.more.notified().await;
                continue;
            };
            match channel.send(connection) {
                Ok(()) => return,
                Err(returned) => connection = returned,
            }
        }
    }

    /// Waits until no channel had a connection for a while: then no host is connected that would provide another.
    async fn wait_until_unused(&self) {
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

    fn permit() -> (Arc<Semaphore>, OwnedSemaphorePermit) {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.clone().try_acquire_owned().unwrap();
        (permits, permit)
    }

    #[tokio::test]
    async fn a_connection_is_passed_to_an_open_channel_of_its_port() {
        let tunnels = Arc::<TunnelPorts>::default();
        let (closed, other) = (tunnels.api.wait(), tunnels.egress.wait());
        drop(closed);
        let ((_near, far), cloned) = (connection().await, tunnels.clone());
        let (permits, permit_of_connection) = permit();
        let dispatch =
            tokio::spawn(
                async move { cloned.dispatch(API_PORT, (far, b"first".to_vec(), permit_of_connection)).await },
            );
        tokio::task::yield_now().await;
        let taken = tunnels.api.wait().await.unwrap();
        dispatch.await.unwrap();
        assert_eq!((taken.1.as_slice(), permits.available_permits()), (&b"first"[..], 0));
        drop(taken);
        assert_eq!(permits.available_permits(), 1, "the permit was held as long as the connection");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_no_channel_takes_is_closed() {
        let tunnels = TunnelPorts::default();
        let (mut near, far) = connection().await;
        tunnels.dispatch(API_PORT, (far, Vec::new(), permit().1)).await;
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_beyond_the_hosts_limit_wait_in_order() {
        let tunnels = Arc::<TunnelPorts>::default();
        // An open connection shows that the host is connected.
        let open_connection = tunnels.api.taken.clone();
        let mut near = Vec::new();
        for name in *b"abc" {
            let ((client, far), cloned) = (connection().await, tunnels.clone());
            near.push(client);
            tokio::spawn(async move { cloned.dispatch(API_PORT, (far, vec![name], permit().1)).await });
            tokio::task::yield_now().await;
        }
        sleep(20 * CHANNEL_TIMEOUT).await;
        for name in *b"abc" {
            assert_eq!(tunnels.api.wait().await.unwrap().1, [name]);
        }
        let ((mut client, far), cloned) = (connection().await, tunnels.clone());
        let dispatch = tokio::spawn(async move { cloned.dispatch(API_PORT, (far, vec![], permit().1)).await });
        drop(open_connection);
        dispatch.await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "the host has disconnected");
    }
}
