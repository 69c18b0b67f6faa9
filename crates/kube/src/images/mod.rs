//! Images: a cluster's nodes have theirs from registries, and so what can be said of one is what its registry says.

mod config;
mod lookup;
mod push;
mod registry;
mod store;

pub(crate) use lookup::pull_name;
pub(crate) use registry::Registry;
