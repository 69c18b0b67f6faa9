//! The host's client of a guest.
//!
//! A [`Link`] is one connection that all calls of this process share. It is made when it is first needed, by a [`Dial`],
//! and anew when it broke. Calls that only ask are then asked again; a command is followed where it stands.
//!
//! **Invariant:** what a guest sends is hostile. It is held against what was asked for and the room it was given; memory
//! is bounded by our numbers, and whatever does not fit ends the connection and wakes its calls.
//! **Invariant:** a command is never started twice. Its id is ours, and a guest refuses one that it has seen.
//! **Invariant:** a command whose end was not heard is [`Error::GuestLost`], never a result.

mod channels;
mod codec;
mod command;
mod connection;
mod dial;
mod exec;
mod feed;
mod files;
mod inbox;
mod jobs;
mod outlet;
mod output;
mod relay;
#[cfg(test)]
mod script;
mod session;
mod space;
#[cfg(test)]
mod trials;
mod walk;
mod whole;
mod writer;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub use coracle_protocol as wire;
use coracle_protocol::{Answer, Ask, Fault, FaultCode, Keep, MAX_HEADER, Say};
use tokio::time::timeout;

use self::channels::Talk;
use self::connection::{Broken, Channel, Connection};
use self::dial::SocketDial;
pub(crate) use self::dial::by_socket;
pub use self::dial::{Dial, Dialled, SocketAt, There, Transport};
pub use self::files::{Content, Put};
pub use self::outlet::Outlet;
pub use self::relay::Way;
pub use self::session::SecretFile;
pub use self::walk::{Walk, Walked};
use crate::{Error, ProcessId, Result};

/// How a guest is spoken to.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings {
    /// How much of what commands print is kept inside.
    pub keep: Keep,
}

/// A connection to the guest of one container. A clone is the same connection.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

/// A handle that keeps nothing connected.
#[derive(Clone, Debug)]
pub struct WeakLink(Weak<Shared>);

impl WeakLink {
    /// The link, if anybody still has it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

struct Shared {
    dial: Arc<dyn Dial>,
    settings: LinkSettings,
    /// Held while a connection is made, so that only one is.
    dialling: tokio::sync::Mutex<()>,
    current: Mutex<Option<Arc<Connection>>>,
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
        Self(Arc::new(Shared { dial, settings, dialling: tokio::sync::Mutex::default(), current: Mutex::default() }))
    }

    /// A link by a socket alone, connected, without a call to an engine. `None` when the container's PID 1 as it was
    /// last seen does not answer there; then [`ContainerRuntime::link`](crate::ContainerRuntime::link) has to find out.
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

    fn current(&self) -> Option<Arc<Connection>> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|it| it.alive())
    }

    async fn connection(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let _dialling = self.0.dialling.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let dialled = self.0.dial.dial().await?;
        let connection = match Connection::greet(dialled, self.0.settings.keep).await {
            Ok(connection) => Arc::new(connection),
            Err(failure) => return Err(self.0.dial.blame(failure).await),
        };
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Asks something that has one answer.
    async fn ask<T>(&self, request: Request<T>, ask: impl Fn() -> Ask) -> Result<(T, Vec<u8>)> {
        let Request { verb, kind, payload, patience, again } = request;
        let asking = async {
            let mut first = true;
            loop {
                let ask = sendable(ask())?;
                let connection = self.connection().await?;
                // Lists are parsed whole, so only some may come at once.
                let _place = if again == Again::List { Some(connection.list_place().await?) } else { None };
                let talk = Talk::Answer { fits: kind.fits, payload };
                let heard = match connection.open(ask, Vec::new(), talk).await {
                    Ok(mut channel) => answer(&mut channel).await,
                    Err(broken) => Err(broken),
                };
                match heard {
                    Err(broken) if first && !broken.full && (again != Again::Never || !broken.sent) => first = false,
                    Err(broken) => return Err(broken.of(verb)),
                    Ok(heard) => return understand(heard, kind.take),
                }
            }
        };
        timeout(patience, asking).await.map_err(|_| Error::TimedOut { verb, after: patience })?
    }
}

/// What is asked.
struct Request<T> {
    verb: &'static str,
    kind: Kind<T>,
    /// Bytes that may come with the answer.
    payload: u64,
    patience: Duration,
    again: Again,
}

/// Whether something is asked again when the connection broke before its answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It changes nothing, or nothing more.
    Once,
    /// As [`Once`](Self::Once), and its answer is parsed whole.
    List,
    /// Only when the guest cannot have got it.
    Never,
}

/// A kind of answer.
struct Kind<T> {
    fits: fn(&Answer) -> bool,
    take: fn(Answer) -> Option<T>,
}

/// A guest that runs answers at once, whatever else it does. A disk may be slow.
const SOON: Duration = Duration::from_secs(60);

impl<T> Request<T> {
    fn new(verb: &'static str, kind: Kind<T>) -> Self {
        Self { verb, kind, payload: 0, patience: SOON, again: Again::Once }
    }
}

/// A path or a pattern may be longer than a header can be.
fn sendable(ask: Ask) -> Result<Ask> {
    let bytes = serde_json::to_vec(&ask).map_or(usize::MAX, |it| it.len());
    if bytes > MAX_HEADER {
        let message = format!("what is asked has {bytes} bytes, above {MAX_HEADER}");
        return Err(Error::Refused(Fault::new(FaultCode::TooLong, message)));
    }
    Ok(ask)
}

async fn answer(channel: &mut Channel) -> Result<(Say, Vec<u8>), Broken> {
    loop {
        let (say, payload) = channel.next().await?;
        if !matches!(say, Say::Credit(_)) {
            return Ok((say, payload));
        }
    }
}

fn understand<T>((say, payload): (Say, Vec<u8>), take: fn(Answer) -> Option<T>) -> Result<(T, Vec<u8>)> {
    match say {
        Say::Answer(answer) => take(answer).map(|it| (it, payload)).ok_or_else(not_understood),
        Say::Failed(fault) => Err(refused(fault)),
        _ => Err(not_understood()),
    }
}

/// A later version may say what this one does not know, and it may have been the last word.
fn not_understood() -> Error {
    Error::GuestLost { reason: "the guest said something that this version does not know".into(), output: None }
}

fn refused(fault: Fault) -> Error {
    match fault.code {
        FaultCode::FilesRemoved => Error::FilesRemoved { missing: fault.message },
        _ => Error::Refused(fault),
    }
}
