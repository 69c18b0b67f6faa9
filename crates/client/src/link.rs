//! The connection that all calls share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use coracle_protocol::call::Call;
use coracle_protocol::{MountIdentity, Retention, Unlock};
use coracle_types::{Error, ProcessId, Result, boot_id};

use crate::call::{attempt, call_on, call_once_on, encoded};
use crate::channels::ReplyShape;
use crate::connection::{Connection, ConnectionLost};
use crate::dial::{Dial, SocketAt, SocketDial, Transport};

/// Settings of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings {
    /// How much output of commands the guest retains.
    pub keep: Retention,
}

/// A connection to the guest of one container. Clones share it.
#[derive(Clone)]
pub struct Link(Arc<LinkInner>);

/// A handle that does not keep the link open.
#[derive(Clone, Debug)]
pub struct WeakLink(Weak<LinkInner>);

impl WeakLink {
    /// The link, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

struct LinkInner {
    dial: Arc<dyn Dial>,
    settings: LinkSettings,
    /// Held while connecting, so that only one connection is opened.
    dialling: tokio::sync::Mutex<()>,
    current: Mutex<Option<Arc<Connection>>>,
    /// Mounts that the caller knows, for a container that was just started.
    mounts: Mutex<Option<Vec<MountIdentity>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("dial", &self.0.dial).field("transport", &self.transport()).finish_non_exhaustive()
    }
}

impl Link {
    /// A link that is not connected yet.
    #[must_use]
    pub fn new(dial: Arc<dyn Dial>, settings: LinkSettings) -> Self {
        let (dialling, current, mounts) = (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(LinkInner { dial, settings, dialling, current, mounts }))
    }

    /// A link through a socket alone, connected, without a call to an engine. `None` if the container's PID 1, as it was last
    /// seen, does not listen there; then ask the engine.
    ///
    /// It reconnects only to the same socket, so for a container that stopped in the meantime calls fail with
    /// [`Error::GuestLost`].
    pub async fn by_socket(at: &SocketAt, settings: LinkSettings) -> Option<Self> {
        at.pid1.as_ref()?;
        let link = Self::new(Arc::new(SocketDial(at.clone())), settings);
        link.open().await.ok().map(|()| link)
    }

    /// Connects, unless the link is connected.
    ///
    /// # Errors
    /// [`Error::NotRunning`], [`Error::NoSuchContainer`], [`Error::GuestFailed`].
    pub async fn open(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// Sets the mounts of a container that was inspected since its last start, which saves another call to the engine.
    pub fn expect_mounts(&self, mounts: Vec<MountIdentity>) {
        *self.0.mounts.lock().unwrap_or_else(PoisonError::into_inner) = Some(mounts);
    }

    /// What carries the connection, while it is open.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.current().map(|it| it.transport)
    }

    /// The process at the other end, while it is connected by a socket: the container's PID 1.
    #[must_use]
    pub fn peer(&self) -> Option<ProcessId> {
        self.current().and_then(|it| it.peer.clone())
    }

    /// A handle that does not keep the link open.
    #[must_use]
    pub fn downgrade(&self) -> WeakLink {
        WeakLink(Arc::downgrade(&self.0))
    }

    /// Whether both handles refer to the same link.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the guest is alive without a call: a message was received within that time, and the kernel reports no end of
    /// the connection. A guest that hangs since then is detected only by a call.
    #[must_use]
    pub fn was_active(&self, within: Duration) -> bool {
        self.current().is_some_and(|it| it.was_active(within))
    }

    /// Waits until the connection that is open now is lost. Returns at once if none is open.
    pub async fn closed(&self) {
        let over = self.current().map(|it| it.over());
        if let Some(over) = over {
            over.cancelled().await;
        }
    }

    /// Identifies this run of the guest: a restarted container has another one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn run_id(&self) -> Result<String> {
        Ok(self.connection().await?.run.clone())
    }

    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|it| it.alive())
    }

    /// A connection to a guest that knows the call.
    pub(crate) async fn connection_for<C: Call>(&self) -> Result<Arc<Connection>> {
        let connection = self.connection().await?;
        connection.check_knows(C::NAME)?;
        Ok(connection)
    }

    /// Compares the mounts of a container that was just started, and unlocks its guest. Ends the container if another file is
    /// mounted than expected: then the engine followed a link that replaced the source of a bind mount.
    async fn unlock(&self, connection: &Arc<Connection>, guest_boot_id: &str) -> Result<()> {
        let Some(mounts) = self.0.dial.mounts() else {
            return Err(Error::GuestFailed { reason: "the mounts of its container are not verified yet".into() });
        };
        // In a virtual machine, or under another kernel, files have other numbers.
        let shares_kernel = may_share_kernel(boot_id(), guest_boot_id);
        let known = self.0.mounts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let expected = match known {
            _ if !shares_kernel => Ok(Vec::new()),
            Some(known) => Ok(known),
            None => mounts.expected().await,
        };
        let compared = match expected {
            Ok(expected) => call_on(connection, &Unlock { mounts: expected }).await,
            Err(err) => Err(err),
        };
        let changed = match compared {
            Ok(differing) if differing.is_empty() => return Ok(()),
            Ok(differing) => Error::MountChanged { targets: differing },
            Err(err) => err,
        };
        if matches!(changed, Error::MountChanged { .. }) {
            mounts.end_container().await;
        }
        Err(changed)
    }

    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let _dialling = self.0.dialling.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let dialled = self.0.dial.dial().await?;
        let connection = match Connection::handshake(dialled, self.0.settings.keep).await {
            Ok(connection) => Arc::new(connection),
            Err(failure) => return Err(self.0.dial.diagnose(failure).await),
        };
        if let Some(boot_id) = &connection.locked {
            // Boxed, because it is needed only once per start and would enlarge the future of every call.
            Box::pin(self.unlock(&connection, boot_id)).await?;
        }
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Makes a call, and repeats it once if its connection breaks and a repetition is harmless.
    pub(crate) async fn call<C: Call>(&self, call: &C) -> Result<C::Reply> {
        let (body, shape) = (encoded(call)?, ReplyShape::new(call));
        attempt::<C, _, _>(call, || self.call_once::<C>(&body, shape)).await
    }

    pub(crate) async fn call_once<C: Call>(
        &self,
        body: &[u8],
        shape: ReplyShape,
    ) -> Result<Result<C::Reply, ConnectionLost>> {
        let connection = self.connection_for::<C>().await?;
        call_once_on::<C>(&connection, body, shape).await
    }
}

/// Whether files may have the same numbers on both sides. An empty id is unknown, and does not prove another kernel.
fn may_share_kernel(host_boot_id: &str, guest_boot_id: &str) -> bool {
    let is_unknown = host_boot_id.is_empty() || guest_boot_id.is_empty();
    cfg!(target_os = "linux") && (is_unknown || host_boot_id == guest_boot_id)
}

#[cfg(test)]
mod tests {
    use super::may_share_kernel;

    #[test]
    fn only_two_different_known_ids_prove_another_kernel() {
        for (host, guest, is_shared) in
            [("a", "a", true), ("a", "b", false), ("a", "", true), ("", "a", true), ("", "", true)]
        {
            assert_eq!(may_share_kernel(host, guest), is_shared && cfg!(target_os = "linux"), "`{host}`, `{guest}`");
        }
    }
}
