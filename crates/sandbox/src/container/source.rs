//! Where a sandbox gets its container from.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_lifecycle::{EndReason, Ready};
use coracle_proxy::listen::PrivateSubnet;

use crate::Result;
use crate::provider::SandboxInfo;

/// Gives one sandbox its container: creates it on first use, starts it again after it ended, and replaces it on the same
/// volume if that is not enough.
#[async_trait]
pub trait ContainerSource: fmt::Debug + Send + Sync {
    /// The container, with a guest that answers. Calls no engine if it already runs.
    ///
    /// # Errors
    /// Why there is none.
    async fn ensure(&self) -> Result<RunningContainer>;

    /// The state of the container, without touching it.
    async fn liveness(&self) -> Result<SandboxLiveness>;

    /// Removes the container. Its volume stays, and the next [`ensure`](Self::ensure) creates another one.
    ///
    /// # Errors
    /// It could not be removed.
    async fn discard(&self) -> Result<()>;

    /// Removes container and volume. Saves nothing: the caller has done that.
    ///
    /// # Errors
    /// If a part cannot be removed; the next call continues.
    async fn remove(&self, reason: EndReason) -> Result<()>;
}

/// A container that runs.
#[derive(Clone, Debug)]
pub struct RunningContainer {
    /// The connection to its guest.
    pub link: Link,
    /// What a driver learns of it.
    pub info: SandboxInfo,
    /// Its private network with this host, if it is on one.
    pub subnet: Option<PrivateSubnet>,
    /// The container is in use until this is dropped.
    pub lease: Option<Arc<Ready>>,
}

impl RunningContainer {
    /// The first container of a sandbox, on no private network.
    #[must_use]
    pub fn first(link: Link, id: String) -> Self {
        let info = SandboxInfo { id, generation: 1, ..SandboxInfo::default() };
        Self { link, info, subnet: None, lease: None }
    }
}

/// The state of a sandbox's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxLiveness {
    /// It runs and answers.
    Ready,
    /// It has a record, and does not answer.
    Unresponsive,
    /// There is none.
    Absent,
}
