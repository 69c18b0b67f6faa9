//! Containers from a pool of Pods that run already, which the controller of agent-sandbox keeps.
//!
//! A container is a SandboxClaim with the name that its own Pod would have. The controller binds a Sandbox of the pool to
//! it, whose Pod gets our labels and annotations. Claim, Sandbox and Pod go together.
//!
//! **Invariant:** a Pod of a pool becomes a container only if it is what a Pod of our own would be, but for its name.
//! **Invariant:** a claim whose process dies before the Pod is a container expires by itself.

mod binding;
mod claim;
mod compatibility;
mod objects;
mod quantity;
mod readiness;
mod release;

pub(crate) use claim::{ClaimOutcome, claim};
pub(crate) use objects::{AGENTS, EXTENSIONS};
pub(crate) use readiness::check_pool;
pub(crate) use release::release;
