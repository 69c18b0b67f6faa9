//! What all sandboxes of a process share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_lifecycle::{Engines, SessionContainers, SlotError, SlotObserver, Store};
use coracle_types::ContainerName;

use crate::{Failure, Result, SandboxKey};

/// Describes an error of a container to the caller.
pub type DescribeError = Arc<dyn Fn(SlotError) -> Failure + Send + Sync>;

/// Records, engines and logs of this process.
#[derive(Clone)]
pub struct SandboxServices {
    /// Records of containers.
    pub store: Store,
    /// Containers of sessions, to which those of sandboxes belong.
    pub containers: SessionContainers,
    /// The engines of this host.
    pub engines: Arc<dyn Engines>,
    /// Receives events of containers.
    pub on_event: Arc<SlotObserver<'static>>,
    /// Adds code and hint to an error.
    pub describe: DescribeError,
}

impl fmt::Debug for SandboxServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxServices").field("store", &self.store).finish_non_exhaustive()
    }
}

impl SandboxServices {
    /// The directory that holds those of all sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> PathBuf {
        self.store.root().join("sandboxes")
    }

    /// An error of a container as a failure.
    pub(crate) fn failure(&self, err: impl Into<SlotError>) -> Failure {
        match err.into() {
            SlotError::Plan(err) => match err.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(err) => (self.describe)(SlotError::Plan(err)),
            },
            err => (self.describe)(err),
        }
    }
}

/// The prefix of a sandbox's name among sessions.
const SESSION: &str = "sbx-";

/// The name of a sandbox among sessions.
///
/// # Errors
/// Never for a key that was parsed.
pub fn session_of(key: &SandboxKey) -> Result<ContainerName> {
    ContainerName::parse(format!("{SESSION}{key}")).map_err(Failure::internal)
}

/// The sandbox of a session, if it is one.
#[must_use]
pub fn key_of_session(session: &ContainerName) -> Option<SandboxKey> {
    SandboxKey::parse(session.as_str().strip_prefix(SESSION)?)
}

#[cfg(test)]
pub(crate) mod test_support {
    use std::path::Path;

    use async_trait::async_trait;
    use coracle_client::LinkSettings;
    use coracle_lifecycle::{Links, SlotLimits};
    use coracle_runtime::{ContainerRuntime, FakeRuntime};
    use coracle_types::{EngineKind, LabelNamespace};

    use super::*;

    struct OneEngine(FakeRuntime);

    #[async_trait]
    impl Engines for OneEngine {
        async fn for_record(&self, _: EngineKind, _: &str) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
            Ok(Arc::new(self.0.clone()))
        }

        async fn preferred(&self) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
            Ok(Arc::new(self.0.clone()))
        }
    }

    /// A process with one engine and records below `state`.
    pub(crate) fn services(state: &Path, engine: &FakeRuntime) -> SandboxServices {
        let store = Store::open(state, LabelNamespace::parse("coracle").unwrap()).unwrap();
        let links = Links::new(LinkSettings::default());
        SandboxServices {
            containers: SessionContainers::new(store.clone(), links, SlotLimits::default()),
            store,
            engines: Arc::new(OneEngine(engine.clone())),
            on_event: Arc::new(|_| {}),
            describe: Arc::new(Failure::internal),
        }
    }
}
