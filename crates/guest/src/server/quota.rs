//! How many bytes callers may make a guest hold.
//!
//! A request reserves what it may send before any of it is received, and one that finds no room is refused. So a caller
//! that keeps to what it announced is never cut off, and one that does not holds no more than it reserved.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of one connection of the host: a few of its largest requests at once.
const HOST_CONNECTION: usize = 512 << 20;

/// Of all connections of the host.
const HOST: usize = 1 << 30;

/// Of one connection from inside: as many commands with input as may be open, and a file of the largest size.
const INSIDE_CONNECTION: usize = 128 << 20;

/// Of all connections from inside.
const INSIDE: usize = 256 << 20;

/// What all connections share.
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
    /// For a connection of the host.
    pub(crate) fn host(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(HOST_CONNECTION)), shared: Arc::clone(&self.host) }
    }

    /// For a connection of root inside. The host comes that way where engine and host share no files, so that no worker
    /// has a part in it.
    pub(crate) fn root(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(INSIDE_CONNECTION)), shared: Arc::clone(&self.root) }
    }

    /// For a connection of the worker.
    pub(crate) fn worker(&self) -> Quota {
        Quota { own: Arc::new(Semaphore::new(INSIDE_CONNECTION)), shared: Arc::clone(&self.worker) }
    }
}

/// What one connection may make a guest hold. A clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// Bytes that may be held until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation(#[expect(dead_code, reason = "held for its drop")] [OwnedSemaphorePermit; 2]);

impl Quota {
    /// `None` when so many are not left.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let bytes = u32::try_from(bytes).ok()?;
        let of = |it: &Arc<Semaphore>| Arc::clone(it).try_acquire_many_owned(bytes).ok();
        Some(Reservation([of(&self.own)?, of(&self.shared)?]))
    }

    /// Whether no connection of its kind holds anything.
    #[cfg(test)]
    pub(crate) fn is_all_free(&self) -> bool {
        [INSIDE, HOST].contains(&self.shared.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_own_limit_and_all_from_inside_one_together() {
        let quotas = Quotas::default();
        let connections: Vec<_> = (0..3).map(|_| quotas.root()).collect();
        let mut held: Vec<_> = connections.iter().map(|it| it.reserve(INSIDE_CONNECTION)).collect();
        assert_eq!(held.iter().filter(|it| it.is_some()).count(), INSIDE / INSIDE_CONNECTION);
        assert!(connections[0].reserve(1).is_none() && connections[2].reserve(1).is_none());
        assert!(quotas.host().reserve(INSIDE_CONNECTION).is_some(), "the host is not kept out by who is inside");
        held.remove(0);
        assert!(connections[2].reserve(INSIDE_CONNECTION).is_some());
    }
}
