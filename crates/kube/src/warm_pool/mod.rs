//! Containers from a pool of running Pods, which the controller of agent-sandbox maintains.
//!
//! A container is a SandboxClaim with the name that its own Pod would have. The controller binds a Sandbox of the pool
//! to it, whose Pod gets Coracle's labels and annotations. Claim, Sandbox and Pod are deleted together.
//!
//! **Invariant:** a Pod of a pool becomes a container only if it equals the container's own Pod, except for its name.
//! **Invariant:** a claim expires by itself if its process dies before the Pod is a container.

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
