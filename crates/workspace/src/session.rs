//! A container of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;
#[cfg(feature = "containers")]
use std::sync::Arc;

use coracle_client::Link;
use coracle_types::{ByteSize, ContainerPath, Ids};

use crate::{Replacement, Warning};

/// A container that is ready for requests.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    /// The connection to its guest.
    pub link: Link,
    /// The session's name.
    pub session_id: String,
    /// Counts from 1; each replacement adds one.
    pub generation: u64,
    /// The user of its commands.
    pub user: Ids,
    /// The directory of its commands.
    pub workdir: ContainerPath,
    /// The environment of every command.
    pub env: BTreeMap<String, String>,
    /// The memory limit of the container, if it is known.
    pub memory: Option<ByteSize>,
    /// The host directory that is bound read-only at `/code`; without one, PID 1 writes there.
    pub code: Option<PathBuf>,
    /// Set if it replaced another container and no response has reported that yet.
    pub replaced: Option<Replacement>,
    /// Warnings for the next response.
    pub warnings: Vec<Warning>,
    /// Keeps the container in use until it is dropped.
    #[cfg(feature = "containers")]
    pub in_use: Option<Arc<coracle_lifecycle::Ready>>,
}

impl SessionHandle {
    /// A container of the caller's own.
    #[must_use]
    pub fn own(link: Link, user: Ids, workdir: ContainerPath, memory: Option<ByteSize>) -> Self {
        Self {
            link,
            session_id: "sandbox".into(),
            generation: 1,
            user,
            workdir,
            env: BTreeMap::new(),
            memory,
            code: None,
            replaced: None,
            warnings: Vec::new(),
            #[cfg(feature = "containers")]
            in_use: None,
        }
    }
}
