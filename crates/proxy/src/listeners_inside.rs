//! Connections of one container by the link to its guest: nobody listens, so nobody else can come.

use std::sync::Arc;
use std::time::Duration;

use coracle_client::Link;
use coracle_protocol::relay::{API_PORT, EGRESS_PORT};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::proxy::{Port, Proxy};

/// The ports, as the container's guest knows them.
const PORTS: [(u16, Port); 2] = [(API_PORT, Port::Api), (EGRESS_PORT, Port::Egress)];

/// Channels of each port that wait for a connection: programs open some at once.
const WAITING: usize = 6;

/// Connections of each port at once, with those that are waited for. The link has channels for other things, too.
const MOST: usize = 64;

/// Between two looks for a link, and for the end of a time in which nobody is listened to.
const PAUSE: Duration = Duration::from_millis(100);

/// A proxy that is reached by a link. When it is dropped it is no more, and every connection is closed.
#[derive(Debug)]
pub struct Listeners {
    _stop: DropGuard,
}

impl Listeners {
    /// Takes what programs connect to. A link that breaks ends all of them; the next one, which somebody else makes, is
    /// used as soon as it is there.
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

/// One connection after the other; they end with it.
async fn take((proxy, link): (Proxy, Link), (number, port): (u16, Port), places: Arc<Semaphore>) {
    let mut served = JoinSet::new();
    while let Ok(place) = places.clone().acquire_owned().await {
        while served.try_join_next().is_some() {}
        let closed = proxy.0.abuse.is_closed();
        match if closed { Ok(None) } else { link.accept_tunnel(number).await } {
            // Closed at once: who tries tokens learns nothing more.
            Ok(Some(_)) if proxy.0.abuse.is_closed() => {}
            Ok(Some(stream)) => {
                let (proxy, over) = (proxy.clone(), stream.over());
                served.spawn(async move {
                    proxy.serve(port, stream).await;
                    // Its program may be slow to go, and has its channel until then.
                    over.cancelled().await;
                    drop(place);
                });
            }
            Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
