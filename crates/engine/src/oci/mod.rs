//! Runs containers with an OCI runtime, for other isolation than the engine's own.
//!
//! The engine creates the root file system, the mounts, the control group and the network; the runtime creates the process.
//! PID 1 is the same program as in other containers.
//!
//! | module | content |
//! |---|---|
//! | `bundle` | builds `config.json` from the steps of the engine's own process; pure |
//! | `arguments` | builds the runtime's command lines; pure |
//! | `calls` | runs the runtime |
//!
//! **Invariant:** a container's record names its runtime. A changed configuration applies only to new containers.

mod arguments;
mod bundle;
mod calls;

pub(crate) use self::arguments::{RuntimeContainer, RuntimeNetwork, RuntimePaths};
pub(crate) use self::bundle::{BundleParts, BundleRequest, ProcessRequest, bundle, process};
pub(crate) use self::calls::RuntimeCalls;
