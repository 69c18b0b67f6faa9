//! What the user allows beyond the policy, while the container runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::log::ProxyEvent;
use crate::policy::EgressPolicy;

/// The user's decisions about requests that the policy refuses.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// The policy with the rules that the user has added. It is read for each connection and request; the same policy
    /// has to be the same `Arc`.
    fn policy(&self) -> Arc<EgressPolicy>;

    /// Reports a refused request that `refused.rule` would allow. May wait for the user's decision.
    async fn decide(&self, refused: &ProxyEvent) -> Decision;
}

/// The decision about a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The user has not allowed it, or has not decided in time.
    Refused,
    /// This request is allowed, and no other.
    Once,
    /// The rule is now part of the policy.
    Allowed,
}

#[derive(Clone)]
pub(crate) struct OptionalApprovals(pub(crate) Option<Arc<dyn Approvals>>);

impl fmt::Debug for OptionalApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalApprovals")
    }
}
