//! The container of a sandbox, ready for use.
//!
//! **Invariant:** no call gets a container whose start was not tested: its record says `proven` only after the last step.
//! **Invariant:** the host keeps no token, only what it needs to know one again.

mod circuit_breaker;
mod forward;
mod managed;
mod private_network;
mod provider;
mod sandbox_container;
mod sandbox_proxy;
mod source;
mod startup;

pub(crate) use self::managed::ManagedContainer;
pub use self::managed::{ContainerOptions, TemplateResult, TemplateSource};
pub use self::provider::ContainerSandboxProvider;
pub use self::sandbox_container::Sandbox;
pub use self::sandbox_proxy::{ProxyLease, ProxyListeners, SandboxProxy, Transport};
pub use self::source::{ContainerSource, RunningContainer, SandboxLiveness};
pub use self::startup::{StartHook, Startup, StartupOptions};

#[cfg(test)]
mod tests;
