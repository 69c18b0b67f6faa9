//! The container of a sandbox, ready for use (sandbox.md 1.3).
//!
//! **Invariant:** nobody gets a container whose start was not tested: what is remembered says `proven` after the last step.
//! **Invariant:** the host keeps no token, only what it needs to know one again.

mod breaker;
mod forward;
mod gate;
mod prepare;
mod provider;
mod readying;
mod record;
mod sandbox;

pub use self::gate::{Gate, InUse, Transport};
pub use self::prepare::{AtStart, Preparing};
pub use self::provider::ContainerSandboxProvider;
pub use self::readying::Readying;
pub use self::record::{Claim, Prepared, SandboxDir, SandboxRecord};
pub use self::sandbox::Sandbox;

#[cfg(test)]
mod tests;
