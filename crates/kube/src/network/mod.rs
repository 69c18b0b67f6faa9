//! Networks: a label of Pods, a policy that separates them, and a Service that gives them names.

mod objects;
mod policies;

pub(crate) use objects::{network, policy, service};
pub(crate) use policies::ensure_policy;
