//! The way to the guest from inside.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Transport};
use coracle_types::{Error, Result};
use tokio::net::UnixStream;

/// The guest's socket for its worker.
const DEFAULT_SOCKET: &str = "/.coracle/run/worker.sock";

/// The guest's socket for a worker.
#[derive(Debug)]
pub struct GuestSocket(PathBuf);

impl GuestSocket {
    /// A link to the guest that listens there. It is connected when it is first needed.
    #[must_use]
    pub fn link(path: impl Into<PathBuf>) -> Link {
        Link::new(std::sync::Arc::new(Self(path.into())), LinkSettings::default())
    }
}

#[async_trait]
impl Dial for GuestSocket {
    async fn dial(&self) -> Result<GuestStream> {
        let failed = |reason: String| Error::GuestFailed { reason };
        let stream = UnixStream::connect(&self.0).await.map_err(|err| failed(format!("nobody answers: {err}")))?;
        // Where all processes have the same uid, the agent could put a socket of its own there.
        let is_guest = stream.peer_cred().is_ok_and(|it| it.pid() == Some(1));
        if self.0 == Path::new(DEFAULT_SOCKET) && !is_guest {
            return Err(failed("who listens is not the guest".into()));
        }
        let (reader, writer) = stream.into_split();
        Ok(GuestStream::plain(reader, writer, Transport::Socket))
    }
}
