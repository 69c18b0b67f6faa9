//! Connects to the guest from inside the container.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Transport};
use coracle_types::{Error, Result};
use tokio::net::UnixStream;

/// The path of the guest's worker socket.
const DEFAULT_SOCKET: &str = "/.coracle/run/worker.sock";

/// Connects to the guest's worker socket.
#[derive(Debug)]
pub struct GuestSocket(PathBuf);

impl GuestSocket {
    /// A link to the guest that listens on that socket. It connects at its first use.
    #[must_use]
    pub fn link(path: impl Into<PathBuf>) -> Link {
        Link::new(std::sync::Arc::new(Self(path.into())), LinkSettings::default())
    }
}

#[async_trait]
impl Dial for GuestSocket {
    async fn dial(&self) -> Result<GuestStream> {
        let failed = |reason: String| Error::GuestFailed { reason };
        let stream = UnixStream::connect(&self.0).await.map_err(|err| failed(format!("cannot connect: {err}")))?;
        // If all processes have the same uid, the agent could create its own socket at this path.
        let is_guest = stream.peer_cred().is_ok_and(|it| it.pid() == Some(1));
        if self.0 == Path::new(DEFAULT_SOCKET) && !is_guest {
            return Err(failed("the listener is not the guest".into()));
        }
        let (reader, writer) = stream.into_split();
        Ok(GuestStream::plain(reader, writer, Transport::Socket))
    }
}
