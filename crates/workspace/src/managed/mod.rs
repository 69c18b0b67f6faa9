//! The containers of a session by `lifecycle`: created on first use, reused, and replaced when they are gone.

mod engine_backoff;
mod provider;
mod sessions;

pub use self::engine_backoff::engine_unavailable;
pub use self::provider::{ContainerProvider, ManagedOptions, RoleSettings};
pub use self::sessions::ManagedSessions;
