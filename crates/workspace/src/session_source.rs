//! The source of a session's containers.

use coracle_client::Link;
use coracle_types::SlotRole;

#[cfg(feature = "containers")]
use crate::ManagedSessions;
use crate::response::Result;
use crate::{Reason, SessionHandle};

/// The source of a session's containers.
#[derive(Clone, Debug)]
pub enum SessionSource {
    /// `lifecycle` creates them on first use, reuses them, and replaces those that are gone.
    #[cfg(feature = "containers")]
    Managed(ManagedSessions),
    /// The one container that the caller runs in, as a worker does.
    Own(Box<SessionHandle>),
}

impl SessionSource {
    /// The container of a role, ready for use.
    pub(crate) async fn ensure(&self, role: SlotRole) -> Result<SessionHandle> {
        match self {
            #[cfg(feature = "containers")]
            Self::Managed(sessions) => sessions.ensure(role).await,
            Self::Own(session) => {
                // The one container has every role.
                _ = role;
                Ok((**session).clone())
            }
        }
    }

    /// The link to the running container of a role. Creates none.
    pub async fn held_link(&self, role: SlotRole) -> Option<Link> {
        match self {
            #[cfg(feature = "containers")]
            Self::Managed(sessions) => sessions.held_link(role).await,
            Self::Own(session) => (role == SlotRole::Workspace).then(|| session.link.clone()),
        }
    }

    /// Notes that the container of a role is in use.
    pub(crate) fn touch(&self, role: SlotRole) {
        match self {
            #[cfg(feature = "containers")]
            Self::Managed(sessions) => sessions.touch(role),
            Self::Own(_) => _ = role,
        }
    }

    /// Removes a managed container and keeps its volume and record. The next [`ensure`](Self::ensure) creates another.
    pub(crate) async fn discard(&self, role: SlotRole, reason: Reason) {
        match self {
            #[cfg(feature = "containers")]
            Self::Managed(sessions) => sessions.discard(role, reason).await,
            Self::Own(_) => _ = (role, reason),
        }
    }
}
