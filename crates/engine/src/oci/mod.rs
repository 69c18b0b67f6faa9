//! Containers by a runtime of the Open Container Initiative: another wall around the same container.
//!
//! The engine makes the root file system, the mounts, the control group and the network; the runtime makes the process.
//! PID 1 is the same program as in other containers.
//!
//! | module | content |
//! |---|---|
//! | `bundle` | `config.json`, from the steps of a process of our own; pure |
//! | `arguments` | the runtime's command lines; pure |
//! | `calls` | runs them |
//!
//! **Invariant:** a container's record names its runtime. A changed configuration changes new containers only.

mod arguments;
mod bundle;
mod calls;

pub(crate) use self::arguments::{RuntimeContainer, RuntimeNetwork, RuntimePaths};
pub(crate) use self::bundle::{BundleParts, BundleRequest, ProcessRequest, bundle, process};
pub(crate) use self::calls::RuntimeCalls;
