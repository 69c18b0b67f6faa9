//! Limits the bytes that the guest buffers for its callers.
//!
//! A call reserves the bytes that it may send before any of them is received, and is refused if they exceed the quota. So a
//! caller that obeys its announcements is never disconnected, and another one cannot use more than it reserved.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of one connection of the host: a few of its largest requests concurrently.
const HOST_CONNECTION: usize = 512 << 20;

/// Of all connections of the host.
const HOST: usize = 1 << 30;

/// Of one connection from inside: the largest number of commands with input, and a file of the largest size.
const INSIDE_CONNECTION: usize = 128 << 20;

/// Of all connections from inside.
const INSIDE: usize = 256 << 20;

/// The quotas that connections share.
#[derive(Debug)]
pub(crate) struct Quotas {
    host: Arc<Semaphore>,
    root: Arc<Semaphore>,
    worker: Arc<Semaphore>,
}

impl Default for Quotas {
    fn default() -> Self {
        let pool = |bytes| Arc::new(Semaphore::new(bytes));
        Self { host: pool(HOST), root: pool(INSIDE), worker: pool(INSIDE) }
    }
}

impl Quotas {
    pub(crate) fn host(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(HOST_CONNECTION)), shared: Arc::clone(&self.host) }
    }

    /// For a connection of root inside. The host connects this way if engine and host share no files, so a worker must not
    /// use up this quota.
    pub(crate) fn root(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(INSIDE_CONNECTION)), shared: Arc::clone(&self.root) }
    }

    pub(crate) fn worker(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(INSIDE_CONNECTION)), shared: Arc::clone(&self.worker) }
    }
}

/// The quota of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// Reserved bytes, released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation(#[expect(dead_code, reason = "held for its drop")] [OwnedSemaphorePermit; 2]);

impl Quota {
    /// `None` if fewer bytes are free.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let bytes = u32::try_from(bytes).ok()?;
        let of = |it: &Arc<Semaphore>| Arc::clone(it).try_acquire_many_owned(bytes).ok();
        Some(Reservation([of(&self.own)?, of(&self.shared)?]))
    }

    /// Whether no connection of its kind has reserved bytes.
    #[cfg(test)]
    pub(crate) fn is_all_free(&self) -> bool {
        [INSIDE, HOST].contains(&self.shared.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_a_limit_and_all_from_inside_share_another() {
        let quotas = Quotas::default();
        let connections: Vec<_> = (0..3).map(|_| quotas.root()).collect();
        let mut held: Vec<_> = connections.iter().map(|it| it.reserve(INSIDE_CONNECTION)).collect();
        assert_eq!(held.iter().filter(|it| it.is_some()).count(), INSIDE / INSIDE_CONNECTION);
        assert!(connections[0].reserve(1).is_none() && connections[2].reserve(1).is_none());
        assert!(quotas.host().reserve(INSIDE_CONNECTION).is_some(), "callers inside must not use the host's quota");
        held.remove(0);
        assert!(connections[2].reserve(INSIDE_CONNECTION).is_some());
    }
}
