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

/// How a guest is spoken to.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings {
    /// How much of what commands print is kept inside.
    pub keep: Retention,
}

/// A connection to the guest of one container. A clone is the same connection.
#[derive(Clone)]
pub struct Link(Arc<LinkInner>);

/// A handle that keeps nothing connected.
#[derive(Clone, Debug)]
pub struct WeakLink(Weak<LinkInner>);

impl WeakLink {
    /// The link, if anybody still has it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

struct LinkInner {
    dial: Arc<dyn Dial>,
    settings: LinkSettings,
    /// Held while a connection is made, so that only one is.
    dialling: tokio::sync::Mutex<()>,
    current: Mutex<Option<Arc<Connection>>>,
    /// What the caller knows of the container that it has just started.
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

    /// A link by a socket alone, connected, without a call to an engine. `None` when the container's PID 1 as it was
    /// last seen does not answer there; then the engine has to find out.
    ///
    /// When it breaks it is made anew by the same socket only, so a container that stopped meanwhile is
    /// [`Error::GuestLost`].
    pub async fn by_socket(at: &SocketAt, settings: LinkSettings) -> Option<Self> {
        at.pid1.as_ref()?;
        let link = Self::new(Arc::new(SocketDial(at.clone())), settings);
        link.open().await.ok().map(|()| link)
    }

    /// Connects and says hello, if it is not connected.
    ///
    /// # Errors
    /// [`Error::NotRunning`], [`Error::NoSuchContainer`], [`Error::GuestFailed`].
    pub async fn open(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// The mounts of a container that was inspected since its last start, so that the engine is not asked for them again.
    pub fn expect_mounts(&self, mounts: Vec<MountIdentity>) {
        *self.0.mounts.lock().unwrap_or_else(PoisonError::into_inner) = Some(mounts);
    }

    /// What carries it, while it is connected.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.current().map(|it| it.transport)
    }

    /// Who is at its other end, while it is connected by a socket: the container's PID 1.
    #[must_use]
    pub fn peer(&self) -> Option<ProcessId> {
        self.current().and_then(|it| it.peer.clone())
    }

    /// A handle that keeps it from nothing.
    #[must_use]
    pub fn downgrade(&self) -> WeakLink {
        WeakLink(Arc::downgrade(&self.0))
    }

    /// Whether it is a handle to the same link.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the guest is there without being asked: it said something within that time, and the kernel knows of no end
    /// of the connection. One that hangs since is only known by a call.
    #[must_use]
    pub fn was_heard(&self, within: Duration) -> bool {
        self.current().is_some_and(|it| it.was_heard(within))
    }

    /// Names this run of the guest: a container that was started anew has another one.
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

    /// Compares the mounts of a container that was just started, and lets its guest run commands. Ends the container if
    /// another file is mounted than expected: the engine followed a link that was put in the place of a bind's source.
    async fn unlock(&self, connection: &Arc<Connection>, guest_boot_id: &str) -> Result<()> {
        let Some(mounts) = self.0.dial.mounts() else {
            return Err(Error::GuestFailed { reason: "the mounts of its container were not compared yet".into() });
        };
        // Inside a virtual machine, and on a kernel of its own, files have other numbers.
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
            // Once a start, so it makes no other call larger.
            Box::pin(self.unlock(&connection, boot_id)).await?;
        }
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Makes a call, once more if its connection breaks and a repetition changes nothing.
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

/// Whether files may have the same numbers on both sides. An id that cannot be read is empty: it shows no other kernel.
fn may_share_kernel(host_boot_id: &str, guest_boot_id: &str) -> bool {
    let is_unknown = host_boot_id.is_empty() || guest_boot_id.is_empty();
    cfg!(target_os = "linux") && (is_unknown || host_boot_id == guest_boot_id)
}

#[cfg(test)]
mod tests {
    use super::may_share_kernel;

    #[test]
    fn only_two_known_ids_that_differ_show_another_kernel() {
        for (host, guest, is_shared) in
            [("a", "a", true), ("a", "b", false), ("a", "", true), ("", "a", true), ("", "", true)]
        {
            assert_eq!(may_share_kernel(host, guest), is_shared && cfg!(target_os = "linux"), "`{host}`, `{guest}`");
        }
    }
}
