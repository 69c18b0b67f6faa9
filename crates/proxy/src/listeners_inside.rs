//! Serves the connections of one container over the channel to its guest. There is no socket that another program
//! could use.

use std::sync::Arc;
use std::time::Duration;

use coracle_client::Link;
use coracle_protocol::relay::{API_PORT, EGRESS_PORT};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::proxy::{Port, Proxy};

/// The ports, as the guest knows them.
const PORTS: [(u16, Port); 2] = [(API_PORT, Port::Api), (EGRESS_PORT, Port::Egress)];

/// Number of channels per port that wait for a connection, since programs open several at once.
const WAITING: usize = 6;

/// Maximum number of connections per port, including waiting channels. The guest's link has other channels too.
const MOST: usize = 64;

/// Interval of checks for a new link, and for the end of a closed minute.
const PAUSE: Duration = Duration::from_millis(100);

/// A proxy that is reached through the guest's link. Dropping it closes every connection.
#[derive(Debug)]
pub struct Listeners {
    _stop: DropGuard,
}

impl Listeners {
    /// Serves connections of programs in the container. A broken link closes all of them. The next link, which another
    /// task opens, is used as soon as it exists.
    #[must_use]
    pub fn open(proxy: &Proxy, link: &Link) -> Self {
        let stop = CancellationToken::new();
        for (number, port) in PORTS {
            let places = Arc::new(Semaphore::new(MOST));
            for _ in 0..WAITING {
                let taking = take((proxy.clone(), link.clone()), (number, port), places.clone());
                let stop = stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(taking).await });
            }
        }
        Self { _stop: stop.drop_guard() }
    }
}

/// Serves one connection after another.
async fn take((proxy, link): (Proxy, Link), (number, port): (u16, Port), places: Arc<Semaphore>) {
    let mut served = JoinSet::new();
    while let Ok(place) = places.clone().acquire_owned().await {
        while served.try_join_next().is_some() {}
        let closed = proxy.0.abuse.is_closed();
        match if closed { Ok(None) } else { link.accept_tunnel(number).await } {
            // Closed without an answer, so that a client that tries tokens learns nothing.
            Ok(Some(_)) if proxy.0.abuse.is_closed() => {}
            Ok(Some(stream)) => {
                let (proxy, over) = (proxy.clone(), stream.over());
                served.spawn(async move {
                    proxy.serve(port, stream).await;
                    // The program may take a while to close its side, and uses the channel until then.
                    over.cancelled().await;
                    drop(place);
                });
            }
            Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
