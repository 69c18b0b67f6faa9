//! A sandbox for each workflow: a container with the workflow's worktree and a worker in it, and no key inside.
//!
//! **Invariant:** no key of the user, and no credential for more than this sandbox's proxy, goes into a container.
//! **Invariant:** every byte from a container is data: counted, bounded, and never a reason to do more than requested.
//! **Invariant:** what cannot be decided is denied.
//! **Invariant:** nothing is removed whose work was not saved before.
//! **Invariant:** nothing here knows an engine, MCP, configuration or the command line.

#![warn(missing_docs)]

#[cfg(feature = "host")]
mod apply_devcontainer;
#[cfg(feature = "host")]
mod container;
#[cfg(feature = "host")]
pub mod devcontainer_state;
#[cfg(feature = "host")]
pub mod driver;
#[cfg(feature = "host")]
mod handle;
mod key;
pub mod protocol;
#[cfg(feature = "host")]
pub mod provider;
#[cfg(feature = "host")]
mod record;
#[cfg(feature = "host")]
mod registry;
#[cfg(feature = "host")]
mod run_records;
pub mod schema;
#[cfg(feature = "host")]
mod services;

#[cfg(feature = "host")]
pub use apply_devcontainer::DevcontainerReport;
#[cfg(feature = "host")]
pub use container::{
    ContainerOptions, ContainerSandboxProvider, ContainerSource, ProxyLease, ProxyListeners, RunningContainer, Sandbox,
    SandboxLiveness, SandboxProxy, StartHook, Startup, StartupOptions, TemplateResult, TemplateSource, Transport,
};
pub use coracle_types::failure::{Code, Failure, Result};
#[cfg(feature = "host")]
pub use handle::{FinalSave, GitIdentity, OpenSandbox, SAVE_TIMEOUT, SandboxHandle, SandboxOptions, SandboxRemoval};
pub use key::{Domain, SandboxKey};
#[cfg(feature = "host")]
pub use record::{SandboxDir, SandboxRecord, StartRecord, WorkflowClaim};
#[cfg(feature = "host")]
pub use registry::SandboxRegistry;
#[cfg(feature = "host")]
pub use run_records::{RunRecord, RunRecords, RunState};
#[cfg(feature = "host")]
pub use services::{DescribeError, SandboxServices, key_of_session, session_of};

/// Who owns the files inside and runs every command.
pub const AGENT: coracle_types::Ids = coracle_types::Ids { uid: 10002, gid: 10002 };

/// Who runs the agent loop inside, and may spend the model's key.
pub const WORKER: coracle_types::Ids = coracle_types::Ids { uid: 10001, gid: 10001 };
