//! Networks: a label of Pods, a policy that separates them, and a Service that gives them names.

mod objects;
mod policies;
mod store;

pub(crate) use policies::ensure_policy;
