//! Prepares what operations need, from the user's configuration: images, sessions, sandboxes and shells.
//!
//! [`requests`] has the arguments of `create`, [`resolve`] fills in their defaults, [`preflight`] checks what this host
//! supports, [`image_build`] finds or builds the image. A [`Process`] holds what outlives a call: the session's tools,
//! its shells and the sandboxes in use.
//!
//! **Invariant:** this crate contains no operation and does not know the table of operations.
//! **Invariant:** `resolve` starts no process and changes nothing.

pub mod coding_agents;
pub mod forwards;
pub mod image_build;
pub mod preflight;
pub mod process;
pub mod requests;
pub mod resolve;
pub mod sandbox;
pub mod session_tools;
pub mod shells;
pub mod shorthand;

pub use process::Process;
pub use resolve::{copyable, host_path};
